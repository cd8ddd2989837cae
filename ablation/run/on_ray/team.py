"""The players of a run, one on each device, of the same code and with the same models."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

from ablation.plan.file import Experiment
from ablation.results.manifest import chosen_in, differences_of
from ablation.run.on_ray.cluster import Place
from ablation.run.on_ray.player import Player, Ready, about_code
from utils.errors import UserError
from utils.text import first_line

_PATIENCE_S = 120.0
_OWN = ("machine", "shard")  # of what is fixed: what players may differ in


@dataclass(slots=True)
class Seat:
    """A device and the player there. loading: the promise of its machine's name and manifest; host: what its rows
    call that machine.
    """

    place: Place
    player: Any
    loading: Any = None
    host: str = ""


@dataclass
class Team:
    """Who plays an experiment. say: is told who does not come.

    rough, wait_quiet_s: see `Player.load`. The first player decides for all which kernel is `auto`, and what is rough.
    """

    ray: Any
    experiment: Experiment
    rough: bool | None
    wait_quiet_s: float
    say: Callable[[str], None]
    seats: list[Seat] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    _first: str = ""

    def gather(self, places: Sequence[Place]) -> None:
        """A player on each device that is free. Raises `UserError` where none is, and where other code would play."""
        asked = [(seat, seat.player.about.remote()) for seat in map(self._seated, places)]
        came, _ = self.ray.wait([one for _, one in asked], num_returns=len(asked), timeout=_PATIENCE_S)
        here = about_code()
        for seat, promise in asked:
            if promise not in came:
                self._leave_out(seat, f"it was not free within {_PATIENCE_S:g} s")
                continue
            try:
                there = self.answer(promise)
            except self.ray.exceptions.RayError as error:
                self._leave_out(seat, first_line(error))
                continue
            _refuse_other(here, there, ("here", f"on {seat.place.name}"), "runs other code than this machine")
            self.seats.append(seat)
        self._refuse_nobody()

    def load_first(self) -> dict[str, Any]:
        """Load the models in the first player; its manifest. Raises `UserError`, as loading does."""
        self._first = self.seats[0].place.name
        self.seats[0].loading = self._load(self.seats[0])
        _, self.about = self.of_first(self.seats[0].loading)
        kernel, self.rough = chosen_in(self.about["fixed"], self.experiment.plan)
        if kernel is not None:
            self.experiment = replace(self.experiment, pair={**self.experiment.pair, "kernel": kernel})
        return self.about

    def prepare(self) -> Iterator[tuple[Seat, Ready]]:
        """Load the models in the others and warm all up, one after the other on each machine, as costs are timed.

        Raises `UserError`, as loading does, where models are not the same, and where no player is left.
        """
        nodes: dict[str, list[Seat]] = {}
        for seat in self.seats:
            nodes.setdefault(seat.place.node, []).append(seat)
        for several in zip_longest(*nodes.values()):
            for seat, promise in [(seat, self.begin(seat)) for seat in several if seat]:
                try:
                    yield seat, self.answer(promise)
                except self.ray.exceptions.RayError as error:
                    self.seats.remove(seat)
                    self._leave_out(seat, first_line(error))
        self._refuse_nobody()

    def begin(self, seat: Seat) -> Any:
        """Let a player load, where it has not, and prepare: the promise of `Ready`."""
        if seat.loading is None:
            seat.loading = self._load(seat)
        return seat.player.prepare.remote()

    def machine(self, seat: Seat) -> tuple[str, Any]:
        """The name of a player's machine and what it is. Raises `UserError` where all else is not as with the first."""
        host, about = self.answer(seat.loading)
        first, other = (
            {name: value for name, value in one["fixed"].items() if name not in _OWN} for one in (self.about, about)
        )
        words = f"on {self._first}", f"on {seat.place.name}"
        _refuse_other(first, other, words, "differs from the other machines")
        return host, about["fixed"]["machine"]

    def replaced(self, seat: Seat) -> Seat:
        """A new player in the place of one that died."""
        self.dismiss(seat)
        return self._seated(seat.place)

    def dismiss(self, seat: Seat) -> None:
        """End a player, whatever it does."""
        self.ray.kill(seat.player)

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

    def settled(self, seats: Iterable[Seat]) -> Iterator[str]:
        """What no longer holds of the costs that were weighed, a line a player and format."""
        for seat in seats:
            try:
                yield from (f"{seat.place.text}: {line}" for line in self.answer(seat.player.settle.remote()))
            except self.ray.exceptions.RayError:
                continue

    def _leave_out(self, seat: Seat, why: str) -> None:
        self.say(f"{seat.place.text} is left out: {why}")
        self.dismiss(seat)

    def _refuse_nobody(self) -> None:
        if not self.seats:
            raise UserError("--ray: no device could be used; expected one that is free")

    def _load(self, seat: Seat) -> Any:
        return seat.player.load.remote(self.experiment, self.rough, self.wait_quiet_s)

    def _seated(self, place: Place) -> Seat:
        actor = self.ray.remote(Player).options(**place.options(self.ray))
        return Seat(place, actor.remote(place.environment(), str(Path.cwd())))


def _raise_cause(error: Any) -> NoReturn:
    raise error.cause from error


def _refuse_other(first: Any, second: Any, words: tuple[str, str], what: str) -> None:
    if differences := list(differences_of(first, second, (), words)):
        said = "\n  ".join(differences[:10])
        raise UserError(f"--ray: {words[1].removeprefix('on ')} {what}, so rows cannot be compared:\n  {said}")
