"""Every drafter that a pair has: each round the one whose drafts promise the most tokens over seconds drafts."""

from collections import abc
from dataclasses import dataclass, replace
from typing import Any, Self

from egag.cost_model import ASSUMED_COSTS, CostModel
from egag.drafter_chooser import DrafterChooser
from egag.expected_round import ExpectedRound, TruncatedProposal
from egag.length_rule import LengthRule
from egag.survival import SurvivalGamma
from sampling.drafter import Drafter, stepwise
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.drafters.hybrid import ScoredCopier
from sampling.drafters.joined import joined
from sampling.forward.requests import StepGenerator
from sampling.methods.tables import MODELS
from sampling.pair.drafting_pair import DraftingPair
from sampling.pair.profile import NOTHING, LatencyProfile
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent
from utils.errors import UserError
from utils.events import Round

COPIES = "suffix"
"""The name of what copies: suffix trees, which find whatever occurred before, prompt lookup's n-grams as well."""

# What heads draft: of a tree's nodes the rule keeps those that pay. A chain where trees are dear, or do not run.
_SHAPES: dict[bool, dict[str, Any]] = {
    True: {"draft_tree": "dynamic", "tree_width": 4, "tree_tokens": 24},
    False: {"draft_tree": "chain", "tree_width": 1, "tree_tokens": 1},
}

# Drafters this near to the best, by what was measured, may be better on another text.
_NEAR = 0.9
# A tree's forward over a chain's, above which drafts are chains.
_DEAR = 1.06
# Tokens a round that drafts may bring more than on the texts that they were measured on.
_HOPE = 0.1
# Drafts of a round that are looked at.
_DRAFTS = 16
# Tokens of text after which prices are looked up anew.
_PRICED = 64


@dataclass(frozen=True, slots=True)
class CopyDraft:
    """What the suffix trees propose, of which nothing is drawn, and what their rule makes of it."""

    tokens: abc.Sequence[int]
    truncated: TruncatedProposal


class AutoDrafter(Drafter):
    """The copier says what its proposal of this round is worth, which is free; models say what theirs brought lately.

    The best by tokens over seconds drafts, its length by the same measure (`DrafterChooser`, docs/algorithms/auto.md).
    What a model drafts as point masses is joined with the copy, as a tree. The choice rests on the text, on verdicts
    and on times: no token that was drawn is ever left out, and none is looked at before it is settled who drafts.
    """

    def __init__(
        self,
        suffix: ScoredCopier,
        models: abc.Mapping[str, ForwardDrafter],
        trees: bool = True,
        profile: LatencyProfile | None = None,
    ) -> None:
        self.suffix, self.models, self.trees, self.profile = suffix, models, trees, profile
        self.needs_hidden = tuple(sorted({layer for model in models.values() for layer in model.needs_hidden}))

    @classmethod
    def build(cls, pair: DraftingPair, values: abc.Mapping[str, Any], *inside: Any) -> Self:
        (suffix,) = inside
        kinds = [kind for kind in MODELS if pair.has(kind)]
        profile = pair.profile
        trees = pair.target.model.trees and (profile is None or profile.tree <= _DEAR)
        wanted = kinds if profile is None else worth_trying(profile, kinds)
        shaped = {**values, **_SHAPES[trees]}
        return cls(suffix, {kind: MODELS[kind].build(pair, shaped) for kind in wanted}, trees, profile)

    def begin(self, seq: Sequence) -> None:
        for drafter in self._all():
            drafter.begin(seq)

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        if not isinstance(gamma, DrafterChooser):
            raise UserError(f"{type(gamma).__name__} given as the rule of drafters in turns; expected a DrafterChooser")
        self._use_costs(seq, gamma)
        room = min(limit, gamma.gamma)
        if room < 1:
            return replace(Proposal.empty(seq.device), source=NOTHING)
        nothing, copy = gamma.without_drafts(), self._copy(seq, gamma.rule_for(COPIES), room)
        expected = {NOTHING: nothing} if copy is None else {NOTHING: nothing, COPIES: copy.truncated.expected}
        for name in self.models:
            expected[name] = _with_copy(gamma.rule_for(name).expected(), copy, nothing)
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
        """Tell the rules what rounds cost behind a text of this length, now and then as it grows."""
        context = len(seq.tokens) // _PRICED * _PRICED
        if self.profile is None or seq.drafter_state.get(self) == (context, seq.live):
            return
        seq.drafter_state[self] = context, seq.live
        plain = self.profile.cost_model(NOTHING, context)
        assert plain is not None
        chooser.use_cost_model(plain.among(seq.live))
        for name in (COPIES, *self.models):
            branched = name in self.models and self.models[name].shape is not None
            cost_model = self.profile.cost_model(name, context, branched=branched) or _guessed(plain)
            chooser.rule_for(name).use_cost_model(cost_model.among(seq.live))

    def _all(self) -> abc.Iterator[Drafter | ScoredCopier]:
        yield self.suffix
        yield from self.models.values()

    def _copy(self, seq: Sequence, rule: SurvivalGamma, room: int) -> CopyDraft | None:
        """What the suffix trees propose, weighed; one draft of it where none would pay, so that it can be tried."""
        draft = self.suffix.draft(seq, room, room)
        if not draft.tokens:
            return None
        truncated = rule.evaluate(draft.probs, draft.match_length)
        if not truncated.count:
            rule.assign_rows((0,))
            expected = ExpectedRound(1.0 + truncated.survival[0], rule.seconds(1))
            truncated = replace(truncated, count=1, expected=expected)
        return CopyDraft(draft.tokens, truncated)

    def _drafted(
        self, seq: Sequence, chooser: DrafterChooser, name: str, copy: CopyDraft | None, room: int
    ) -> StepGenerator[Proposal]:
        """What the model drafts, joined with a copy where nothing was drawn."""
        rule = chooser.rule_for(name)
        round_of_model = yield from stepwise(self.models[name].propose(seq, chooser.handed(name), room))
        if copy is None or round_of_model.draft_probs is not None or not self.trees:
            return replace(round_of_model, source=name)
        both, rows = joined(round_of_model, rule.survival[1:], copy.tokens, copy.truncated.survival, rule.seconds)
        if not rows:
            return replace(round_of_model, source=name)
        chooser.rule_for(COPIES).assign_rows(rows)
        return replace(both, source=f"{name}+{COPIES}")


def _guessed(plain: CostModel) -> CostModel:
    """The price of a drafter that was not timed, on a target that was."""
    forward_s = plain.verify_s(0)
    return replace(plain, first_s=ASSUMED_COSTS.first_s * forward_s, step_s=ASSUMED_COSTS.step_s * forward_s)


def _with_copy(expected: ExpectedRound, copy: CopyDraft | None, nothing: ExpectedRound) -> ExpectedRound:
    """A model's drafts beside a copy: they are of use where the copy is wrong from its first token on."""
    if copy is None:
        return expected
    tokens = copy.truncated.expected.tokens + (1.0 - copy.truncated.survival[0]) * (expected.tokens - 1.0)
    return ExpectedRound(tokens, copy.truncated.expected.seconds + expected.seconds - nothing.seconds)


def worth_trying(profile: LatencyProfile, drafters: abc.Sequence[str]) -> list[str]:
    """Those that may be the best of these: nearly so by what was measured, and hardly slower than no drafts at all.

    What was not measured may be.
    """
    rates = {name: rate for name in drafters if (rate := _rate(profile, name)) is not None}
    best = max(rates.values(), default=0.0)
    return [name for name in drafters if name not in rates or 0.0 < rates[name] >= _NEAR * best]


def _rate(profile: LatencyProfile, drafter: str) -> float | None:
    """Tokens a second at the best length; 0 where no length could beat plain decoding, None where it was not timed."""
    cost_model, plain = profile.cost_model(drafter), profile.cost_model(NOTHING)
    if cost_model is None or plain is None:
        return None
    times = profile.drafters[drafter]
    tokens, seconds = max(
        ((times.tokens(count), cost_model.seconds(count)) for count in range(1, _DRAFTS + 1)),
        key=lambda item: item[0] / item[1],
    )
    return tokens / seconds if (tokens + _HOPE) / seconds > 1.0 / plain.seconds(0) else 0.0
