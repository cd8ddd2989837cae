"""Every drafter that a pair has: each round the one whose drafts promise the most tokens over seconds drafts."""

from collections import abc
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from egag.controller import GammaController
from egag.gain import Gain, Weighed
from ngram_assisted.prompt_lookup import PromptLookupDrafter
from ngram_assisted.suffix import SuffixDrafter
from sampling.drafter import Drafter
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.drafters.joined import joined
from sampling.events import Round
from sampling.methods import MODELS
from sampling.profile import Profile
from sampling.proposal import Proposal
from sampling.sequence import Sequence

NONE = "none"
# What heads draft: of a tree's nodes the rule keeps those that pay. A chain where the target runs chains only.
_SHAPES: dict[bool, dict[str, Any]] = {
    True: {"draft_tree": "dynamic", "tree_width": 4, "tree_tokens": 24},
    False: {"draft_tree": "chain", "tree_width": 1, "tree_tokens": 1},
}


@dataclass(frozen=True, slots=True)
class Copy:
    """What a copier proposes, of which nothing is drawn, and what its rule makes of it."""

    name: str
    tokens: abc.Sequence[int]
    weighed: Weighed


class AutoDrafter(Drafter):
    """Copiers say what their proposal of this round is worth, which is free; models say what theirs brought lately.

    The best by tokens over seconds drafts, its length by the same measure (`SurvivalGamma`, docs/algorithms/auto.md).
    What a model drafts as point masses is joined with the copy, as a tree. The choice rests on the text, on verdicts
    and on times: no token that was drawn is ever left out, and none is looked at before it is settled who drafts.
    """

    def __init__(
        self,
        suffix: SuffixDrafter,
        lookup: PromptLookupDrafter,
        models: abc.Mapping[str, ForwardDrafter],
        trees: bool = True,
        profile: Profile | None = None,
    ) -> None:
        self.suffix, self.lookup, self.models = suffix, lookup, models
        self.trees, self.profile = trees, profile
        self.needs_hidden = tuple(sorted({layer for one in models.values() for layer in one.needs_hidden}))

    @classmethod
    def build(cls, pair: Any, values: abc.Mapping[str, Any], *inside: Any) -> Self:
        suffix, lookup = inside
        kinds = [kind for kind in MODELS if pair.has(kind)]
        trees, profile = pair.target.model.trees, pair.profile
        wanted = kinds if profile is None else profile.worth_trying(kinds)
        shaped = {**values, **_SHAPES[trees]}
        return cls(suffix, lookup, {kind: MODELS[kind].build(pair, shaped) for kind in wanted}, trees, profile)

    def begin(self, seq: Sequence) -> None:
        if self.profile is not None:
            for name in (NONE, "suffix", "prompt_lookup", *self.models):
                if price := self.profile.price(name, len(seq.tokens)):
                    (seq.control if name == NONE else seq.control.of(name)).priced(price)
        for drafter in self._all():
            drafter.begin(seq)

    def propose(self, seq: Sequence, gamma: GammaController, limit: int) -> Proposal:
        room = min(limit, gamma.gamma)
        if room < 1:
            return replace(Proposal.empty(seq.device), source=NONE)
        nothing = gamma.weigh(()).gain
        copies = {copy.name: copy for copy in self._copies(seq, gamma, room)}
        best = max(copies.values(), key=lambda copy: copy.weighed.gain.rate, default=None)
        promises = {NONE: nothing, **{name: copy.weighed.gain for name, copy in copies.items()}}
        for name in self.models:
            promises[name] = _with_copy(gamma.of(name).promise(), best, nothing)
        chosen = gamma.choose(promises)
        if chosen in self.models:
            return self._drafted(seq, gamma, chosen, best, room)
        copied = [*copies[chosen].tokens[: copies[chosen].weighed.count]] if chosen in copies else []
        return Proposal(torch.tensor(copied, dtype=torch.long, device=seq.device), source=chosen)

    def observe(self, seq: Sequence, round: Round) -> None:
        for drafter in self._all():
            drafter.observe(seq, round)

    def finish(self, seq: Sequence) -> None:
        for drafter in self._all():
            drafter.finish(seq)

    def adopt(self, earlier: Drafter) -> None:
        if isinstance(earlier, AutoDrafter):
            self.suffix.adopt(earlier.suffix)

    def memory(self) -> str:
        return self.suffix.memory()

    def _all(self) -> tuple[Drafter, ...]:
        return self.suffix, self.lookup, *self.models.values()

    def _copies(self, seq: Sequence, gamma: GammaController, room: int) -> abc.Iterator[Copy]:
        """What the copiers find, weighed; one draft of it where none would pay, so that it can be tried."""
        draft = self.suffix.draft(seq, room, room)
        tokens, match = self.lookup.found(seq, room)
        found = (
            ("suffix", draft.tokens, draft.probs, draft.match_length),
            ("prompt_lookup", tokens, (1.0,) * len(tokens), match),
        )
        for name, copied, chances, length in found:
            if copied:
                rule = gamma.of(name)
                weighed = rule.weigh(chances, length)
                if not weighed.count:
                    rule.placed((0,))
                    weighed = replace(weighed, count=1, gain=Gain(1.0 + weighed.survival[0], rule.seconds(1)))
                yield Copy(name, copied, weighed)

    def _drafted(self, seq: Sequence, gamma: GammaController, name: str, copy: Copy | None, room: int) -> Proposal:
        """What the model drafts, joined with a copy where nothing was drawn."""
        rule = gamma.of(name)
        own = self.models[name].propose(seq, rule, room)
        if copy is None or own.probs is not None or not self.trees:
            return replace(own, source=name)
        both, rows = joined(own, rule.survival[1:], copy.tokens, copy.weighed.survival, rule.seconds)
        if not rows:
            return replace(own, source=name)
        gamma.of(copy.name).placed(rows)
        return replace(both, source=f"{name}+{copy.name}")


def _with_copy(own: Gain, copy: Copy | None, nothing: Gain) -> Gain:
    """A model's drafts beside a copy: they are of use where the copy is wrong from its first token on."""
    if copy is None:
        return own
    tokens = copy.weighed.gain.tokens + (1.0 - copy.weighed.survival[0]) * (own.tokens - 1.0)
    return Gain(tokens, copy.weighed.gain.seconds + own.seconds - nothing.seconds)
