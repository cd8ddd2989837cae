"""The law on real layers of each kind that takes tokens back in its own way: windows, convolutions, states, experts.

Other laws are proved on a toy whose rows are computed once. Here every text runs on a cache of its own.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from sampling.forward.causal_model import CausalModel
from sampling.forward.models import lean
from sampling.forward.models.recurrent import RecurrentModel
from sampling.forward.runner import ModelRunner
from sampling.loading.adapt import adapted
from sampling.loading.families.configs import FAMILIES
from sampling.loading.families.judge import random_model
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from tests.conformance import suite
from tests.conformance.matrix import case
from tests.conformance.toy import VOCAB
from utils.logits_processor import MultinomialProcessor

KINDS = {"window": "gemma2", "convolution": "lfm2", "state": "qwen3_next", "experts": "qwen3_moe"}
PROMPT = (1, 4, 2, 0, 1, 4, 3, 1, 4, 2, 5, 1)
"""Longer than a window of 8 tokens; what it ends with was there before, so that something is drafted."""


@cache
def model(name: str, seed: int) -> CausalModel:
    family = next(one for one in FAMILIES if one.model_type == name and not one.setting)
    hf = random_model(replace(family, changes={**family.changes, "vocab_size": VOCAB}).config(), seed)
    return lean.from_transformers(hf) if lean.fits(hf) else adapted(name, hf)


def pair(name: str) -> Pair:
    target, drafter = (ModelRunner(model(name, seed)) for seed in (0, 1))
    info = ModelInfo(name, "cpu", "float32")
    return Pair(target, drafter, None, frozenset(), info, info)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("drafter", ["ngram", "model"])
@pytest.mark.parametrize("name", KINDS.values(), ids=KINDS.keys())
def test_greedy_output_is_that_of_autoregression(name: str, drafter: str) -> None:
    suite.check_greedy(case(drafter), pair(name), length=16, prompts=2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS.values(), ids=KINDS.keys())
def test_what_is_drawn_follows_the_targets_law(name: str) -> None:
    suite.check_distribution(case("ngram"), pair(name), MultinomialProcessor(1.0), runs=suite.FEW_RUNS, prompt=PROMPT)


@pytest.mark.filterwarnings("ignore")
def test_a_state_that_is_not_taken_back_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    held = pair("qwen3_next")
    kind: Any = type(held.target.cache)  # type: ignore[attr-defined]
    monkeypatch.setattr(kind, "_put", lambda *_: None)
    with pytest.raises(AssertionError, match="chi-square"):
        suite.check_distribution(
            case("ngram"), held, MultinomialProcessor(1.0), runs=suite.FEW_RUNS // 2, prompt=PROMPT
        )


def test_all_kinds_run_as_their_page_says() -> None:
    assert isinstance(model("gemma2", 0), lean.LeanModel) and isinstance(model("qwen3_moe", 0), lean.LeanModel)
    assert isinstance(model("lfm2", 0), RecurrentModel) and isinstance(model("qwen3_next", 0), RecurrentModel)
