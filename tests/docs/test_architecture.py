"""docs/architecture.md: its files exist, and what it has a newcomer read stays short."""

import re

from tests.docs.pages import ROOT

PAGE = ROOT / "docs/architecture.md"
MOST_LINES = 2900
MOST_LINES_OF_THE_LOOP = 150


def lines(path: str) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


def test_the_first_hour_is_an_hour() -> None:
    reading = PAGE.read_text(encoding="utf-8").split("## The first hour")[1]
    files = re.findall(r"\]\(\.\./([\w/]+\.py)\)", reading)
    assert files[0] == "sampling/loop.py" and len(files) == len(set(files))
    assert sum(map(lines, files)) <= MOST_LINES


def test_the_loop_fits_a_reader() -> None:
    assert lines("sampling/loop.py") <= MOST_LINES_OF_THE_LOOP


def test_every_room_is_on_the_picture() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rooms = [path.parent.name for path in ROOT.glob("sampling/*/__init__.py")]
    assert [room for room in rooms if f"{room}/" not in page] == []
