"""What could be recommended: the drafters that a pair has, and the lengths and rules that can be replayed on each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ablation.plan.grid import Configuration
from egag.cost_model import CostModel
from egag.length_rule import FixedGamma, LengthRule
from sampling.measure.metrics import RunMetrics
from sampling.measure.replay import DraftWalk, replayed
from sampling.methods.method import FIXED
from sampling.methods.rules import CONTROLLERS, DRAFT_RULE
from sampling.methods.tables import BEST_HEAD, HEADS, METHODS
from sampling.pair.pair import MODEL, Pair
from utils.parameter import Values

LENGTHS = (1, 2, 3, 4, 5, 6, 8)
BUDGETS = (2, 4, 6, 8, 10)
_NODES = (4, 6, 8)
_TREE = (("draft_tree", "dynamic"), ("gamma", 3), ("tree_tokens", max(_NODES)))
# What is run and not replayed: it chooses among drafters, which no single walk has.
RUN_AS_IT_IS = ("auto",)


@dataclass(frozen=True, slots=True)
class CandidateDrafter:
    """A drafter as it is walked with, and the setting that says how much it drafts, with its values to try."""

    configuration: Configuration
    length: str
    lengths: tuple[int, ...]

    @property
    def method(self) -> str:
        """Name of its method."""
        return self.configuration.method

    def values(self, common: Values) -> dict[str, Any]:
        """All settings of a walk."""
        return {**common, **dict(self.configuration.parameters)}

    def replays(self, walk: DraftWalk, price: CostModel, common: Values) -> Iterator[tuple[Configuration, RunMetrics]]:
        """Every candidate on a walk of this drafter, with predicted times: fixed lengths, then rules."""
        parameters = self.configuration.parameters
        kept = tuple(pair for pair in parameters if pair[0] != self.length)
        whole = FixedGamma(walk.ahead[0].most)
        if walk.trees and any(
            draft_ahead.chances is None and draft_ahead.drafts for draft_ahead in walk.ahead
        ):  # none can be cut
            yield self.configuration, replayed(walk, whole, price)
            return
        for length in self.lengths:
            nodes, rule = (length, whole) if walk.trees else (None, FixedGamma(length))
            made = replayed(walk, rule, price, nodes=nodes, bounded=True)
            yield Configuration(self.method, (*kept, (self.length, length))), made
        if METHODS[self.method].controller in FIXED and walk.asked == "each" and not walk.trees:
            for name in CONTROLLERS:
                if name not in FIXED:
                    chosen = (*parameters, (DRAFT_RULE.name, name))
                    yield Configuration(self.method, chosen), replayed(walk, _rule(name, common), price, bounded=True)


def _rule(name: str, common: Values) -> LengthRule:
    rule: LengthRule = CONTROLLERS[name].build(None, common)
    return rule


def bases(pair: Pair, common: Values) -> list[CandidateDrafter]:
    """The drafters that the pair has, the most promising first, for a sample may have to stop early."""
    heads = [kind for kind in dict.fromkeys((BEST_HEAD, *HEADS)) if pair.has(kind)]
    models = [*heads, *([MODEL] if pair.has(MODEL) else [])]
    candidates = [_hybrid(model) for model in models[:1]]
    candidates += [CandidateDrafter(Configuration("suffix"), "num_speculative_tokens", BUDGETS)]
    candidates += [CandidateDrafter(Configuration(kind), "gamma", LENGTHS) for kind in heads]
    candidates += [CandidateDrafter(Configuration("speculative"), "gamma", LENGTHS)] if pair.has(MODEL) else []
    candidates += [CandidateDrafter(Configuration(kind, _TREE), "tree_tokens", _NODES) for kind in heads[:1]]
    candidates += [
        CandidateDrafter(Configuration(name), "num_speculative_tokens", BUDGETS)
        for name in ("recycling", "prompt_lookup")
    ]
    candidates += [CandidateDrafter(Configuration("ngram"), "gamma", LENGTHS)]
    return [base for base in candidates if pair.lacks(METHODS[base.method], base.values(common)) is None]


def _hybrid(model: str) -> CandidateDrafter:
    """Suffix trees where they promise enough, else the model, whose drafts are the shorter ones."""
    parameters = (("hybrid_model", model), ("num_model_steps", 3))
    return CandidateDrafter(Configuration("suffix_or_model", parameters), "num_speculative_tokens", (10,))


def run_as_they_are(pair: Pair, common: Mapping[str, Any]) -> list[Configuration]:
    """Methods without a walk of their own, which are measured by running them."""
    known = [name for name in RUN_AS_IT_IS if name in METHODS]
    return [Configuration(name) for name in known if pair.lacks(METHODS[name], common) is None]
