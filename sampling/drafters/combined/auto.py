"""Adaptive choice of the drafter: each round uses the drafter with the most expected tokens per second."""

from collections import abc
from dataclasses import dataclass, replace
from typing import Any, Self

from egag.choosing.drafter_chooser import DrafterChooser
from egag.choosing.goodput import Goodput
from egag.cost_model import ASSUMED_COSTS, CostModel
from egag.expected_round import ExpectedRound, TruncatedProposal
from egag.length_rule import LengthRule
from egag.survival import SurvivalGamma
from sampling.drafter import Drafter, stepwise
from sampling.drafters.combined.hybrid import ScoredCopier
from sampling.drafters.combined.joined import joined
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.drafters.grammar import forced
from sampling.forward.requests import StepGenerator
from sampling.methods.tables import CHAIN, MODELS, TREE
from sampling.pair.drafting_pair import DraftingPair
from sampling.pair.profile import NOTHING, LatencyProfile
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent
from utils.errors import UserError
from utils.events import FORCED, Round

COPIES = "suffix"
"""The name of the copier: suffix trees, which also find every n-gram that prompt lookup finds."""

# If the forward of a tree over that of a chain is above this ratio nothing is joined, and no head drafts trees untimed.
_DEAR = 1.06
# The costs are looked up again after this many tokens of text.
_PRICED = 64


@dataclass(frozen=True, slots=True)
class CopyDraft:
    """The proposal of the suffix trees, a point mass, with its rule's evaluation."""

    tokens: abc.Sequence[int]
    truncated: TruncatedProposal


class AutoDrafter(Drafter):
    """Uses the drafter with the most expected tokens per second in each round.

    The copier scores its own proposal for this round, which costs nothing. A model's estimate rests on its recent
    rounds. Drafter and draft length maximise the same ratio (`DrafterChooser`, docs/algorithms/auto.md). Point masses
    of a model are joined with the copy as a tree. The choice depends on the text, on verdicts and on times. No drawn
    token is left out, and the drafter is chosen before any token is drawn. What a grammar forces is drafted first.
    With a profile the texts of a batch draft chains of one model, or none of them drafts (`Goodput`).
    """

    def __init__(
        self,
        suffix: ScoredCopier,
        models: abc.Mapping[str, ForwardDrafter],
        trees: bool = True,
        profile: LatencyProfile | None = None,
        grammar_first: bool = True,
    ) -> None:
        self.suffix, self.models, self.trees, self.profile = suffix, models, trees, profile
        self.grammar_first = grammar_first
        self._best: dict[int, tuple[str]] = {}
        self.needs_hidden = tuple(sorted({layer for model in models.values() for layer in model.needs_hidden}))

    @classmethod
    def build(cls, pair: DraftingPair, values: abc.Mapping[str, Any], *inside: Any) -> Self:
        (suffix,) = inside
        kinds = [kind for kind in MODELS if pair.has(kind)]
        profile = pair.profile
        trees = pair.target.model.trees and (profile is None or profile.tree <= _DEAR)
        wanted = kinds if profile is None else profile.worth_trying(kinds)
        models: dict[str, ForwardDrafter] = {}
        for kind in wanted:
            shape = TREE if pair.target.model.trees and _grows_trees(profile, kind, trees) else CHAIN
            models[kind] = MODELS[kind].build(pair, {**values, **shape})
        for model in models.values():
            model.chains_in_batches = profile is not None
        return cls(suffix, models, trees, profile, values["grammar_first"])

    def begin(self, seq: Sequence) -> None:
        for drafter in self._all():
            drafter.begin(seq)

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        if not isinstance(gamma, DrafterChooser):
            raise UserError(f"{type(gamma).__name__} given as the rule of drafters in turns; expected a DrafterChooser")
        self._use_costs(seq, gamma)
        room = min(limit, gamma.gamma) if gamma.may_draft(self._goodput(seq), seq.live) else 0
        if room < 1:
            return replace(Proposal.empty(seq.device), source=NOTHING)
        if self.grammar_first and (tokens := forced(seq, room)):
            return Proposal(sent(tokens, seq.device), source=FORCED)
        nothing, copy = gamma.without_drafts(), self._copy(seq, gamma.rule_for(COPIES), room)
        expected = {NOTHING: nothing} if copy is None else {NOTHING: nothing, COPIES: copy.truncated.expected}
        for name in self._candidates(seq):
            expected[name] = gamma.rule_for(name).expected()
            if copy is not None and self._joins(seq, name):
                expected[name] = _beside_copy(expected[name], copy.truncated, nothing)
        chosen = gamma.choose(expected)
        if chosen in self.models:
            return (yield from self._drafted(seq, gamma, chosen, copy, room))
        copied = [*copy.tokens[: copy.truncated.count]] if copy and chosen == COPIES else []
        return Proposal(sent(copied, seq.device), source=chosen)

    def observe(self, seq: Sequence, round: Round) -> None:
        for drafter in self._all():
            drafter.observe(seq, round)

    def finish(self, seq: Sequence) -> None:
        for drafter in self._all():
            drafter.finish(seq)

    def adopt(self, earlier: Drafter, share: bool = False) -> None:
        if isinstance(earlier, AutoDrafter):
            self.suffix.adopt(earlier.suffix, share)

    def memory(self) -> str:
        return self.suffix.memory()

    def _use_costs(self, seq: Sequence, chooser: DrafterChooser) -> None:
        """Update the rules' costs for the present length of the text, from time to time."""
        context = len(seq.tokens) // _PRICED * _PRICED
        if self.profile is None or seq.drafter_state.get(self) == (context, seq.live):
            return
        seq.drafter_state[self] = context, seq.live
        plain = self.profile.cost_model(NOTHING, context)
        assert plain is not None
        chooser.use_cost_model(plain.among(seq.live))
        for name in (COPIES, *self.models):
            branched = name in self.models and self.models[name].shape_for(seq) is not None
            cost_model = self.profile.cost_model(name, context, branched=branched) or _guessed(plain)
            chooser.rule_for(name).use_cost_model(cost_model.among(seq.live))

    def _shared(self, seq: Sequence) -> LatencyProfile | None:
        """The profile of rounds that texts share; None for a text alone. Without times a text is what it is alone."""
        return self.profile if seq.live > 1 else None

    def _candidates(self, seq: Sequence) -> abc.Collection[str]:
        """The models that may draft: in a batch the best for so many texts, so that its forwards are shared by all."""
        profile = self._shared(seq)
        if not self.models or profile is None:
            return self.models
        if seq.live not in self._best:
            rates = {name: profile.rate(name, seq.live) or 0.0 for name in self.models}
            self._best[seq.live] = (max(rates, key=rates.__getitem__),)
        return self._best[seq.live]

    def _goodput(self, seq: Sequence) -> Goodput | None:
        """That of the texts of its batch; None for a text alone, and where nothing is known of times."""
        if self._shared(seq) is None:
            return None
        if self not in seq.shared_state:
            seq.shared_state[self] = Goodput()
        goodput: Goodput = seq.shared_state[self]
        return goodput

    def _joins(self, seq: Sequence, name: str) -> bool:
        """Whether the drafts of this model can be joined with a copy: as point masses, on a target that runs trees."""
        point_masses = seq.processor.greedy or self.models[name].shape_for(seq) is not None
        return self.trees and point_masses and self._shared(seq) is None

    def _all(self) -> abc.Iterator[Drafter | ScoredCopier]:
        yield self.suffix
        yield from self.models.values()

    def _copy(self, seq: Sequence, rule: SurvivalGamma, room: int) -> CopyDraft | None:
        """The proposal of the suffix trees with its evaluation.

        If no draft is profitable, one draft is kept as a trial.
        """
        draft = self.suffix.draft(seq, room, room)
        if not draft.tokens:
            return None
        truncated = rule.evaluate(draft.probs, draft.match_length)
        if not truncated.count:
            rule.assign_rows((0,))
            truncated = replace(truncated, count=1, expected=rule.single(truncated.survival[0]))
        return CopyDraft(draft.tokens, truncated)

    def _drafted(
        self, seq: Sequence, chooser: DrafterChooser, name: str, copy: CopyDraft | None, room: int
    ) -> StepGenerator[Proposal]:
        """The model's drafts, joined with a copy if they are point masses."""
        rule = chooser.rule_for(name)
        round_of_model = yield from stepwise(self.models[name].propose(seq, chooser.handed(name), room))
        if copy is None or round_of_model.draft_probs is not None or not self.trees or self._shared(seq) is not None:
            return replace(round_of_model, source=name)
        both, rows = joined(round_of_model, rule.survival[1:], copy.tokens, copy.truncated.survival, rule.seconds)
        if not rows:
            return replace(round_of_model, source=name)
        chooser.rule_for(COPIES).assign_rows(rows)
        return replace(both, source=f"{name}+{COPIES}")


def _guessed(plain: CostModel) -> CostModel:
    """The cost of a drafter without a measurement, on a target with one."""
    forward_s = plain.verify_s(0)
    return replace(plain, first_s=ASSUMED_COSTS.first_s * forward_s, step_s=ASSUMED_COSTS.step_s * forward_s)


def _beside_copy(model: ExpectedRound, copy: TruncatedProposal, nothing: ExpectedRound) -> ExpectedRound:
    """The expected round of a model's drafts beside a copy, or alone where that is better.

    Beside it they help if the copy is wrong from its first token on.
    """
    tokens = copy.expected.tokens + (1.0 - copy.survival[0]) * (model.tokens - 1.0)
    both = ExpectedRound(tokens, copy.expected.seconds + model.seconds - nothing.seconds)
    return max(model, both, key=lambda expected: expected.rate)


def _grows_trees(profile: LatencyProfile | None, head: str, untimed: bool) -> bool:
    """Whether a head's trees bring more than its chains. From a tree the rule keeps the profitable nodes.

    untimed: the answer where that was not measured.
    """
    times = None if profile is None else profile.drafters.get(head)
    return untimed if times is None or times.tree is None else times.tree.gain > 1.0
