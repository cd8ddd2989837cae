"""Where prompts come from that are read before a generation begins."""

from collections.abc import Sequence
from typing import Protocol

from sampling.handover import Handover, read_apart
from sampling.loop import check_room
from sampling.pair import Pair


class Prefills(Protocol):
    """Gives the engine of a pair what a prompt left in its target."""

    def find(self, pair: Pair, prompt: Sequence[int], layers: Sequence[int]) -> Handover:
        """What the prompt (ids) left, with the states of these layers. Raises `UserError` where there is none."""
        ...


class SharedPrefills:
    """One prefill of a prompt for all generations that begin with it, as long as no other prompt comes between.

    It keeps the states of all layers that anyone has asked for so far.
    """

    def __init__(self) -> None:
        self._layers: set[int] = set()
        self._held: Handover | None = None

    def find(self, pair: Pair, prompt: Sequence[int], layers: Sequence[int]) -> Handover:
        """See `Prefills.find`."""
        known = self._layers >= set(layers)
        self._layers |= set(layers)
        held = self._held
        if held is None or not known or held.state.tokens != tuple(prompt[:-1]):
            check_room(pair.target, prompt, 1)
            self._held = held = read_apart(pair.target, prompt, sorted(self._layers), shared=True)
        return held
