"""A text of several kinds, by which it is measured how much of what is written two vocabularies share."""

SAMPLE = """The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday. Light from the \
sun has all colours, and air scatters blue light more than red light, because its wavelength is shorter. That is why \
the sky looks blue during the day, and red in the evening, when the light travels through much more of the atmosphere.

Here are three things that you can do to sleep better:
1. Go to bed at the same time every day, also at weekends.
2. Keep your bedroom dark, quiet and cool (about 18 degrees).
3. Avoid coffee, large meals and screens before you lie down.

def mean(values: list[float]) -> float:
    # An empty list has no mean.
    if not values:
        raise ValueError("expected at least one value")
    return sum(values) / len(values)

She asked, "What's the capital of France?" - "Paris," he answered. In 2019 the city had 2,165,423 inhabitants; the \
population of the whole urban area is estimated at 10,858,852.
"""
