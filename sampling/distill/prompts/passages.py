"""Short passages about invented places and people, and questions that they answer."""

import random
import re
from dataclasses import dataclass
from pydoc_data import topics

from sampling.distill.prompts import words
from sampling.distill.prompts.invented import FORMS


@dataclass(frozen=True, slots=True)
class Passage:
    """A text, questions that it answers, and a name in it (empty where it names nobody)."""

    text: str
    questions: tuple[str, ...]
    name: str = ""


_CHOICES = {
    "building": [
        "library",
        "swimming pool",
        "theatre",
        "town hall",
        "railway station",
        "school",
        "museum",
        "post office",
        "market hall",
    ],
    "part": ["roof", "north wall", "boiler room", "ceiling", "main staircase", "foundations"],
    "bird": ["plover", "lark", "tern", "warbler", "finch", "sandpiper", "heron", "swift"],
    "colour": ["white", "grey", "yellow", "green", "red", "brown"],
    "colour2": ["blue", "orange", "black", "purple"],
    "club": [
        "chess club",
        "garden society",
        "choir",
        "hiking club",
        "bee club",
        "allotment society",
        "film club",
        "rowing club",
    ],
    "habit": [
        "reading in bed",
        "coffee after lunch",
        "late exercise",
        "watching the news",
        "a short nap",
        "music at night",
    ],
    "thing": ["Mixer", "Compressor", "Kettle", "Grinder", "Sorter", "Press"],
    "goods": words.GOODS,
    "animals": words.ANIMALS,
}
_PARAGRAPH = (300, 1100)


def passage(chance: random.Random) -> Passage:
    """An invented passage."""
    form, values = chance.choice(FORMS), _values(chance)
    text = " ".join(chance.choice(place) for place in form.places).format(**values)
    return Passage(text, tuple(question.format(**values) for question in form.questions), values["name"])


def documentation() -> list[str]:
    """Paragraphs of Python's own documentation that are prose."""
    paragraphs = (" ".join(part.split()) for _, text in sorted(topics.topics.items()) for part in text.split("\n\n"))
    least, most = _PARAGRAPH
    fit = (part for part in paragraphs if least <= len(part) <= most and part[0].isupper() and part.endswith("."))
    return [part for part in dict.fromkeys(fit) if len(re.findall(r"[a-zA-Z ,.']", part)) > 0.93 * len(part)]


def _values(chance: random.Random) -> dict[str, str]:
    """One filling of every slot."""
    values = {slot: chance.choice(among) for slot, among in _CHOICES.items()}
    for slots, among in (
        (("name", "other"), words.NAMES),
        (("surname", "surname2"), words.SURNAMES),
        (("town", "town2"), words.TOWNS),
        (("country", "country2"), words.COUNTRIES),
        (("month", "month2"), words.MONTHS),
        (("trade", "trade2"), words.TRADES),
        (("day",), words.WEEKDAYS),
    ):
        values.update(zip(slots, chance.sample(among, len(slots)), strict=True))
    year = chance.randint(1870, 1990)
    numbers = {
        "two": chance.randint(2, 4),
        "few": chance.randint(5, 9),
        "small": chance.randint(10, 24),
        "big": chance.randint(25, 95),
        "large": chance.randint(100, 199),
        "hundreds": 10 * chance.randint(20, 99),
        "number": chance.randint(11, 59),
        "percent": chance.randint(5, 60),
        "age": chance.randint(40, 120),
        "price": chance.randint(12, 24),
        "date": chance.randint(1, 15),
        "date2": chance.randint(16, 28),
        "hour": chance.randint(6, 11),
        "year": year,
        "later": year + chance.randint(30, 80),
    }
    money = f"{1000 * chance.randint(2, 90):,}"
    return {**values, "money": money, **{name: str(number) for name, number in numbers.items()}}
