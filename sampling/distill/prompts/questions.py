"""Questions that are answered from what the model knows."""

import random
from collections.abc import Iterator

from sampling.distill.prompts import words

_FORMS = (
    (words.COUNTRIES, "What is the capital of {}, and what is it known for?"),
    (words.COUNTRIES, "Which languages are spoken in {}?"),
    (words.COUNTRIES, "Which countries border {}?"),
    (words.COUNTRIES, "What is the climate of {} like over the year?"),
    (words.COUNTRIES, "What do people in {} eat for breakfast?"),
    (words.COUNTRIES, "what is the longest river in {}"),
    (words.COUNTRIES, "When did {} get its present borders?"),
    (words.COUNTRIES, "Name three famous writers from {} and one work of each."),
    (words.COUNTRIES, "What currency is used in {}?"),
    (words.COUNTRIES, "What are the main exports of {}?"),
    (words.ANIMALS, "What do {} eat?"),
    (words.ANIMALS, "How long do {} live?"),
    (words.ANIMALS, "Where do {} sleep?"),
    (words.ANIMALS, "How do {} find each other?"),
    (words.ANIMALS, "how do {} survive the winter"),
    (words.ANIMALS, "Are {} intelligent? How do we know?"),
    (words.ANIMALS, "Which enemies do {} have?"),
    (words.ANIMALS, "How many kinds of {} are there, and where do they live?"),
    (words.TERMS, "What is {}?"),
    (words.TERMS, "Can you define {} and give an example?"),
    (words.TERMS, "Why does {} matter?"),
    (words.TERMS, "Explain {} to a ten-year-old."),
    (words.TERMS, "Who first described {}, and when?"),
    (words.TERMS, "what are common misunderstandings about {}"),
    (words.TERMS, "How is {} measured or recognised?"),
    (words.INVENTIONS, "Who invented {}?"),
    (words.INVENTIONS, "when was {} invented"),
    (words.INVENTIONS, "How does {} work?"),
    (words.INVENTIONS, "How did {} change everyday life?"),
    (words.INVENTIONS, "What did people use before {} was invented?"),
    (words.MATERIALS, "What is {} made of?"),
    (words.MATERIALS, "Where does {} come from?"),
    (words.MATERIALS, "What happens to {} when it gets wet?"),
    (words.MATERIALS, "how is {} produced today"),
    (words.MATERIALS, "Can {} be recycled?"),
    (words.PAIRS, "What is the difference between {}?"),
    (words.PAIRS, "People often confuse {}. How can I tell which is which?"),
    (words.TASKS, "How do I {}?"),
    (words.TASKS, "What do I need to {}, and how long does it take?"),
    (words.TASKS, "What mistakes do beginners make when they {}?"),
    (words.MONTHS, "What can I sow or plant in {}?"),
    (words.TRADES, "What does the working day of a {} look like?"),
    (words.TRADES, "What does one have to learn to become a {}?"),
)
_ENDS = ("", "", "", "", " Answer in one sentence.", " Keep it short.", " Give reasons.", " Answer as a list.")


def questions(chance: random.Random) -> Iterator[str]:
    """Questions without end, on countries, animals, ideas, inventions, materials and everyday work."""
    while True:
        fillings, form = chance.choice(_FORMS)
        end = chance.choice(_ENDS) if form.endswith(("?", ".")) else ""
        yield form.format(chance.choice(fillings)) + end
