"""A place where commands may write, and models that are loaded once."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import sampling.loading.pairs
from sampling.loading.pairs import LoadOptions
from sampling.pair import Pair
from tests.docs.pages import ROOT

Load = Callable[..., Pair]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: `-m "not docs"` is the suite without what pages show."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.docs)


@pytest.fixture(scope="package")
def load_once() -> Load:
    """`load_pair`, which reads a pair the first time only."""
    load = cache(sampling.loading.pairs.load_pair)

    def load_pair(options: LoadOptions, progress: object = None) -> Pair:
        return load(options)

    return load_pair


@pytest.fixture(autouse=True)
def loaded_once(load_once: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here shares the pairs."""
    monkeypatch.setattr("sampling.loading.pairs.load_pair", load_once)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like the project to a command and may be written into; it is the current one."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "docs" / "results", folder / "docs" / "results")
    (folder / "models").symlink_to(ROOT / "models")
    (folder / "ablation").mkdir()
    (folder / "ablation" / "prompts").symlink_to(ROOT / "ablation" / "prompts")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(folder)
    return folder
