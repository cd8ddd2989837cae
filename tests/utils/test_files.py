"""Files that we write: whole, with the mode that the user asks for, called by names that are names."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.refusals import refused
from utils.files import checked_name, write_atomically


@pytest.fixture(params=[0o022, 0o027, 0o077, 0o002], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.skipif(os.name == "nt", reason="modes are of Unix")
def test_a_new_file_follows_the_umask_and_an_old_one_keeps_its_mode(umask: int, tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomically(path, "new")
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    path.chmod(0o604)
    write_atomically(path, "newer")
    assert path.stat().st_mode & 0o777 == 0o604 and path.read_text() == "newer"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize("name", ["a", "a b", "a.b", "größe 1", "..a", "x" * 100])
def test_names_are_names(name: str) -> None:
    assert checked_name(name, "name") == name
    with refused("name", *([f"'../{name}'"] if len(name) < 50 else [len(name) + 3]), 100):
        checked_name(f"../{name}", "name")
