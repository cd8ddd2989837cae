"""How the states of a text go back to an earlier token: three ways, from the general to the fast.

Each begins from the states before the tokens that may be taken back. `Reread` returns to them, and the accepted tokens
go through the model again. `Replay` runs the recurrence alone over what it read of those tokens. `EveryRow` has the
states behind each of them. A convolution holds its last inputs: the last two ways cut those where they were.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from sampling.forward.caches.states.states_view import Place, StatesView, conv_behind
from sampling.forward.scans.scan import SHORT, Scan

_MOST = SHORT
"""Rows that are noted behind a base at most. Where more come, nothing was taken back for long."""

States = dict[Place, tuple[Tensor | None, Tensor | None]]
"""What a convolution and a recurrence hold, of each place."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What one forward of `rows` rows was given: see `StatesView`."""

    rows: int
    inputs: dict[Place, Tensor]
    scans: dict[Place, Scan]
    kept: dict[Place, list[Tensor]]

    def first(self, rows: int) -> "_Step":
        """The same forward, had it had the first rows alone."""
        inputs = {place: given[..., :rows] for place, given in self.inputs.items()}
        kept = {place: states[:rows] for place, states in self.kept.items()}
        return _Step(rows, inputs, self.scans, kept)


@dataclass(slots=True)
class Base:
    """States that have read `read` tokens, none of which is taken back, and the forwards since."""

    read: int
    states: States
    steps: list[_Step] = field(default_factory=list)
    _lost: bool = False

    @property
    def rows(self) -> int:
        """How many rows behind it are noted without a gap."""
        return 0 if self._lost else sum(step.rows for step in self.steps)

    def note(self, rows: int, view: StatesView) -> None:
        """Note the forward of `rows` rows that has just ended."""
        inputs = {}
        for layer, place in view.places():
            conv = layer.conv_states[place[1]]
            if conv is not None:
                inputs[place] = view.inputs[place] if place in view.inputs else conv[..., -1:].clone()
        self.steps.append(_Step(rows, inputs, view.scans, view.kept))
        whole = all(self._noted(place, rows) for place in self.states)
        if not whole or self.rows > _MOST:
            self._lost = True
            self.steps.clear()

    def _noted(self, place: Place, rows: int) -> bool:
        (conv, state), step = self.states[place], self.steps[-1]
        there = conv is None or (place in step.inputs and step.inputs[place].shape[-1] == rows)
        return there and (state is None or place in step.scans)

    def cut(self, rows: int) -> None:
        """Forget the forwards behind the first `rows` rows; all of them, where fewer rows are noted."""
        steps, self.steps = self.steps if rows <= self.rows else [], []
        for step in steps:
            if rows > 0:
                self.steps.append(step if step.rows <= rows else step.first(rows))
            rows -= step.rows


class Rollback:
    """A way back. name: for records. noting: whether forwards are noted for it. rows_kept: whether the states behind
    each row are. again: whether it goes through the accepted tokens once more."""

    name: str
    noting = False
    rows_kept = False
    again = False

    def states(self, base: Base) -> States:
        """The states behind the rows that are noted behind a base."""
        return base.states


class Reread(Rollback):
    """The base's own: for every model whose states can be copied."""

    name = "reread"


class Replay(Rollback):
    """The recurrence alone."""

    name = "replay"
    noting = True
    again = True

    def states(self, base: Base) -> States:
        """See `Rollback.states`."""
        if not base.steps:
            return base.states
        return {place: self._behind(base, place, *before) for place, before in base.states.items()}

    def _behind(
        self, base: Base, place: Place, conv: Tensor | None, state: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        if conv is not None:
            conv = conv_behind(conv, [step.inputs[place] for step in base.steps], base.rows)
        return conv, None if state is None else self._recurrent(base.steps, place, state)

    def _recurrent(self, steps: Sequence[_Step], place: Place, state: Tensor) -> Tensor:
        for step in steps:
            state = step.scans[place].behind(state, step.rows)
        return state


class EveryRow(Replay):
    """The states that were kept behind each row, where they are small."""

    name = "every_row"
    rows_kept = True
    again = False

    def _recurrent(self, steps: Sequence[_Step], place: Place, state: Tensor) -> Tensor:
        return steps[-1].kept[place][-1]
