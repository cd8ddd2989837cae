"""A place where commands may write, and small models that are loaded once."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, wraps
from pathlib import Path

import pytest

from sampling.loading import heads, origin, pairs
from sampling.loading.devices import choose_device, choose_dtype
from sampling.loading.embedded import embedded_gguf
from sampling.loading.pairs import LoadOptions
from sampling.loading.stages import silent
from sampling.pair.pair import Pair
from tests.docs.pages import ROOT
from tests.docs.stand_in import stand_in

Load = Callable[..., Pair]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: `-m "not docs"` is the suite without what pages show."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.docs)


def _explicit(options: LoadOptions) -> LoadOptions:
    """The same options with the number format that `auto` stands for."""
    device = choose_device(options.device)
    return replace(options, dtype=str(choose_dtype(options.dtype, device)).removeprefix("torch."))


@pytest.fixture(scope="package")
def load_once() -> Iterator[Load]:
    """`load_pair`, to which the embedded model is a small one, and in which the default pair is one."""
    load, embedded, there = pairs.load_pair, embedded_gguf(), origin.converted
    made = stand_in()

    def converted(path: Path, progress: pairs.Progress) -> Path:
        return made.model if path == embedded else there(path, progress)

    @cache
    def default() -> Pair:
        return load(LoadOptions())

    @wraps(load)
    def load_pair(options: LoadOptions, progress: pairs.Progress = silent) -> Pair:
        return default() if _explicit(options) == _explicit(LoadOptions()) else load(options, progress)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(origin, "converted", converted)
        patched.setattr(heads, "MODELS", made.heads)
        yield load_pair


@pytest.fixture(autouse=True)
def loaded_once(load_once: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here shares the models, and none loads the embedded one."""
    monkeypatch.setattr(pairs, "load_pair", load_once)


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
