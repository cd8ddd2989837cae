"""Write prompts to train drafters on: code and long answers, and questions, summaries, translations, maths, passages.

The target's own dialogues hold little of these; with the answers to these prompts beside them
(`scripts/train_drafter.py --data self --data FILE.jsonl`) a drafter learns those too.
"""

import importlib
import inspect
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import FunctionType
from typing import Annotated

import typer

from ablation.commands.shared.checked import run_checked
from ablation.commands.shared.options import exit_statuses
from sampling.distill.prompts.grounded import grounded, summaries
from sampling.distill.prompts.maths import maths
from sampling.distill.prompts.questions import questions
from sampling.distill.prompts.translations import translations
from utils.errors import UserError
from utils.parameter import LARGEST

MODULES = [
    "bisect",
    "calendar",
    "collections",
    "colorsys",
    "configparser",
    "copy",
    "csv",
    "datetime",
    "difflib",
    "fnmatch",
    "fractions",
    "functools",
    "glob",
    "gettext",
    "heapq",
    "html",
    "inspect",
    "ipaddress",
    "json",
    "locale",
    "mimetypes",
    "operator",
    "pprint",
    "random",
    "shlex",
    "shutil",
    "statistics",
    "string",
    "textwrap",
    "tokenize",
    "urllib.parse",
    "warnings",
]
SUBJECTS = [
    "bees in a city garden",
    "the history of bread",
    "learning to swim as an adult",
    "how a bicycle stays upright",
    "an old cinema that closes",
    "moving to a small island",
    "repairing a wooden chair",
    "why volcanoes erupt",
    "the first day in a new job",
    "keeping chickens",
    "a lost umbrella",
    "how vaccines work",
    "saving water at home",
    "a choir in a village",
    "choosing a used car",
    "the moon and the tides",
    "a winter without heating",
    "learning to play the piano",
    "city trees",
    "a night train",
    "the invention of paper",
    "sleep and memory",
    "raising a puppy",
    "a market on a river",
    "how computers store numbers",
    "planning a wedding on a budget",
    "the life of a lighthouse keeper",
    "solar panels on a roof",
    "walking instead of driving",
    "a forgotten photograph",
    "making soap",
    "the rules of chess",
    "how birds find their way",
    "a school without bells",
    "running a small cafe",
    "libraries in the age of the internet",
    "the colours of autumn leaves",
    "a letter that came too late",
    "saving for retirement",
    "what makes a good teacher",
    "coffee from bean to cup",
    "a flood in the old town",
    "open source software",
    "the deep sea",
    "an honest apology",
    "how to read a map",
    "a theatre for children",
    "electric buses",
    "the smell of rain",
    "growing old",
    "the number zero",
    "a museum of everyday things",
]
CODE = (
    'Finish this function.\n\n{head}\n    """{said}"""\n',
    "Write pytest tests for `{name}`, which is described so: {said}",
    "Please write `{name}` in Python. {said} Show how it is called.",
    "What does this code do, line by line?\n\n{body}",
    "Go on with this module where it stops.\n\n{body}",
)
PROSE = (
    "Write an article of several paragraphs about {}.",
    "I want to know more about {}. Where do I begin, and what should I look out for?",
    "Tell me a story about {}, with a beginning, a turn and an end.",
    "Make a numbered list of the ten most important points on {} and explain each in two sentences.",
)
LINES, LONGEST = 14, 420

Endless = Callable[[random.Random], Iterator[str]]

# Put together by chance, as many as are asked for.
DRAWN: dict[str, Endless] = {
    "question": questions,
    "summary": summaries,
    "translation": translations,
    "maths": maths,
    "grounded": grounded,
}

Out = Annotated[Path, typer.Option(metavar="FILE.jsonl", help="where the prompts go")]
Each = Annotated[int, typer.Option(min=0, max=1500, help=f"different prompts each of {', '.join(DRAWN)}")]
Seed = Annotated[int, typer.Option(min=0, max=LARGEST, help="random seed of these prompts and of the order of all")]


def main(out: Out = Path("training.jsonl"), each: Each = 1000, seed: Seed = 1) -> None:
    """Write the prompts, one JSON object a line; the same Python version and seed write the same file.

    The kinds are mixed, so that answers to a part of the file are of all kinds.

    \b
    uv run scripts/write_training_prompts.py --out training.jsonl
    uv run scripts/write_training_prompts.py --each 200 --seed 2
    uv run scripts/train_drafter.py --method mtp --data self --data training.jsonl
    """
    with exit_statuses():
        entries = mixed(each, seed)
        try:
            out.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
        except OSError as error:
            raise UserError(f"--out {out}: {error.strerror}; expected a file that can be written") from error
        counts = Counter(entry["task"] for entry in entries)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        typer.echo(f"{out}: {len(entries)} prompts: {kinds}")


def mixed(each: int, seed: int) -> list[dict[str, str]]:
    """All prompts in one order by chance: task and prompt of each. No prompt is there twice."""
    entries = [("code", text) for text in code()]
    entries += [("prose", form.format(subject)) for subject in SUBJECTS for form in PROSE]
    for kind, endless in DRAWN.items():
        entries += [(kind, text) for text in islice(_different(endless(random.Random(f"{seed} {kind}"))), each)]
    random.Random(seed).shuffle(entries)
    return [{"task": kind, "prompt": text} for kind, text in entries]


def _different(texts: Iterator[str]) -> Iterator[str]:
    seen: set[str] = set()
    for text in texts:
        if text not in seen:
            seen.add(text)
            yield text


def code() -> Iterator[str]:
    """Two prompts about each public function of the modules that has a docstring."""
    for number, (name, function, source) in enumerate(_functions()):
        said = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
        parts = {
            "name": name,
            "said": said[:LONGEST],
            "head": re.sub(" at 0x[0-9a-f]+", "", f"def {name}{inspect.signature(function)}:"),
            "body": "\n".join(source.splitlines()[:LINES]),
        }
        yield CODE[number % 3].format(**parts)
        yield CODE[3 + number % 2].format(**parts)


def _functions() -> Iterator[tuple[str, FunctionType, str]]:
    """Name, function and source of what a module defines itself and describes."""
    for module in map(importlib.import_module, MODULES):
        written = inspect.getsource(module)
        for name, function in sorted(vars(module).items()):
            written_here = inspect.isfunction(inspect.unwrap(function)) and f"\ndef {name}(" in written
            if written_here and not name.startswith("_") and function.__doc__:
                yield name, function, inspect.getsource(function)


if __name__ == "__main__":
    run_checked(main)
