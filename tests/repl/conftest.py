"""A tiny checkpoint with a tokenizer that splits characters, and sessions on it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from repl.loading import Loading
from repl.session import Session
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.pair import Pair

_TEXT = ["the quick brown fox jumps over the lazy dog and the small grey bird sings in the old tree"] * 4


def _tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE: every byte is a token, so that an emoji or a CJK character is several."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def _save(folder: Path, noise: float, tokenizer: PreTrainedTokenizerFast) -> Path:
    """The same random Llama each time, moved away from itself by some noise."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=noise)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return _tokenizer()


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> tuple[Path, Path]:
    """Folders of a target and a drafter that often disagree."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return _save(folder / "target", 0.0, tokenizer), _save(folder / "drafter", 0.05, tokenizer)


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

    def load(progress: object) -> Pair:
        return load_pair(options)

    def make() -> Session:
        session = Session(Loading(load))
        session.loading.start()
        session.assign("length", "24")
        return session

    return make


@pytest.fixture
def idle_session() -> Session:
    """A session whose models never load: for everything that needs none."""

    def load(progress: object) -> Pair:
        raise AssertionError("nothing should load a model here")

    return Session(Loading(load))
