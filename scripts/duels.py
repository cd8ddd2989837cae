"""Our loop and transformers' `generate` on the same weights and ids, one against the other."""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers

from sampling.forward.runner import CausalModel
from sampling.heads.head_files import load_head
from sampling.measure.metrics import RunMetrics
from sampling.methods import REFERENCE
from sampling.pair import Pair
from sampling.pair_engine import PairEngine
from sampling.settings import Settings
from utils.intervals import bootstrap_median
from utils.parameter import Values

NGRAM_ORDER = 3
COPIED = ("grounded", "code")
DRAFT_WITH_A_MODEL = ("SD",)


@dataclass
class Duel:
    """One of our methods against one call of transformers; `ratios` = their seconds / ours, on equal tokens."""

    name: str
    against: str
    ours: Callable[[list[int]], RunMetrics]
    theirs: Callable[[list[int]], list[int]]
    tasks: tuple[str, ...] = ()
    ratios: list[float] = field(default_factory=list)
    ours_s: list[float] = field(default_factory=list)
    theirs_s: list[float] = field(default_factory=list)
    different: int = 0
    overhead: list[float] = field(default_factory=list)

    def play(self, prompt: list[int], ours_first: bool) -> None:
        """Both sides once; seconds a token, so that a tie that ends one text earlier does not count as speed."""
        results: dict[str, tuple[float, list[int]]] = {}
        for side in ("ours", "theirs") if ours_first else ("theirs", "ours"):
            start = time.perf_counter()
            if side == "ours":
                account = self.ours(prompt)
                ids = account.output_ids
                outside = 0.0 if self.name in DRAFT_WITH_A_MODEL else account.draft_s
                self.overhead.append((account.other_s + outside) / account.decode_s)
            else:
                ids = self.theirs(prompt)
            results[side] = (time.perf_counter() - start) / len(ids), ids
        self.ours_s.append(results["ours"][0])
        self.theirs_s.append(results["theirs"][0])
        self.ratios.append(results["theirs"][0] / results["ours"][0])
        self.different += results["ours"][1] != results["theirs"][1]

    def forget(self) -> None:
        """As if it had never played: behind the warm-up."""
        for kept in (self.ratios, self.ours_s, self.theirs_s, self.overhead):
            kept.clear()
        self.different = 0

    def outcome(self) -> "DuelOutcome":
        """What all that was played comes to."""
        ratio, low, high = bootstrap_median(self.ratios)
        outside = None if self.name in DRAFT_WITH_A_MODEL else median(self.overhead)
        ours_ms, theirs_ms = (median(seconds) * 1e3 for seconds in (self.ours_s, self.theirs_s))
        return DuelOutcome(
            self.name, self.against, ratio, low, high, ours_ms, theirs_ms, len(self.ratios), self.different, outside
        )


@dataclass(frozen=True, slots=True)
class DuelOutcome:
    """A duel's numbers: theirs / ours with its 95 % interval, medians in milliseconds a token, runs.

    other_text: runs whose text differed. outside_forwards: share of our decode time; None where a model drafts,
    whose forwards are in it.
    """

    ours: str
    against: str
    ratio: float
    low: float
    high: float
    ours_ms: float
    theirs_ms: float
    runs: int
    other_text: int
    outside_forwards: float | None


class Transformers:
    """`model.generate` with the same weights: plain, with the pair's drafter as the assistant, with prompt lookup."""

    def __init__(self, pair: Pair, length: int, gamma: int) -> None:
        stop = sorted(pair.stop)
        self.model = _loaded(pair.target_info.place, pair.target.model)
        self.model.generation_config = transformers.GenerationConfig(eos_token_id=stop, pad_token_id=stop[0])
        self.length, self.gamma, self._pair = length, gamma, pair

    @cached_property
    def assistant(self) -> Any:
        """The pair's drafter, which drafts as many tokens as ours does. Raises `UserError` where there is none."""
        made = _assistant(self._pair, self.model)
        assisting = made.generation_config
        assisting.num_assistant_tokens = self.gamma
        assisting.num_assistant_tokens_schedule = "constant"
        assisting.assistant_confidence_threshold = 0.0
        return made

    def generate(self, prompt: list[int], **options: Any) -> list[int]:
        """New ids, greedy."""
        ids = torch.tensor([prompt], device=self.model.device)
        output = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=self.length, do_sample=False, **options
        )
        return list(output[0, len(prompt) :].tolist())

    def assisted(self, prompt: list[int]) -> list[int]:
        """With the drafter as the assistant model."""
        return self.generate(prompt, assistant_model=self.assistant)

    def lookup(self, size: int) -> Callable[[list[int]], list[int]]:
        """With prompt lookup: contexts of `size` tokens at most, drafts as long as ours."""
        return lambda prompt: self.generate(prompt, prompt_lookup_num_tokens=self.gamma, max_matching_ngram_size=size)


def _loaded(place: str, like: CausalModel) -> Any:
    """The checkpoint as a transformers model, where our model is and in its number format."""
    return transformers.AutoModelForCausalLM.from_pretrained(place, dtype=like.dtype).to(like.device).eval()


def _assistant(pair: Pair, model: Any) -> Any:
    """The pair's drafter as a transformers model."""
    info = pair.of_drafter.target_info
    return _distilled(model, Path(info.place)) if info.trained else _loaded(info.place, pair.of_drafter.target.model)


def _distilled(model: Any, folder: Path) -> Any:
    """The distilled drafter with an output matrix of the whole vocabulary, which `generate` needs."""
    head = load_head(folder)
    config = deepcopy(model.config)
    config.num_hidden_layers = head.config.layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: head.config.layers]
    small = type(model)(config)
    blocks = {name.replace("blocks.", "layers."): weight for name, weight in head.weights.items()}
    small.model.load_state_dict({**blocks, "embed_tokens.weight": model.model.embed_tokens.weight})
    small.tie_weights()
    return small.to(model.device, model.dtype).eval()


def of_method(
    engine: PairEngine, name: str, values: Values, run: str | None = None
) -> Callable[[list[int]], RunMetrics]:
    """Our side: one method with these values. run: what its drafter is kept under; None = the method's name."""

    def account_of(prompt: list[int]) -> RunMetrics:
        account = RunMetrics()
        for event in engine.stream(name, values, prompt, run):
            account.add(event)
        return account

    return account_of


def duels(engine: PairEngine, plain: Settings, lookup: Settings) -> list[Duel]:
    """Every comparison; `lookup` holds the settings of what copies, whose drafts may be longer."""
    theirs, searching = (Transformers(engine.pair, one["length"], one["gamma"]) for one in (plain, lookup))
    assisting, copying = "generate(assistant_model)", "generate(prompt_lookup)"
    longest, shorter = searching.lookup(NGRAM_ORDER), searching.lookup(NGRAM_ORDER - 1)
    ours = {name: of_method(engine, name, lookup) for name in ("ngram", "prompt_lookup", "suffix")}
    return [
        Duel("AR", "generate", of_method(engine, REFERENCE, plain), theirs.generate),
        Duel("SD", assisting, of_method(engine, "speculative", plain), theirs.assisted),
        Duel("NASD", copying, ours["ngram"], shorter, ("grounded",)),
        Duel("Prompt lookup", copying, ours["prompt_lookup"], longest, COPIED),
        Duel("Suffix, no memory", copying, ours["suffix"], longest, COPIED),
    ]
