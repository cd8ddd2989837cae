"""Temperatures, sets and logits at their limits, and models whose logits are no numbers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from sampling.forward.kernels.linear import Kernel
from sampling.forward.models.steps import Norm
from sampling.forward.runner import ModelRunner, WholeRunner
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.heads import random_heads
from tests.hostile.row import Row
from tests.tiny import TOKENS, tiny_pair
from utils.events import BeamRound, Round
from utils.logits_processor import MultinomialProcessor, NucleusProcessor, TopKNucleusProcessor, TopKProcessor

NAN, INF = float("nan"), float("inf")
_PAIR = replace(tiny_pair(), heads=random_heads(32, 3, 512, tuple(range(TOKENS)), TOKENS))


class _Constant:
    """An output matrix that says one thing of every token."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, x: Tensor) -> Tensor:
        return x.new_full((x.shape[0], TOKENS), self.value)

    def with_kernel(self, kernel: Kernel) -> "_Constant":
        return self


def _damaged(runner: WholeRunner, value: float) -> ModelRunner:
    """NaN stands in one weight of the last norm; infinity is what the output matrix says of every token."""
    model = runner.model
    if value == value:
        return ModelRunner(replace(model, head=_Constant(value)))  # type: ignore[type-var]
    weight = torch.ones(32).index_fill_(0, torch.tensor([3]), value)
    return ModelRunner(replace(model, norm=Norm(weight, 1e-5)))  # type: ignore[type-var]


def broken(who: str, value: float, method: str, *settings: tuple[str, str]) -> Row:
    """A method on a pair of which one model says no numbers."""

    def act(folder: Path) -> str:
        pair = replace(_PAIR.fresh(), **{who: _damaged(getattr(_PAIR, who), value)})  # type: ignore[arg-type]
        values = Settings()
        values.assign_all([("length", "6"), *settings])
        events = list(PairEngine(pair).stream(method, values, [7, 90, 12, 200, 7, 90]))
        return str([event.emitted for event in events if isinstance(event, Round | BeamRound)])

    says = ("are NaN or infinite, so that no token can be chosen", "float32")
    name = f"{who} says {value}: {method} {' '.join(text for _, text in settings)}"
    return Row("python", act, 2, says, never=("258", "260"), name=name)


def refused(make: Callable[[], object], *says: object) -> Row:
    return Row("python", lambda folder: make(), 2, says, name=str(says[0]))


_SAMPLED = ("processor", "multinomial 1.0")
_TREE = ("draft_tree", "dynamic")
_COLD = "1e-10 <= NUMBER <= 1e+10"
ROWS = [
    *(
        broken("target", value, "target", ("processor", how))
        for value in (NAN, INF, -INF)
        for how in ("greedy", "topk 1 3")
    ),
    *(broken("target", NAN, name, _SAMPLED) for name in ("speculative", "egag", "ucb", "ngram", "suffix", "recycling")),
    *(broken("target", -INF, name) for name in ("speculative", "prompt_lookup", "extended", "recycling", "beam")),
    *(broken("target", NAN, kind, _TREE) for kind in ("medusa", "hydra", "eagle", "mtp", "parallel_eagle", "dspark")),
    *(broken("target", NAN, kind, ("draft_tree", "best_first")) for kind in ("medusa", "parallel_eagle", "dspark")),
    broken("target", NAN, "beam"),
    broken("target", NAN, "speculative", ("verify_strategy", "target_match")),
    broken("target", NAN, "speculative", ("verify_strategy", "topp"), _SAMPLED),
    broken("target", NAN, "speculative", ("verify_strategy", "typical"), ("processor", "nucleus 1.0 0.9")),
    broken("target", NAN, "speculative", ("accept_policy", "accept_all")),
    *(broken("drafter", value, "speculative", how) for value in (NAN, INF, -INF) for how in (_SAMPLED, ("gamma", "2"))),
    *(broken("drafter", NAN, name) for name in ("egag", "ucb", "extended", "suffix_or_model", "drafter")),
    *(
        broken("drafter", NAN, "staged", ("staged_drafter", "suffix"), ("processor", how))
        for how in ("greedy", "topk 1 3")
    ),
    *(
        refused(lambda value=value: MultinomialProcessor(value), f"temperature: {str(value)!r}", _COLD)  # type: ignore[misc]
        for value in (1e-40, 1e-11, 0, -1, 1e11, INF, NAN, None, True, "x")
    ),
    *(
        refused(lambda value=value: TopKProcessor(1.0, value), f"top_k: {str(value)!r}")  # type: ignore[misc]
        for value in (0, -3, 2.0, 2**63, NAN, None)
    ),
    *(
        refused(lambda value=value: NucleusProcessor(1.0, value), f"top_p: {str(value)!r}")  # type: ignore[misc]
        for value in (0, -1, 1.0000001, NAN, INF)
    ),
    refused(lambda: TopKNucleusProcessor(1.0, 10**5000, 0.5), "top_k: a number of thousands of digits"),
    Row("session", ("/processor multinomial 1e-40",), 1, ("temperature: '1e-40'", "1e-10")),
    Row("session", ("/processor greedy 1e-40",), 1, ("temperature: '1e-40'",)),
    Row("infer", ("run", "--prompt", "a", "--processor", "nucleus 1e-40 0.9"), 2, ("temperature: '1e-40'",)),
]
