"""A tiny checkpoint with a tokenizer that splits characters, and sessions on it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from repl.loading import Loading
from repl.session import Session
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.pair.pair import Pair
from tests.tiny import llama, save_checkpoint, tiny_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Every byte is a token, so that an emoji or a CJK character is several."""
    return tiny_tokenizer()


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> tuple[Path, Path]:
    """Folders of a target and a drafter that often disagree."""
    folder = tmp_path_factory.mktemp("checkpoints")
    target, drafter = (
        save_checkpoint(folder / name, llama(max_position_embeddings=512), tokenizer, noise=noise)
        for name, noise in (("target", 0.0), ("drafter", 0.03))
    )
    return target, drafter


@pytest.fixture(scope="session")
def options(checkpoints: tuple[Path, Path]) -> LoadOptions:
    target, drafter = checkpoints
    return LoadOptions(target=str(target), drafter=str(drafter), device="cpu", dtype="float32")


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test writes into the user's own state folder."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
def new_session(options: LoadOptions) -> Callable[[], Session]:
    """Sessions with models of their own, short answers."""

    def make() -> Session:
        session = Session(Loading(load_pair, options))
        session.loading.start()
        session.assign("length", "24")
        return session

    return make


@pytest.fixture
def idle_session() -> Session:
    """A session whose models never load: for everything that needs none."""

    def load(options: LoadOptions, progress: object) -> Pair:
        raise AssertionError("nothing should load a model here")

    return Session(Loading(load))
