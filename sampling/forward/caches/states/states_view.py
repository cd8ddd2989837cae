"""transformers' cache for layers with states: what a forward reads into each of them is noted."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, LinearAttentionCacheLayerMixin

from sampling.forward.scans.scan import SHORT, Scan

Place = tuple[int, int]
"""A layer, and one of its states."""


class StatesView(Cache):
    """Runs the scans of short chains row by row, and notes their inputs and those of the convolutions.

    inputs: what the last forward gave each convolution, `[1, channels, n]`, where it was given more than one row.
    scans: its scans. rows_kept: whether the states behind each row are kept too, as `kept`. replaced: places whose
    states are replaced by every forward; others may be written in place.
    """

    def __init__(self, layers: list[Any]) -> None:
        super().__init__(layers=layers)
        self.rows_kept = False
        self.replaced: set[Place] = set()
        self.begin()

    def begin(self) -> None:
        """Before a forward: note what it reads."""
        self.inputs: dict[Place, Tensor] = {}
        self.scans: dict[Place, Scan] = {}
        self.kept: dict[Place, list[Tensor]] = {}
        self._asked: tuple[Place, Tensor] | None = None

    def places(self) -> Iterator[tuple[Any, Place]]:
        """Each state's layer and place."""
        for number, layer in enumerate(self.layers):
            if isinstance(layer, LinearAttentionCacheLayerMixin):
                yield from ((layer, (number, state)) for state in range(layer.number_of_states))

    def update_conv_state(self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any) -> Tensor:
        """transformers' method. conv_states: `[1, channels, n]`."""
        if conv_states.shape[-1] <= SHORT:
            self.inputs[layer_idx, state_idx] = conv_states
        whole: Tensor = super().update_conv_state(conv_states, layer_idx, state_idx, **kwargs)
        return whole

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """transformers' method. The scan that follows begins from this state."""
        state: Tensor | None = super().get_recurrent_state(layer_idx, state_idx)
        self._asked = None if state is None else ((layer_idx, state_idx), state)
        return state

    def update_recurrent_state(self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **_: Any) -> Tensor:
        """transformers' method. The state is replaced: who holds the one before still has it."""
        layer = self.layers[layer_idx]
        if not layer.is_recurrent_states_initialized[state_idx]:
            layer.lazy_initialization(recurrent_states=recurrent_states, state_idx=state_idx)
        layer.recurrent_states[state_idx] = recurrent_states
        return recurrent_states

    def scanned(self, scan: Callable[[], Scan], own: Callable[[], Any]) -> Any:
        """See `Scanned.scanned`: row by row where the chain is short and begins from a state."""
        if self._asked is None:
            return own()
        (place, state), made = self._asked, scan()
        if state.dim() > made.state_dims:
            return self._one_head(made, place, state, own)
        if made.rows > SHORT and not made.always:
            return own()
        outputs, states = _run(made, state, self.rows_kept)
        self.scans[place] = made
        if self.rows_kept:
            self.kept[place] = states
        self.replaced.add(place)
        self.layers[place[0]].recurrent_states[place[1]] = states[-1]
        return made.packed(outputs, states[-1])

    def _one_head(self, scan: Scan, place: Place, states: Tensor, own: Callable[[], Any]) -> Any:
        """A layer that scans head by head (Zamba), each time with the next head's state of `[1, heads, H, N]`."""
        if scan.rows == 1:
            return own()
        self._asked = place, states[:, 1:]
        outputs, kept = _run(scan, states[:, 0], False)
        return scan.packed(outputs, kept[-1])


def _run(scan: Scan, state: Tensor, all_kept: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs of all rows, and the states behind them, or behind the last alone."""
    outputs, kept = [], []
    for row in range(scan.rows):
        state = scan.advanced(state, row)
        outputs.append(scan.output(state, row))
        kept.append(state)
        if not all_kept:
            del kept[:-1]
    return outputs, kept


def conv_behind(before: Tensor, inputs: list[Tensor], rows: int) -> Tensor:
    """What a convolution holds behind `rows` of these inputs `[1, channels, n]`, from what it held before them."""
    return torch.cat([before, *inputs], dim=-1)[..., rows : rows + before.shape[-1]].clone()
