"""The players of a run, one on each device, of the same code and with the same models."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

from ablation.plan.file import Experiment
from ablation.results.chosen import chosen_in
from ablation.results.manifest import differences_of
from ablation.run.on_ray.cluster import ClusterDevice
from ablation.run.on_ray.worker import RayWorker, WorkerReady, about_code
from utils.errors import UserError
from utils.text import first_line

PATIENCE_S = 120.0
"""Seconds within which a device must be free for its player."""
_OWN = ("machine", "shard")  # of what is fixed: what players may differ in


@dataclass(slots=True)
class WorkerSlot:
    """A device and the player there. loading: the promise of its machine's name and manifest; host: what its rows
    call that machine.
    """

    place: ClusterDevice
    player: Any
    loading: Any = None
    host: str = ""


@dataclass
class WorkerPool:
    """Who plays an experiment. say: is told who does not come.

    rough, wait_quiet_s: see `RayWorker.load`. The first player decides for all what `auto` comes to, and what is
    rough.
    """

    ray: Any
    experiment: Experiment
    rough: bool | None
    wait_quiet_s: float
    say: Callable[[str], None]
    slots: list[WorkerSlot] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    _first: str = ""

    def gather(self, places: Sequence[ClusterDevice]) -> None:
        """A player on each device that is free. Raises `UserError` where none is, and where other code would play."""
        asked = [(slot, self.arrival(slot)) for slot in map(self._in_slot, places)]
        came, _ = self.ray.wait([reference for _, reference in asked], num_returns=len(asked), timeout=PATIENCE_S)
        here = about_code()
        for slot, promise in asked:
            if promise not in came:
                self._leave_out(slot, f"it was not free within {PATIENCE_S:g} s")
                continue
            try:
                there = self.answer(promise)
            except self.ray.exceptions.RayError as error:
                self._leave_out(slot, first_line(error))
                continue
            _refuse_other(here, there, ("here", f"on {slot.place.name}"), "runs other code than this machine")
            self.slots.append(slot)
        self._refuse_nobody()

    def load_first(self) -> dict[str, Any]:
        """Load the models in the first player; its manifest. Raises `UserError`, as loading does."""
        self._first = self.slots[0].place.name
        self.slots[0].loading = self._load(self.slots[0])
        _, self.about = self.of_first(self.slots[0].loading)
        chosen = chosen_in(self.about["fixed"], self.experiment.plan)
        self.rough = chosen.rough
        self.experiment = replace(self.experiment, pair=chosen.instead_of_auto(self.experiment.pair))
        return self.about

    def prepare(self) -> Iterator[tuple[WorkerSlot, WorkerReady]]:
        """Load the models in the others and warm all up, one after the other on each machine, as costs are timed.

        Raises `UserError`, as loading does, where models are not the same, and where no player is left.
        """
        nodes: dict[str, list[WorkerSlot]] = {}
        for slot in self.slots:
            nodes.setdefault(slot.place.node, []).append(slot)
        for several in zip_longest(*nodes.values()):
            for slot, promise in [(slot, self.begin(slot)) for slot in several if slot]:
                try:
                    yield slot, self.answer(promise)
                except self.ray.exceptions.RayError as error:
                    self.slots.remove(slot)
                    self._leave_out(slot, first_line(error))
        self._refuse_nobody()

    def arrival(self, slot: WorkerSlot) -> Any:
        """The promise that a player is there, and what code it runs."""
        return slot.player.about.remote()

    def begin(self, slot: WorkerSlot) -> Any:
        """Let a player load, where it has not, and prepare: the promise of `WorkerReady`."""
        if slot.loading is None:
            slot.loading = self._load(slot)
        return slot.player.prepare.remote()

    def machine(self, slot: WorkerSlot) -> tuple[str, Any]:
        """The name of a player's machine and what it is. Raises `UserError` where all else is not as with the first."""
        host, about = self.answer(slot.loading)
        first, other = (
            {name: value for name, value in settled["fixed"].items() if name not in _OWN}
            for settled in (self.about, about)
        )
        words = f"on {self._first}", f"on {slot.place.name}"
        _refuse_other(first, other, words, "differs from the other machines")
        return host, about["fixed"]["machine"]

    def replaced(self, slot: WorkerSlot) -> WorkerSlot:
        """A new player in the place of one that died."""
        self.dismiss(slot)
        return self._in_slot(slot.place)

    def dismiss(self, slot: WorkerSlot) -> None:
        """End a player, whatever it does."""
        self.ray.kill(slot.player)

    def answer(self, promise: Any) -> Any:
        """What was promised. Raises what the player raised, and Ray's own errors."""
        try:
            return self.ray.get(promise)
        except self.ray.exceptions.RayTaskError as error:
            _raise_cause(error)

    def of_first(self, promise: Any) -> Any:
        """What the first player promised, on which all others wait. Raises `UserError` where it died."""
        try:
            return self.answer(promise)
        except self.ray.exceptions.RayError as error:
            raise UserError(f"--ray: the player on {self._first} died: {first_line(error)}") from None

    def settled(self, slots: Iterable[WorkerSlot]) -> Iterator[str]:
        """What no longer holds of the costs that were weighed, a line a player and format."""
        for slot in slots:
            try:
                yield from (f"{slot.place.text}: {line}" for line in self.answer(slot.player.settle.remote()))
            except self.ray.exceptions.RayError:
                continue

    def _leave_out(self, slot: WorkerSlot, why: str) -> None:
        self.say(f"{slot.place.text} is left out: {why}")
        self.dismiss(slot)

    def _refuse_nobody(self) -> None:
        if not self.slots:
            raise UserError("--ray: no device could be used; expected one that is free")

    def _load(self, slot: WorkerSlot) -> Any:
        return slot.player.load.remote(self.experiment, self.rough, self.wait_quiet_s)

    def _in_slot(self, place: ClusterDevice) -> WorkerSlot:
        actor = self.ray.remote(RayWorker).options(**place.options(self.ray))
        return WorkerSlot(place, actor.remote(place.environment(), str(Path.cwd())))


def _raise_cause(error: Any) -> NoReturn:
    raise error.cause from error


def _refuse_other(first: Any, second: Any, words: tuple[str, str], what: str) -> None:
    if differences := list(differences_of(first, second, (), words)):
        said = "\n  ".join(differences[:10])
        raise UserError(f"--ray: {words[1].removeprefix('on ')} {what}, so rows cannot be compared:\n  {said}")
