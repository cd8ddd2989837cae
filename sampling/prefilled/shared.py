"""Where prompts come from that are read before a generation begins."""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from sampling.handover import Handover
from sampling.pair.pair import Pair
from sampling.prefilled.reading import read_apart

_TEXTS = 4


class Prefills(Protocol):
    """Gives the engine of a pair what a prompt left in its target."""

    def find(self, pair: Pair, prompt: Sequence[int], layers: Sequence[int]) -> Handover:
        """What the prompt (ids) left, with the states of these layers. Raises `UserError` where there is none."""
        ...


class SharedPrefills:
    """One prefill for all generations that begin with the same text, of the last few texts.

    A few, as turns that follow different answers take turns. It keeps the states of all layers that anyone has asked
    for so far; a text is read once more where one is asked for that was not kept.
    """

    def __init__(self) -> None:
        self._layers: set[int] = set()
        self._held: deque[Handover] = deque(maxlen=_TEXTS)

    def find(self, pair: Pair, prompt: Sequence[int], layers: Sequence[int]) -> Handover:
        """See `Prefills.find`."""
        if not self._layers >= set(layers):
            self._held.clear()
        self._layers |= set(layers)
        for held in self._held:
            if held.state.tokens == tuple(prompt[:-1]):
                return held
        self._held.append(read_apart(pair.target, prompt, sorted(self._layers), shared=True))
        return self._held[-1]
