"""Words that may replace an argument typed so far."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from sampling.methods.tables import METHODS


def files(typed: str) -> Iterator[str]:
    """Files and folders that begin so."""
    folder, slash, start = typed.rpartition("/")
    with contextlib.suppress(OSError):
        for path in sorted(Path(folder + slash).expanduser().iterdir()):
            if path.name.startswith(start):
                yield f"{folder}{slash}{path.name}" + ("/" if path.is_dir() else "")


def method_words(typed: str) -> Iterator[str]:
    """A method, then on or off."""
    name, space, _ = typed.partition(" ")
    if not space:
        yield from (method for method in METHODS if method.startswith(typed))
    else:
        yield from (line for word in ("on", "off") if (line := f"{name} {word}").startswith(typed))


def methods(typed: str) -> Iterator[str]:
    """A method."""
    return (name for name in METHODS if name.startswith(typed.lower()))


def plans(typed: str) -> Iterator[str]:
    """Built-in plans and plan files."""
    from ablation.plan.file import plan_names

    yield from (name for name in plan_names() if name.startswith(typed))
    yield from (name for name in files(typed) if name.endswith((".toml", "/")))


def prompts(typed: str) -> Iterator[str]:
    """Built-in prompt sets and prompt files."""
    from ablation.plan.prompts.sets import set_names

    yield from (name for name in set_names() if name.startswith(typed))
    yield from (name for name in files(typed) if name.endswith((".jsonl", "/")))


def added(typed: str) -> Iterator[str]:
    """A method, then its parameters."""
    name, space, rest = typed.partition(" ")
    if not space:
        yield from (method for method in METHODS if method.startswith(typed))
    elif name in METHODS:
        before, gap, last = rest.rpartition(" ")
        names = (parameter.name for parameter in METHODS[name].parameters)
        yield from (f"{name} {before}{gap}{option}=" for option in names if option.startswith(last))
