"""The prompts of a plan: from the built-in sets and from files, in turn, under ids that are theirs alone."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from ablation.plan.prompts.file import Prompt, read_prompts
from ablation.plan.section import unknown
from utils.errors import UserError
from utils.files import checked_path
from utils.provenance import ROOT
from utils.text import quoted, shown

FOLDER = ROOT / "ablation" / "prompts"
ALL = "all"
_UNDER_GRAMMARS = ("json",)  # sets whose answers are constrained, which `ALL` leaves out


def set_names() -> tuple[str, ...]:
    """The built-in prompt sets."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.jsonl")))


def measured_turns() -> Callable[[str], bool]:
    """Whether a user turn is one of the built-in prompts, which results are measured on and nothing learns from."""
    turns = {turn for name in set_names() for p in read_prompts(FOLDER / f"{name}.jsonl") for turn in p.turns}
    known = {" ".join(turn.split()) for turn in turns}
    return lambda text: " ".join(text.split()) in known


def find_sources(names: Sequence[str], folder: Path) -> tuple[Path, ...]:
    """The files that names of sets and paths relative to `folder` stand for, each once. Raises `UserError`."""
    return tuple(dict.fromkeys(path for name in names for path in _find(name, folder)))


def _find(name: str, folder: Path) -> tuple[Path, ...]:
    sets = set_names()
    if name == ALL:
        return tuple(FOLDER / f"{name}.jsonl" for name in sets if name not in _UNDER_GRAMMARS)
    if name in sets:
        return (FOLDER / f"{name}.jsonl",)
    path = (folder / checked_path(name, "prompts")).resolve()
    if path.suffix == ".jsonl" or path.is_file():
        return (path,)
    raise unknown("prompt set", name, (*sets, ALL), ".jsonl")


def gather(files: Sequence[Path]) -> tuple[Prompt, ...]:
    """The prompts of all files, one of each in turn, so that a run that is stopped early has seen all tasks.

    Where two files share an id, the ids of a file of one's own are led by its stem ("mine:3"); those of the
    built-in sets stay. Raises `UserError` for files that cannot be read and for ids that are still not unique.
    """
    read = [read_set(file) for file in files]
    counts = Counter(str(prompt.id) for prompts in read for prompt in prompts)
    named = [
        _led(file.stem, prompts) if file.parent != FOLDER and _share(prompts, counts) else prompts
        for file, prompts in zip(files, read, strict=True)
    ]
    return in_turn(dict(zip(files, named, strict=True)))


def in_turn(sets: Mapping[Path, Sequence[Prompt]]) -> tuple[Prompt, ...]:
    """The prompts of each file, one of each in turn. Raises `UserError` where two files share an id."""
    owner: dict[str, Path] = {}
    for file, prompts in sets.items():
        for prompt in prompts:
            earlier = owner.setdefault(str(prompt.id), file)
            if earlier != file:
                raise UserError(
                    f"prompt id {quoted(prompt.id)} is in {str(earlier)!r} and in {str(file)!r}; rename one file"
                )
    return tuple(prompt for turn in zip_longest(*sets.values()) for prompt in turn if prompt is not None)


def read_set(file: Path) -> tuple[Prompt, ...]:
    """A file's prompts; 1 and "1" are one id, as a results file knows them by their text. Raises `UserError`."""
    prompts = read_prompts(file)
    twice = [name for name, count in Counter(str(prompt.id) for prompt in prompts).items() if count > 1]
    if twice:
        raise UserError(
            f"prompt file {str(file)!r}: id {shown(twice[0])} is there as a number and as a text; rename one"
        )
    return prompts


def _share(prompts: Sequence[Prompt], counts: Counter[str]) -> bool:
    return any(counts[str(prompt.id)] > 1 for prompt in prompts)


def _led(stem: str, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    return tuple(replace(prompt, id=f"{stem}:{prompt.id}") for prompt in prompts)
