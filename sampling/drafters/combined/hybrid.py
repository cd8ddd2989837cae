"""Hybrid drafters: drafts of a model or head extended by copies, or the better of the two proposals."""

from collections import abc
from typing import Any, Protocol, Self

import torch
from torch.nn import functional as F

from egag.length_rule import FixedGamma, LengthRule
from sampling.drafter import Drafter, stepwise
from sampling.forward.requests import StepGenerator
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent
from utils.events import Round


class Copier(Protocol):
    """The interface of a drafter without a model for use in a hybrid."""

    def begin(self, seq: Sequence) -> None: ...
    def observe(self, seq: Sequence, round: Round) -> None: ...
    def finish(self, seq: Sequence) -> None: ...
    def continuation(self, seq: Sequence, pending: abc.Sequence[int], limit: int) -> abc.Sequence[int]:
        """At most `limit` tokens after the text and the drafts `pending`; the copier must not learn the drafts."""


class ScoredDraft(Protocol):
    """Copied tokens, parents before children.

    probs: for each, its share among the observed continuations. score: the sum of probs. match_length: the number of
    tokens of the text that were matched.
    """

    @property
    def tokens(self) -> abc.Sequence[int]: ...
    @property
    def parents(self) -> tuple[int, ...]: ...
    @property
    def probs(self) -> tuple[float, ...]: ...
    @property
    def score(self) -> float: ...
    @property
    def match_length(self) -> int: ...


class ScoredCopier(Protocol):
    """A copier that gives probabilities of its drafts. tree: whether it drafts trees."""

    tree: bool

    def begin(self, seq: Sequence) -> None: ...
    def observe(self, seq: Sequence, round: Round) -> None: ...
    def finish(self, seq: Sequence) -> None: ...
    def adopt(self, earlier: Any, share: bool = False) -> None: ...
    def memory(self) -> str: ...
    def draft(self, seq: Sequence, budget: int, room: int) -> ScoredDraft:
        """At most `budget` tokens in total and `room` levels."""


class _Pair(Drafter):
    """A model drafter and a copier. Both follow the text, whichever of them drafts."""

    def __init__(self, model: Drafter, copier: Any) -> None:
        self.model, self.copier = model, copier
        self.needs_hidden = model.needs_hidden

    def begin(self, seq: Sequence) -> None:
        self.model.begin(seq)
        self.copier.begin(seq)

    def observe(self, seq: Sequence, round: Round) -> None:
        self.model.observe(seq, round)
        self.copier.observe(seq, round)

    def adopt(self, earlier: Drafter, share: bool = False) -> None:
        if isinstance(earlier, _Pair):
            self.copier.adopt(earlier.copier, share)

    def memory(self) -> str:
        return str(self.copier.memory())

    def finish(self, seq: Sequence) -> None:
        self.model.finish(seq)
        self.copier.finish(seq)


class ExtendedDrafter(_Pair):
    """The model drafts `num_model_steps` tokens, and a copy extends them (FastDeploy's `with_ngram`).

    The rule's gamma bounds the total. A copied draft is a point mass, also after drawn drafts.
    """

    def __init__(self, model: Drafter, copier: Copier, num_model_steps: int = 2) -> None:
        super().__init__(model, copier)
        self.steps = num_model_steps

    @classmethod
    def build(cls, pair: object, values: abc.Mapping[str, Any], *inside: Any) -> Self:
        model, copier = inside
        return cls(model, copier, values["num_model_steps"])

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        room = min(gamma.gamma, limit)
        if room < 1:
            return Proposal.empty(seq.device)
        drawn = yield from stepwise(self.model.propose(seq, FixedGamma(min(self.steps, room)), room))
        tokens = self.copier.continuation(seq, drawn.tokens.tolist(), room - len(drawn))
        tokens = tokens[: gamma.truncation.truncate((1.0,) * len(tokens))]
        gamma.truncation.assign_rows(range(len(drawn), len(drawn) + len(tokens)))
        if not tokens:
            return drawn
        copied = sent(tokens, seq.device)
        both = torch.cat([drawn.tokens, copied])
        if drawn.draft_probs is None:
            chances = (
                None if drawn.point_mass_check is None else F.pad(drawn.point_mass_check, (0, len(tokens)), value=1.0)
            )
            return Proposal(both, None, None, drawn.first_entropy, chances)
        certain = torch.zeros(len(tokens), drawn.draft_probs.shape[1], device=seq.device)
        certain.scatter_(1, copied.unsqueeze(1), 1.0)
        return Proposal(both, None, torch.cat([drawn.draft_probs, certain]), drawn.first_entropy)


class SuffixOrModelDrafter(_Pair):
    """The suffix trees' draft if its expected number of accepted tokens is high enough, otherwise the model's.

    The threshold is `suffix_score`. 0 means the number of tokens that the model would draft. This is the rule of
    arctic-inference's hybrid, and it suits a model with a high acceptance rate. The model drafts `num_model_steps`
    tokens, or fewer if there is no room. The gamma of the draft-length rule bounds both.
    """

    def __init__(
        self, model: Drafter, copier: ScoredCopier, num_model_steps: int = 2, suffix_score: float = 0.0
    ) -> None:
        super().__init__(model, copier)
        self.steps, self.enough = num_model_steps, suffix_score

    @classmethod
    def build(cls, pair: object, values: abc.Mapping[str, Any], *inside: Any) -> Self:
        model, suffix = inside
        return cls(model, suffix, values["num_model_steps"], values["suffix_score"])

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        room = min(gamma.gamma, limit)
        if room < 1:
            return Proposal.empty(seq.device)
        steps = min(self.steps, room)
        draft = self.copier.draft(seq, gamma.gamma, room)
        if draft.tokens and draft.score >= (self.enough or steps):
            parents = draft.parents if self.copier.tree else None
            kept = gamma.truncation.truncate(draft.probs, draft.match_length, parents)
            tokens = sent(draft.tokens[:kept], seq.device)
            return Proposal(tokens, parents[:kept] if parents else None)
        return (yield from stepwise(self.model.propose(seq, FixedGamma(steps), room)))
