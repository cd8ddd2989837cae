"""Models of other people that load and would be wrong, from a command line and from Python."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, Gemma3TextConfig, GPTNeoConfig, PretrainedConfig

from egag.length_rule import FixedGamma
from ngram_assisted.token_recycling import TokenRecyclingDrafter
from sampling import autoregressive_generate, beam_search_generate, decode, runner_for, speculative_generate
from sampling.api.custom_generate import speculative
from sampling.verify.rejection import RejectionVerifier
from tests.hostile.row import Row
from tests.tiny import TOKENS, llama, random_model, save_checkpoint
from utils.logits_processor import GreedyProcessor

_SIZES = {
    "vocab_size": TOKENS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 3,
}  # fmt: skip
_CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "bert": lambda: BertConfig(**_SIZES),
    "gemma3": lambda: Gemma3TextConfig(
        **_SIZES, head_dim=8, layer_types=["full_attention"] * 2, use_bidirectional_attention=True
    ),
    "neo": lambda: GPTNeoConfig(
        vocab_size=TOKENS, hidden_size=32, num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=4,
        max_position_embeddings=128, window_size=12, bos_token_id=3, eos_token_id=3,
    ),
}  # fmt: skip
_BOTH_WAYS = ("reads in both directions, as an encoder does", "causal")
_CHAINS = ("works with trees of drafts", "runs chains only", "choose methods and values without trees")
_PROMPT = [5, 6, 7, 5, 6, 8, 5]


def _checkpoint(name: str, folder: Path) -> None:
    save_checkpoint(folder / name, _CONFIGS[name]())


def _run(name: str, *more: str) -> tuple[str, ...]:
    return ("run", "--target", "{folder}/" + name, "--device", "cpu", "--prompt", "abab", "--length", "4", *more)


def _model(name: str) -> Any:
    return random_model(_CONFIGS[name]())


def _recycled(folder: Path) -> object:
    rule, judge, greedy = FixedGamma(6), RejectionVerifier(), GreedyProcessor()
    target, drafter = runner_for(_model("neo")), TokenRecyclingDrafter()
    return [*decode(target, drafter, rule, judge, greedy, _PROMPT, max_new_tokens=16, seed=0)]


def _own_generate(name: str, folder: Path) -> object:
    ids = torch.tensor([_PROMPT])
    return _model(name).generate(ids, attention_mask=torch.ones_like(ids), custom_generate=speculative())


def _python(name: str, says: tuple[object, ...], act: Callable[[Path], object]) -> Row:
    return Row("python", act, 2, says, name=name)


ROWS = (
    *(Row("infer", _run(name), 2, _BOTH_WAYS, files=partial(_checkpoint, name)) for name in ("bert", "gemma3")),
    *(
        Row("infer", _run("neo", "--methods", f"target,{method}"), 2, _CHAINS, files=partial(_checkpoint, "neo"))
        for method in ("recycling", "beam", "suffix use_tree_spec=on")
    ),
    _python("runner_for bert", _BOTH_WAYS, lambda folder: runner_for(_model("bert"))),
    _python("bert", _BOTH_WAYS, lambda folder: autoregressive_generate(_PROMPT, _model("bert"))),
    _python(
        "bert drafts", _BOTH_WAYS, lambda folder: speculative_generate(_PROMPT, _model("bert"), random_model(llama()))
    ),
    _python("generate on bert", _BOTH_WAYS, partial(_own_generate, "bert")),
    _python("trees on rows", ("GPTNeoForCausalLM: it counts rows", "chains"), _recycled),
    _python("beams on rows", ("chains",), lambda folder: beam_search_generate(_PROMPT, _model("neo"))),
    _python("runner_for a name", ("'gpt2'", "model", "expected a"), lambda folder: runner_for("gpt2")),  # type: ignore[arg-type]
    _python("runner_for nothing", ("None", "model"), lambda folder: runner_for(None)),  # type: ignore[arg-type]
)
