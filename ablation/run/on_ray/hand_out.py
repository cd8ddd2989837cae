"""Parts of a plan handed out to players: who is free gets the next, and what dies with a player is played again."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ablation.run.on_ray.lots import Lot, Lots
from ablation.run.on_ray.player import Played
from ablation.run.on_ray.team import Seat, Team
from utils.errors import UserError
from utils.interrupt import Interrupt
from utils.text import counted, first_line

_LOOKS_S = 1.0
Keep = Callable[[Seat, Played], None]
Show = Callable[[str], None]


@dataclass
class HandOut:
    """keep: writes what a player brings. name: gives a player's machine its name, for one in the place of another that
    died. show: is told once a second who plays. free: players that have nothing to do.
    """

    team: Team
    lots: Lots
    keep: Keep
    name: Callable[[Seat], None]
    show: Show
    free: deque[Seat] = field(default_factory=deque)
    _playing: dict[Any, tuple[Seat, Lot]] = field(default_factory=dict)
    _coming: dict[Any, Seat] = field(default_factory=dict)

    def play(self, interrupt: Interrupt) -> None:
        """Until all is played, or no player is left; after a Ctrl-C, until the parts under way are whole."""
        self.free.extend(self.team.seats)
        said = False
        while True:
            while self.free and self.lots and not interrupt.asked:
                seat, lot = self.free.popleft(), self.lots.take()
                self._playing[seat.player.play.remote(lot.units, lot.done)] = seat, lot
            waits = not interrupt.asked and (self.lots or self._playing)
            promises = [*self._playing, *(self._coming if waits else ())]
            if not promises:
                return
            if interrupt.asked and not said:
                said = True
                self.team.say(
                    f"{self._under_way()} will be finished first; another Ctrl-C drops that and stops at once"
                )
            self.show(self._under_way())
            for promise in self.team.ray.wait(promises, timeout=_LOOKS_S)[0]:
                if promise in self._playing:
                    self._ended(promise, *self._playing.pop(promise))
                else:
                    self._came(promise, self._coming.pop(promise))

    def _under_way(self) -> str:
        return f"{counted(len(self._playing), 'part')} under way"

    def _ended(self, promise: Any, seat: Seat, lot: Lot) -> None:
        """A part is whole, or was lost."""
        died = self.team.ray.exceptions.RayError
        try:
            played = self.team.answer(promise)
        except died as error:
            self._lose(lot, f"the player on {seat.place.text} died: {first_line(error)}")
            new = self.team.replaced(seat)
            self._coming[self.team.begin(new)] = new
        except Exception as error:  # a bug, in the face of one part: the others are still worth having
            self._lose(lot, f"{type(error).__name__}: {error}")
            self.free.append(seat)
        else:
            self.keep(seat, played)
            self.free.append(seat)

    def _lose(self, lot: Lot, why: str) -> None:
        self.lots.lose(lot, why)
        self.team.say(f"{lot.text}: {why}; {'given up' if lot in self.lots.given_up else 'it will be played again'}")

    def _came(self, promise: Any, seat: Seat) -> None:
        """A new player is ready, or its device is lost."""
        try:
            self.team.answer(promise)
            self.name(seat)
        except (self.team.ray.exceptions.RayError, UserError) as error:
            self.team.say(f"{seat.place.text} is lost: {first_line(error)}")
            self.team.dismiss(seat)
        else:
            self.free.append(seat)
