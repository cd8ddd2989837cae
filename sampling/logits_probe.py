"""The raw logits of target and drafter, recorded outside the loop. A run without a probe has no extra cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from egag.choosing.drafter_chooser import DrafterChooser
from egag.delegating import DelegatingRule
from egag.draft_distribution import DraftDistribution, LogitsDistribution, Token
from egag.length_rule import LengthRule
from egag.tree_growth import TreeGrowth
from egag.truncation import Truncation
from sampling.processors.with_text import WithText, rows_of
from utils.events import Round
from utils.logits_processor import LogitsProcessor


@dataclass(frozen=True, slots=True)
class RawProbabilities:
    """Probabilities at temperature 1: of each draft under the target (p) and the drafter (q), and p of the next token.

    q is None for drafts without a recorded distribution: copies, trees, and the drafts of a hybrid.
    """

    p: tuple[float, ...]
    q: tuple[float | None, ...]
    next_p: float | None


@dataclass(slots=True)
class ObservedRound:
    """The record of a round.

    target: `[n + 1, V]`, the target's logits. drafter: the drafter's logits `[V]` per draft. steps: how many drafts the
    rule was asked about one by one; -1 if it was not asked. chances, match: the arguments of the call of `truncate`;
    None without a call.
    """

    target: Tensor | None = None
    drafter: list[Tensor | None] = field(default_factory=list)
    steps: int = -1
    chances: tuple[float, ...] | None = None
    match: int = 0


class LogitsProbe:
    """Watches one generation: call `over` with its processor and rule, then `of` or `take` after each round."""

    def __init__(self) -> None:
        self.seen = ObservedRound()

    def over(self, processor: LogitsProcessor, rule: LengthRule) -> tuple[LogitsProcessor, LengthRule]:
        """The same processor and rule with a record of their calls."""
        if isinstance(rule, DrafterChooser):
            rule.watch = partial(_ProbedRule, probe=self)
        else:
            rule = _ProbedRule(rule, self)
        rows = _Processor(rows_of(processor), self)
        return WithText(rows, processor.changes) if isinstance(processor, WithText) else rows, rule

    def take(self) -> ObservedRound:
        """The record of the last round."""
        seen, self.seen = self.seen, ObservedRound()
        return seen

    def of(self, round: Round) -> RawProbabilities | None:
        """The probabilities of the last round; None if the record does not cover it."""
        seen = self.take()
        target, drafter = seen.target, seen.drafter
        if target is None or len(target) != len(round.drafts) + 1:
            return None
        chain = round.parents is None
        parents = range(-1, len(round.drafts) - 1) if round.parents is None else round.parents
        p = [_softmax(target[parent + 1], token) for parent, token in zip(parents, round.drafts, strict=True)]
        q = [
            _softmax(drafter[row], token) if chain and row < len(drafter) else None
            for row, token in enumerate(round.drafts)
        ]
        last = target[round.path[-1] + 1 if round.path else 0]
        return RawProbabilities(
            tuple(value for value in p if value is not None),
            tuple(q),
            None if round.next_token is None else _softmax(last, round.next_token),
        )


def _softmax(logits: Tensor | None, token: int) -> float | None:
    return None if logits is None else torch.softmax(logits.float(), dim=-1)[token].item()


class _Processor(LogitsProcessor):
    """Records the logits of its last call. At the end of a round these are the logits that judged the drafts."""

    def __init__(self, processor: LogitsProcessor, probe: LogitsProbe) -> None:
        self.processor, self.probe, self.greedy = processor, probe, processor.greedy

    def __call__(self, logits: Tensor) -> Tensor:
        self.probe.seen.target = logits
        return self.processor(logits)


class _ProbedRule(DelegatingRule, Truncation, TreeGrowth):
    """Records the distribution of each draft of the round; every rule receives it."""

    def __init__(self, rule: LengthRule, probe: LogitsProbe) -> None:
        self._watched, self.probe = rule, probe

    @property
    def rule(self) -> LengthRule:
        return self._watched

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        self._note(drafted, distribution)
        return self.rule.before(drafted, distribution)

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        self.probe.seen.steps = max(self.probe.seen.steps, drafted)
        return self.rule.after(drafted, distribution, token)

    @property
    def truncation(self) -> Truncation:
        return self

    @property
    def tree_growth(self) -> TreeGrowth:
        return self

    def start_tree(self, distribution: DraftDistribution | None, steps: int = 1) -> bool:
        self._note(0, distribution)
        return self.rule.tree_growth.start_tree(distribution, steps)

    def acceptance(self, chance: float, depth: int) -> float:
        return self.rule.tree_growth.acceptance(chance, depth)

    def expand_layer(self, level: int, chances: Sequence[float], layer: Sequence[float]) -> bool:
        return self.rule.tree_growth.expand_layer(level, chances, layer)

    def truncate(self, chances: Sequence[float], match: int = 0, parents: Sequence[int] | None = None) -> int:
        self.probe.seen.chances, self.probe.seen.match = tuple(chances), match
        return self.rule.truncation.truncate(chances, match, parents)

    def assign_rows(self, rows: Sequence[int]) -> None:
        self.rule.truncation.assign_rows(rows)

    def _note(self, drafted: int, distribution: DraftDistribution | None) -> None:
        """Record the distribution of the next draft, after `drafted` drafts."""
        logits = distribution.logits.clone() if isinstance(distribution, LogitsDistribution) else None
        self.probe.seen.drafter[drafted:] = [logits]
        self.probe.seen.steps = max(self.probe.seen.steps, drafted)
