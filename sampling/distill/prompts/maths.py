"""Word problems with numbers; a form keeps its quantities whole and not below zero."""

import random
from collections.abc import Iterator

from sampling.distill.prompts import words

_FORMS = (
    "{name} has {big} {goods}. {other} gives {name} {small} more, and then {name} shares half of all {goods} with a "
    "neighbour. How many {goods} are left?",
    "A box holds {small} {goods}. How many boxes does {name} need for {big} {goods}, and how full is the last one?",
    "{name} buys {few} {goods} at {price} dollars each and pays with a {note}-dollar note. How much change is there?",
    "A train leaves {town} at {hour}:{minute:02d} and needs {large} minutes to reach {town2}. When does it arrive?",
    "{name} walks {few} kilometres to school and back on five days a week. How far is that in {small} weeks?",
    "A shop lowers the price of {big} dollars by {percent} per cent and then raises it by {percent} per cent. What is "
    "the price now?",
    "The sum of two numbers is {large} and one of them is {small} more than the other. What are the numbers? "
    "Show each step.",
    "{name} reads {small} pages on {day} and {few} pages more on each day after it. How many pages are read after "
    "a week?",
    "A rectangular garden is {small} metres long and {few} metres wide. A fence costs {price} dollars a metre. What "
    "does the fence around the garden cost?",
    "In a class of {class_} pupils, {few} play chess, {small} sing in the choir and {two} do both. How many do at "
    "least one of these?",
    "A tank holds {large} litres. One pipe fills {small} litres a minute while another takes out {two} litres a "
    "minute. How long does it take to fill the tank?",
    "{name} is {small} years older than {other}. In {few} years their ages add up to {large}. How old are they today?",
    "A recipe for {two} people needs {hundreds} grams of flour. How much is needed for {small} people?",
    "{name} earns {price} dollars an hour and works {few} hours a day for {small} days. One fifth goes to rent. How "
    "much is left?",
    "A bus has {class_} passengers. At the first stop {few} get off and {small} get on, at the second {two} get off. "
    "How many are on the bus?",
    "The ratio of red to blue {goods} in a bag is {two} to {few}. There are {multiple} {goods} in the bag. How many "
    "of them are blue?",
    "What is {percent}% of {hundreds}? Explain how you get there.",
    "Solve for x: {few}x + {small} = {large}",
    "Solve the equation {two}(x - {few}) = {big} and check the result.",
    "Compute {big} * {small} + {large} step by step.",
    "{name} saves {big} dollars a month at {two} per cent interest a year. How much is there after {few} years, "
    "without interest on interest?",
    "A car uses {few} litres on 100 kilometres. How many litres does it use from {town} to {town2}, which are "
    "{hundreds} kilometres apart?",
    "{few} workers need {small} days to build a wall. How long do {two} workers need at the same speed?",
    "The average of {two} test scores is {big}. Which score is needed next so that the average becomes {big_more}?",
    "A farmer sells {few} crates with {small} {goods} each and {two} single ones. How many {goods} is that?",
    "A square has an area of {square} square centimetres. How long is its perimeter?",
    "{name} throws a die {two} times. What is the chance that it shows a six each time?",
    "A film lasts {large} minutes and starts at {hour}:{minute:02d}. After {small} minutes there is a break of {few} "
    "minutes. When does it end?",
)
_ENDS = ("", "", "", " Think step by step.", " Give only the result and one line that explains it.")


def maths(chance: random.Random) -> Iterator[str]:
    """Word problems and equations without end."""
    while True:
        yield chance.choice(_FORMS).format(**_numbers(chance), **_words(chance)) + chance.choice(_ENDS)


def _numbers(chance: random.Random) -> dict[str, int]:
    two, few, small = chance.randint(2, 4), chance.randint(5, 9), chance.randint(10, 24)
    big = 2 * chance.randint(15, 49)
    return {
        "two": two,
        "few": few,
        "small": small,
        "big": big,
        "big_more": big + chance.randint(1, 5),
        "large": chance.randint(100, 199),
        "hundreds": 50 * chance.randint(4, 19),
        "multiple": (two + few) * chance.randint(3, 12),
        "square": chance.randint(4, 30) ** 2,
        "class_": chance.randint(35, 48),
        "percent": 5 * chance.randint(1, 12),
        "price": chance.randint(2, 9),
        "note": 100,
        "hour": chance.randint(6, 20),
        "minute": chance.randint(0, 59),
    }


def _words(chance: random.Random) -> dict[str, str]:
    name, other = chance.sample(words.NAMES, 2)
    town, second = chance.sample(words.TOWNS, 2)
    goods, day = chance.choice(words.GOODS), chance.choice(words.WEEKDAYS)
    return {"name": name, "other": other, "town": town, "town2": second, "goods": goods, "day": day}
