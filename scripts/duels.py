"""Our loop and transformers' `generate` on the same weights and ids, one against the other."""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
import transformers

from sampling.heads.head_files import load_head
from sampling.loading.heads import heads_for
from sampling.loading.origin import EMBEDDED_NAME, resolve
from sampling.loading.stages import silent
from sampling.measure.metrics import RunMetrics
from sampling.methods import REFERENCE
from sampling.pair import MODEL
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
    """`model.generate` with the same weights: plain, with an assistant of the same blocks, with prompt lookup."""

    def __init__(self, dtype: torch.dtype, length: int, gamma: int, stop: list[int]) -> None:
        folder = resolve(None, silent).place
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        self.model.generation_config = transformers.GenerationConfig(eos_token_id=stop, pad_token_id=stop[0])
        self.assistant = _distilled(self.model)
        assisting = self.assistant.generation_config
        assisting.num_assistant_tokens = gamma
        assisting.num_assistant_tokens_schedule = "constant"
        assisting.assistant_confidence_threshold = 0.0
        self.length, self.gamma = length, gamma

    def generate(self, prompt: list[int], **options: Any) -> list[int]:
        """New ids, greedy."""
        ids = torch.tensor([prompt])
        output = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=self.length, do_sample=False, **options
        )
        return list(output[0, len(prompt) :].tolist())

    def assisted(self, prompt: list[int]) -> list[int]:
        """With the distilled drafter as the assistant model."""
        return self.generate(prompt, assistant_model=self.assistant)

    def lookup(self, size: int) -> Callable[[list[int]], list[int]]:
        """With prompt lookup: contexts of `size` tokens at most, drafts as long as ours."""
        return lambda prompt: self.generate(prompt, prompt_lookup_num_tokens=self.gamma, max_matching_ngram_size=size)


def _distilled(model: Any) -> Any:
    """The distilled drafter as a transformers model; its output is the whole vocabulary's, which `generate` needs."""
    head = load_head(heads_for(EMBEDDED_NAME, None)[MODEL])
    config = deepcopy(model.config)
    config.num_hidden_layers = head.config.layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: head.config.layers]
    small = type(model)(config)
    blocks = {name.replace("blocks.", "layers."): weight for name, weight in head.weights.items()}
    small.model.load_state_dict({**blocks, "embed_tokens.weight": model.model.embed_tokens.weight})
    small.tie_weights()
    return small.to(model.dtype).eval()


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
    dtype, stop = engine.pair.target.model.dtype, sorted(engine.pair.stop)
    theirs, searching = (Transformers(dtype, one["length"], one["gamma"], stop) for one in (plain, lookup))
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
