"""Every row of every module here: see the package."""

import hashlib
import pkgutil
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import pytest

import tests.hostile
from tests.hostile.doors import DOORS, Came, call, loaded
from tests.hostile.row import Row
from tests.refusals import lacking
from tests.tiny import llama, save_checkpoint

LONGEST_LINE = 400
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _rows() -> Iterator[Row]:
    for module in pkgutil.iter_modules(tests.hostile.__path__):
        if not module.name.startswith("test_"):
            yield from getattr(import_module(f"tests.hostile.{module.name}"), "ROWS", ())


ALL = tuple(_rows())


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("tiny"), llama(max_position_embeddings=512))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a row runs: all that the program writes for its user would be in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("ablation.commands.run.load_chosen", loaded)
    monkeypatch.setattr("ablation.commands.selftest.load_chosen", loaded)
    monkeypatch.setattr("ablation.commands.quality.load_chosen", loaded)
    monkeypatch.setattr("ablation.commands.shared.options.load_chosen", loaded)
    return tmp_path


def _contents(folder: Path, but: tuple[str, ...]) -> dict[str, str]:
    """A digest of each file by its name, without those that may change."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    kept = {name: path for name, path in files.items() if not any(fnmatch(name, pattern) for pattern in but)}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in kept.items()}


def _enter(row: Row, folder: Path, request: pytest.FixtureRequest) -> Came:
    if callable(row.given):
        return call(row.given, folder)
    given = [text.replace("{folder}", str(folder)) for text in row.given]
    if any("{tiny}" in text for text in given):
        given = [text.replace("{tiny}", str(request.getfixturevalue("tiny"))) for text in given]
    return DOORS[row.door](tuple(given))


def _says(said: str, datum: object) -> bool:
    return str(datum) in said and (not re.fullmatch(r"\w+", str(datum)) or not lacking(said, datum))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("row", [pytest.param(row, id=row.title) for row in ALL])
def test_what_is_wrong_is_told_in_a_line_and_changes_nothing(
    row: Row, folder: Path, request: pytest.FixtureRequest
) -> None:
    row.write(folder)
    before = _contents(folder, row.makes)
    came = _enter(row, folder, request)
    said = " ".join(came.text.replace("│", " ").split())
    assert not came.crash and "Traceback" not in came.text, came.crash or came.text
    assert came.status == row.status, said[:2000]
    assert [datum for datum in row.says if not _says(said, datum)] == [], said[:2000]
    assert [words for words in row.never if words in came.text] == [], said[:2000]
    lines = [line for line in came.text.split("\n") if not line.startswith("{")]  # records are for programs
    assert max(map(len, lines)) <= LONGEST_LINE, said[:2000]
    assert not _CONTROL.search(came.text), ascii(said[:2000])
    assert _contents(folder, row.makes) == before


def test_the_table_is_a_table() -> None:
    assert len(ALL) >= 5
    assert {row.door for row in ALL} >= DOORS.keys()
