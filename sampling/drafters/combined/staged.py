"""Two-stage drafting: the drafter model itself decodes speculatively, with drafts from a head or from copies."""

from collections import abc
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from egag.draft_distribution import LogitsDistribution
from egag.length_rule import FixedGamma, LengthRule
from sampling import loop
from sampling.drafter import Drafter, stepwise
from sampling.drafters.combined.hybrid import Copier
from sampling.drafters.model import ModelDrafter
from sampling.forward.causal_model import Output
from sampling.forward.requests import StepGenerator
from sampling.forward.runner import request_forward
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.verify.rejection import RejectionVerifier
from utils.device.sent import sent
from utils.errors import NoDistribution, UserError
from utils.events import Round


class StagedHead(Protocol):
    """The interface of a head that drafts for the drafter model."""

    needs_hidden: tuple[int, ...]
    shape: Any

    def begin(self, seq: Sequence) -> None: ...
    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]: ...
    def observe(self, seq: Sequence, round: Round) -> None: ...
    def mark(self, seq: Sequence) -> abc.Callable[[], None]:
        """A function that undoes everything learnt of the sequence after this call."""


@dataclass(slots=True)
class _Stage:
    """The drafter model's own text: the target's text, followed by this round's drafts for the target.

    settled: the drafter's cache rows that belong to tokens of the target. rounds: the inner rounds since then, with
    their states. forget: resets the head's state to that point.
    """

    text: Sequence
    settled: int
    forget: abc.Callable[[], None]
    rounds: list[Round] = field(default_factory=list)
    states: list[dict[int, Tensor]] = field(default_factory=list)


class StagedDrafter(Drafter):
    """Drafts with speculative decoding of the drafter model (arXiv 2308.04623, and ML-SpecQD, 2503.13565).

    In an inner round a head or copier drafts at most `staged_gamma` tokens. The drafter model verifies them in one
    forward by rejection sampling. Each token is therefore drawn from the drafter's own processed distribution q,
    whatever its drafts were. Proposals have the distribution of those of `ModelDrafter` with fewer forwards, and rules
    are asked in the same way. Tokens of an inner round beyond the last draft are dropped, which does not depend on
    their values.
    """

    keeps_rows = True

    def __init__(self, inner: Drafter, model: ModelDrafter, staged_gamma: int = 2) -> None:
        self.inner, self.runner, self.steps = inner, model.runner, staged_gamma
        self.head: StagedHead | None = None if hasattr(inner, "continuation") else inner  # type: ignore[assignment]
        self.states = inner.needs_hidden
        self._judge = RejectionVerifier()

    @classmethod
    def build(cls, pair: object, values: abc.Mapping[str, Any], *inside: Any) -> Self:
        inner, model = inside
        if getattr(inner, "shape", None) is not None and not model.runner.model.trees:
            raise UserError(
                "a tree is drafted for the drafter model, which runs chains only: its attention counts rows of the "
                "cache and not positions; expected draft_tree chain"
            )
        return cls(inner, model, values["staged_gamma"])

    def begin(self, seq: Sequence) -> None:
        slot = self.runner.another()
        slot.read(seq.encoder_ids)
        rule, draws, far = FixedGamma(self.steps), seq.rng.within(), slot.window
        text = Sequence([*seq.tokens], slot, seq.processor, draws, rule, far, encoder_ids=seq.encoder_ids)
        text.hidden = seq.read_drafting(self, slot, self.states)
        self.inner.begin(seq if self.head is None else text)
        seq.drafter_state[self] = self._settled(text)

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        limit = min(limit, self.runner.window - len(seq.tokens))
        if limit <= 0 or gamma.gamma == 0:
            return Proposal.empty(seq.device)
        stage: _Stage = seq.drafter_state[self]
        stage.text.rng = seq.rng.within()
        tokens: list[Tensor] = []
        chances: list[Tensor] = []
        first: Tensor | None = None
        going = True
        while going:
            room = min(gamma.gamma, limit) - (len(stage.text.tokens) - len(seq.tokens))
            for logits, q, token in (yield from self._round(seq, stage, room - 1)):
                distribution = LogitsDistribution(logits)
                first = distribution.nats if first is None else first
                if going := gamma.before(len(tokens), distribution):
                    tokens.append(token)
                    chances.append(q)
                    going = len(tokens) < limit and gamma.after(len(tokens), distribution, token)
                if not going:
                    break
        rounds = tuple(stage.rounds)
        if not tokens:
            return Proposal(torch.empty(0, dtype=torch.long, device=seq.device), inner=rounds)
        drawn, q = torch.stack(tokens).to(seq.device), torch.stack(chances).to(seq.device)
        if seq.processor.greedy:
            certain = q.gather(1, drawn.unsqueeze(1)).squeeze(1)
            return Proposal(drawn, None, None, first, certain, inner=rounds)
        return Proposal(drawn, None, q, first, inner=rounds)

    def observe(self, seq: Sequence, round: Round) -> None:
        """Roll back to the accepted drafts: rows of rejected drafts are dropped, states of accepted ones stay."""
        stage: _Stage = seq.drafter_state[self]
        text, kept = stage.text, len(seq.tokens) - len(round.emitted) + round.accepted
        text.runner.crop(min(text.runner.length, kept))
        text.tokens[kept:] = seq.tokens[kept:]
        if self.head is None:
            self.inner.observe(seq, round)
        else:
            stage.forget()
            known = text.runner.length - stage.settled
            text.hidden = {
                layer: torch.cat([states[layer] for states in stage.states])[:known]
                for layer in (self.states if stage.states else ())
            }
            self.head.observe(text, round)
        seq.drafter_state[self] = self._settled(text)

    def finish(self, seq: Sequence) -> None:
        if self.head is None:
            self.inner.finish(seq)

    def adopt(self, earlier: Drafter, share: bool = False) -> None:
        if isinstance(earlier, StagedDrafter):
            self.inner.adopt(earlier.inner, share)

    def memory(self) -> str:
        return self.inner.memory()

    def _settled(self, text: Sequence) -> _Stage:
        return _Stage(text, text.runner.length, (lambda: None) if self.head is None else self.head.mark(text))

    def _round(
        self, seq: Sequence, stage: _Stage, room: int
    ) -> StepGenerator[abc.Iterable[tuple[Tensor, Tensor, Tensor]]]:
        """An inner round with at most `room` drafts: raw logits `[V]`, q `[V]` and token (0-d) per emitted token."""
        text, slot = stage.text, stage.text.runner
        unread = text.tokens[slot.length :]
        lag = len(unread) - 1
        text.rng.at(text.position)
        proposal = yield from self._drafts(seq, text, room if lag < 2 else 0)
        fed = torch.cat([sent(unread, slot.device), proposal.tokens])
        output = yield from request_forward(slot, fed, _behind(proposal, lag), self.states, len(proposal) + 1)
        p = text.processor(output.logits)
        try:
            verdict = self._judge.verify(proposal, p, text.rng)
        except UserError as error:
            raise NoDistribution("drafter") from error
        round = loop.commit(text, proposal, Output(output.logits), verdict)
        rows = sent([0, *(row + 1 for row in round.path)], slot.device)
        known = torch.cat([torch.arange(lag, device=slot.device), rows + lag])
        text.hidden = {layer: states.index_select(0, known) for layer, states in output.hidden.items()}
        stage.rounds.append(round)
        stage.states.append(text.hidden)
        if self.head is not None:
            self.head.observe(text, round)
        return zip(output.logits[rows], p[rows], sent(round.emitted, slot.device), strict=True)

    def _drafts(self, seq: Sequence, text: Sequence, room: int) -> StepGenerator[Proposal]:
        """The drafts for the drafter model: from a head with its states, or from a copier with the target's text."""
        room = min(self.steps, room)
        if room < 1:
            return Proposal.empty(text.device)
        if self.head is not None:
            return (yield from stepwise(self.head.propose(text, FixedGamma(room), room)))
        copier: Copier = self.inner  # type: ignore[assignment]
        tokens = copier.continuation(seq, text.tokens[len(seq.tokens) :], room)
        return Proposal(sent(tokens, text.device))


def _behind(proposal: Proposal, lag: int) -> abc.Sequence[int] | None:
    """The parents of the rows after the first token, if `lag` tokens of the text come before a proposal's root."""
    if proposal.parents is None or not lag:
        return proposal.parents
    return (*range(-1, lag - 1), *(parent + lag for parent in proposal.parents))
