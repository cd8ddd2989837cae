"""The target's own distribution behind a text, as a processor leaves it, and what it would be without the processor."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sampling.engine import Engine
from sampling.forward.noise_floor import NoiseFloor
from sampling.methods.choices import make_processor
from sampling.processors.with_text import rows_of
from utils.parameter import ChosenPart

_WHOLE = "multinomial"
_WARM = "temperature"


@dataclass(frozen=True, slots=True)
class ExpectedRow:
    """One place. p: `[V]` in float64; allowed: `[V]`, which tokens may come, those at the edge of a cut-off among them
    that another rounding may leave in.

    dropped: p where the engine forgets the processor; None where there is nothing to forget.
    """

    p: Tensor
    allowed: Tensor
    dropped: Tensor | None


class Target:
    """Our target's distributions. home: our engine on it."""

    def __init__(self, home: Engine) -> None:
        self._home = home
        self._rows: dict[tuple[tuple[int, ...], tuple[int, ...], ChosenPart], ExpectedRow] = {}

    def row(self, prompt: Sequence[int], said: Sequence[int], processor: ChosenPart) -> ExpectedRow:
        """What follows a prompt and the answer `said` (ids)."""
        key = tuple(prompt), tuple(said), processor
        if key not in self._rows:
            logits = self._home.reference(prompt, said, processor)
            p, allowed = _processed(logits, processor)
            forgotten = without(processor)
            dropped = None
            if forgotten is not None:
                dropped, _ = _processed(self._home.reference(prompt, said, forgotten), forgotten)
            self._rows[key] = ExpectedRow(p, allowed, dropped)
        return self._rows[key]

    def logprobs(self, prompt: Sequence[int], said: Sequence[int]) -> tuple[Tensor, float]:
        """ln p `[V]` of the raw logits, and how far two ways to compute them are apart, or their format's numbers."""
        logits = self._home.reference(prompt, said, ChosenPart(_WHOLE, (1.0,)))
        return torch.log_softmax(logits.block.double(), -1).cpu(), rounding(logits)


def rounding(logits: NoiseFloor) -> float:
    """How far logits of a place move by rounding."""
    noise = float((logits.block - logits.stepped).abs().max())
    return max(noise, float(logits.block.abs().max()) * logits.eps)


def without(processor: ChosenPart) -> ChosenPart | None:
    """What an engine plays that forgets a processor's options, else its cut, else its temperature; None: nothing."""
    if processor.options:
        return replace(processor, options=())
    if processor.name not in (_WHOLE, "greedy"):
        return ChosenPart(_WHOLE, processor.arguments[:1])
    if processor.name == _WHOLE and processor.arguments != (1.0,):
        return ChosenPart(_WHOLE, (1.0,))
    return None


def _processed(logits: NoiseFloor, processor: ChosenPart) -> tuple[Tensor, Tensor]:
    """Probabilities in float64, and the tokens that stay in under some rounding."""
    rows = rows_of(make_processor(processor))
    p, other = (rows(row.unsqueeze(0))[0] for row in (logits.block, logits.stepped))
    stays = (p > 0.0) | (other > 0.0)
    edge = logits.block[stays].min() - 2.0 * rounding(logits)
    p = p.double().cpu()
    return p / p.sum(), (stays | (logits.block >= edge)).cpu()
