"""HedgeSpec: the drafters of `auto`, chosen by how each would have fared on the verified text."""

from collections import abc
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from egag.choosing.hedge_chooser import HedgeChooser, judged_by
from egag.length_rule import LengthRule
from sampling.drafters.combined.auto import COPIES, AutoDrafter
from sampling.forward.requests import StepGenerator
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent
from utils.errors import UserError
from utils.events import Round


class _Key:
    """Under which a sequence keeps its `_Verified`, until its text ends."""

    keeps_rows = True


@dataclass(slots=True)
class _Verified:
    """What was verified last: its tokens, the target's probabilities `[n, V]` of each, and the round.

    roots: of each model, its raw logits `[1, V]` behind the text before. copy: what the copier would have drafted; None
    where it was not asked.
    """

    round: Round | None = None
    target: Tensor | None = None
    roots: dict[str, Tensor] = field(default_factory=dict)
    copy: tuple[int, ...] | None = None


class HedgeDrafter(AutoDrafter):
    """Before each round every model reads the tokens verified last, whoever drafted them, and is scored on each.

    The score of a token is the probability that a draft of it is accepted, the sum of min(p, q) over the vocabulary
    (arXiv 2510.20064); p is in the target's logits of the round before. A copy is scored by its run of tokens that the
    text went on with. Only drafters that draft each token from the text alone are scored so; others by their own
    rounds. No target forward is added, and one forward of each model a round. The choice reads the verified text.
    """

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._key = _Key()

    def begin(self, seq: Sequence) -> None:
        super().begin(seq)
        seq.drafter_state[self._key] = _Verified()

    def observe(self, seq: Sequence, round: Round) -> None:
        super().observe(seq, round)
        verified: _Verified = seq.drafter_state[self._key]
        verified.round = round
        if seq.logits is not None:
            rows = [0, *(row + 1 for row in round.path)][: len(round.emitted)]
            verified.target = seq.processor(seq.logits.index_select(0, sent(rows, seq.logits.device)))

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        if not isinstance(gamma, HedgeChooser):
            raise UserError(f"{type(gamma).__name__} given as the rule of HedgeSpec; expected a HedgeChooser")
        self._use_costs(seq, gamma)
        if gamma.may_draft(self._goodput(seq), seq.live):
            yield from self._score(seq, gamma)
        else:  # its text goes on unscored
            seq.drafter_state[self._key] = _Verified()
        return (yield from super().propose(seq, gamma, limit))

    def _score(self, seq: Sequence, chooser: HedgeChooser) -> StepGenerator[None]:
        """Tell the chooser how every drafter would have fared, and remember what they would draft now."""
        verified: _Verified = seq.drafter_state[self._key]
        last = verified.round
        count = 1 if last is None else len(last.emitted)
        seen: dict[str, abc.Sequence[float] | None] = {}
        for name in self._candidates(seq):
            model = self.models[name]
            if model.room(seq) < 1:
                continue
            ahead = (yield from model.along(seq, count))[:, : seq.runner.vocab_size]
            if last is not None:
                seen[name] = self._accepted(seq, verified, name, ahead)
            if len(ahead):
                verified.roots[name] = ahead[-1:].clone()
        if last is not None:
            seen[COPIES] = None if verified.copy is None else _copied(verified.copy, last.emitted)
            chooser.learn_text(seen)
        verified.copy = tuple(self.suffix.draft(seq, chooser.gamma, chooser.gamma).tokens)

    def _accepted(self, seq: Sequence, verified: _Verified, name: str, ahead: Tensor) -> abc.Sequence[float] | None:
        """How likely its drafts of the verified tokens are accepted. ahead: logits behind the last of them."""
        last, target, root = verified.round, verified.target, verified.roots.get(name)
        assert last is not None
        if root is None or target is None or len(ahead) != len(last.emitted):
            return judged_by(last) if name in last.source.split("+") else None
        logits = ahead.new_empty(len(ahead), ahead.shape[1])
        logits[0], logits[1:] = root[0], ahead[:-1]
        both = seq.processor(logits).to(target.device)
        width = min(both.shape[1], target.shape[1])
        scores: list[float] = both[:, :width].minimum(target[:, :width]).sum(-1).tolist()
        return scores


def _copied(copy: abc.Sequence[int], emitted: abc.Sequence[int]) -> list[float]:
    """Whether a copy's tokens are those of the text, up to the first that is not; without a copy none is.

    Example: 5 6 7 on a text that went on with 5 9 -> 1, 0; on one of which 5 is known -> 1.
    """
    found = list[float]()
    for token, own in zip(emitted, copy, strict=False):
        found.append(float(token == own))
        if token != own:
            break
    return found if copy else [0.0]
