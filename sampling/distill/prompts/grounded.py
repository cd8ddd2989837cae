"""Prompts whose answers stand in a passage that they bring along: summaries, and questions and changes."""

import random
from collections.abc import Iterator

from sampling.distill.prompts import words
from sampling.distill.prompts.passages import Passage, documentation, passage

_SUMMARIES = (
    "Summarize the following text.\n\n{}",
    "Summarise this text in {n} sentences.\n\n{}",
    "Summarize: {}",
    "{}\n\nSum this up in one sentence.",
    "Read the text and list its {n} main points.\n\n{}",
    "Write a headline and a summary of one sentence for this text.\n\n{}",
    "{}\n\nTL;DR",
    "Shorten this to half its length and keep all numbers.\n\n{}",
    "What is the following text about? Answer in {n} sentences at most.\n\n{}",
    "Give a short summary for somebody who has no time.\n\nText: {}\n\nSummary:",
)
_QUESTIONS = (
    "Answer the question from the text.\n\nText: {text}\n\nQuestion: {question}",
    "{text}\n\n{question}",
    "{text}\n\nUsing only what is said above: {question}",
    "Read this passage and answer in a full sentence.\n\n{text}\n\n{question}",
    "{question} Quote the sentence that says so.\n\n{text}",
    "I have these notes:\n\n[1] {text}\n\n[2] {more}\n\n{question} Say which note you used.",
    "Reference:\n{more}\n\n{text}\n\nWith the reference above, answer this: {question}",
)
_CHANGES = (
    "Copy the text and replace the name {name} by {new} everywhere.\n\n{text}",
    "List every number in this text with what it counts.\n\n{text}",
    "Turn this text into bullet points, one a sentence, in the same words.\n\n{text}",
    "Rewrite the text in the present tense.\n\n{text}",
    "Extract all names, places and dates from the text as JSON with the keys names, places and dates.\n\n{text}",
    "Put each sentence of this text on a line of its own and number the lines.\n\n{text}",
    "Repeat the passage word for word, then say what it leaves open.\n\n{text}",
    "Make a table with two columns, fact and sentence, from this text.\n\n{text}",
    "Correct the spelling mistakes and return the whole text.\n\n{wrong}",
    "There are typing errors in this text. Write it out without them.\n\n{wrong}",
)


def summaries(chance: random.Random) -> Iterator[str]:
    """Texts to sum up, without end: one in four from Python's documentation, the others invented."""
    documented = documentation()
    while True:
        many = chance.choice((1, 1, 2))
        text = " ".join(passage(chance).text for _ in range(many))
        if chance.random() < 0.25:
            text = chance.choice(documented)
        yield chance.choice(_SUMMARIES).format(text, n=chance.randint(2, 4))


def grounded(chance: random.Random) -> Iterator[str]:
    """A passage with a question on it, or something to do with it, without end."""
    while True:
        text = passage(chance)
        yield _asked(chance, text) if chance.random() < 0.6 else _changed(chance, text)


def _asked(chance: random.Random, source: Passage) -> str:
    question, more = chance.choice(source.questions), passage(chance).text
    return chance.choice(_QUESTIONS).format(text=source.text, question=question, more=more)


def _changed(chance: random.Random, source: Passage) -> str:
    wrong = " ".join(_mistyped(chance, word) for word in source.text.split(" "))
    new = chance.choice([name for name in words.NAMES if name != source.name])
    form = chance.choice(_CHANGES if source.name in source.text else _CHANGES[1:])
    return form.format(text=source.text, wrong=wrong, name=source.name, new=new)


def _mistyped(chance: random.Random, word: str) -> str:
    """One word in six with two letters changed round, or one left out or doubled."""
    if len(word) < 5 or not word.isalpha() or chance.random() > 1 / 6:
        return word
    at = chance.randrange(1, len(word) - 2)
    return chance.choice(
        (
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
        )
    )
