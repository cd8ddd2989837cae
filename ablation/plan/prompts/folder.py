"""A folder of prompt files, each a set by its name, as benchmarks lay them out (docs/prompts.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ablation.plan.prompts.file import Prompt
from ablation.plan.prompts.sets import in_turn, read_set
from utils.errors import UserError, checked_text
from utils.files import checked_path
from utils.text import quoted

_QUESTIONS = "question.jsonl"
_SHOWN_NAMES = 3
_EXPECTED = f"files NAME.jsonl, a set each, or folders NAME that hold a {_QUESTIONS}"


def read_folder(place: str, beside: Path = Path()) -> tuple[Prompt, ...]:
    """The prompts of a folder's sets, one of each set in turn, by the sets' names whatever order the disk has.

    beside: what a relative path begins at. A set's name is the prompts' task, and leads their ids, so that no other set
    changes them. Raises `UserError` with every file that is wrong, and for a folder that is laid out in no known way.

    Example: `gsm8k.jsonl` and `mbpp.jsonl` -> prompts gsm8k:1, mbpp:1, gsm8k:2, ...
    """
    folder = beside / checked_path(place, "prompts_dir")
    sets, wrong = {}, []
    for name, file in _files(folder).items():
        try:
            sets[file] = tuple(replace(prompt, id=f"{name}:{prompt.id}", task=name) for prompt in read_set(file))
        except UserError as error:
            wrong.append(str(error))
    if wrong:
        raise UserError("\n".join(wrong))
    return in_turn(sets)


def _files(folder: Path) -> Mapping[str, Path]:
    """The sets of a folder by their names, in the order of the names. Raises `UserError`."""
    try:
        inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        below = [path / _QUESTIONS for path in inside if (path / _QUESTIONS).is_file()]
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"prompt folder {str(folder)!r} cannot be read: {why}; expected {_EXPECTED}") from None
    files = [path for path in inside if path.suffix == ".jsonl" and not path.is_dir()]
    if bool(files) == bool(below):
        held = [path.name for path in inside[:_SHOWN_NAMES]] if not files else [files[0].name, _below(below[0])]
        held_text = " and ".join(map(quoted, held)) or "nothing"
        raise UserError(f"prompt folder {str(folder)!r} holds {held_text}; expected either {_EXPECTED}")
    return _named(files or below)


def _named(files: Sequence[Path]) -> Mapping[str, Path]:
    """Each file by its stem, and a question.jsonl, which many benchmarks have, by its folder. Raises `UserError`."""
    file_of: dict[str, Path] = {}
    for file in files:
        name = _folder_name(file.parent) if file.name == _QUESTIONS else file.stem
        if checked_text(name, "prompt set") in file_of:
            raise UserError(f"{str(file_of[name])!r} and {str(file)!r} are both the set {quoted(name)}; rename one")
        file_of[name] = file
    return dict(sorted(file_of.items()))


def _folder_name(folder: Path) -> str:
    """As it is called where it is given; `.` and `..` have no name there."""
    return folder.name.strip(".") or folder.resolve().name


def _below(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"
