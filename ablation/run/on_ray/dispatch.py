"""Parts of a plan handed out to players: who is free gets the next, and what dies with a player is played again."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ablation.run.on_ray.work_queue import WorkItem, WorkQueue
from ablation.run.on_ray.worker import PlayedItem
from ablation.run.on_ray.worker_pool import PATIENCE_S, WorkerPool, WorkerSlot
from utils.errors import UserError
from utils.interrupt import Interrupt
from utils.text import counted, first_line

_LOOKS_S = 1.0
Keep = Callable[[WorkerSlot, PlayedItem], None]
Show = Callable[[str], None]


@dataclass
class Dispatcher:
    """keep: writes what a player brings. name: gives a player's machine its name, for one in the place of another that
    died. show: is told once a second who plays. free: players that have nothing to do.
    """

    pool: WorkerPool
    queue: WorkQueue
    keep: Keep
    name: Callable[[WorkerSlot], None]
    show: Show
    free: deque[WorkerSlot] = field(default_factory=deque)
    _playing: dict[Any, tuple[WorkerSlot, WorkItem]] = field(default_factory=dict)
    _arriving: dict[Any, tuple[WorkerSlot, float]] = field(default_factory=dict)
    _coming: dict[Any, WorkerSlot] = field(default_factory=dict)

    def play(self, interrupt: Interrupt) -> None:
        """Until all is played, or no player is left; after a Ctrl-C, until the parts under way are whole."""
        self.free.extend(self.pool.slots)
        said = False
        while True:
            while self.free and self.queue and not interrupt.asked:
                slot, item = self.free.popleft(), self.queue.take()
                self._playing[slot.player.play.remote(item.units, item.done)] = slot, item
            waits = not interrupt.asked and (self.queue or self._playing)
            promises = [*self._playing, *((*self._arriving, *self._coming) if waits else ())]
            if not promises:
                return
            if interrupt.asked and not said:
                said = True
                self.pool.say(
                    f"{self._under_way()} will be finished first; another Ctrl-C drops that and stops at once"
                )
            self.show(self._under_way())
            for promise in self.pool.ray.wait(promises, timeout=_LOOKS_S)[0]:
                if promise in self._playing:
                    self._ended(promise, *self._playing.pop(promise))
                elif promise in self._arriving:
                    self._arrived(promise, self._arriving.pop(promise)[0])
                else:
                    self._came(promise, self._coming.pop(promise))
            self._leave_late()

    def _under_way(self) -> str:
        return f"{counted(len(self._playing), 'part')} under way"

    def _ended(self, promise: Any, slot: WorkerSlot, item: WorkItem) -> None:
        """A part is whole, or was lost."""
        died = self.pool.ray.exceptions.RayError
        try:
            played = self.pool.answer(promise)
        except died as error:
            self._lose(item, f"the player on {slot.place.text} died: {first_line(error)}")
            new = self.pool.replaced(slot)
            self._arriving[self.pool.arrival(new)] = new, time.monotonic() + PATIENCE_S
        except Exception as error:  # a bug, in the face of one part: the others are still worth having
            self._lose(item, f"{type(error).__name__}: {error}")
            self.free.append(slot)
        else:
            self.keep(slot, played)
            self.free.append(slot)

    def _lose(self, item: WorkItem, why: str) -> None:
        self.queue.lose(item, why)
        self.pool.say(f"{item.text}: {why}; {'given up' if item in self.queue.given_up else 'it will be played again'}")

    def _arrived(self, promise: Any, slot: WorkerSlot) -> None:
        """A device is free again, so that its new player can load, however long that takes."""
        try:
            self.pool.answer(promise)
        except self.pool.ray.exceptions.RayError as error:
            self._leave(slot, first_line(error))
        else:
            self._coming[self.pool.begin(slot)] = slot

    def _leave_late(self) -> None:
        """Wait no longer for devices that do not come back, as those of a machine that is gone."""
        for promise, (slot, until) in list(self._arriving.items()):
            if time.monotonic() > until:
                del self._arriving[promise]
                self._leave(slot, f"it was not free within {PATIENCE_S:g} s")

    def _leave(self, slot: WorkerSlot, why: str) -> None:
        self.pool.say(f"{slot.place.text} is lost: {why}")
        self.pool.dismiss(slot)

    def _came(self, promise: Any, slot: WorkerSlot) -> None:
        """A new player is ready, or its device is lost."""
        try:
            self.pool.answer(promise)
            self.name(slot)
        except (self.pool.ray.exceptions.RayError, UserError) as error:
            self._leave(slot, first_line(error))
        else:
            self.free.append(slot)
