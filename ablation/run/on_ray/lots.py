"""The parts of a plan that nobody has played yet: the largest first, and one that is lost once more at the end."""

from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from ablation.plan.grid import Key, Plan, Unit
from ablation.plan.shard import weighed
from ablation.run.execute import Done
from utils.text import shown

_TRIES = 3


@dataclass(slots=True)
class Lot:
    """What cannot be divided (`shard.jobs`), with what an earlier run left of it. lost: why, once for each loss."""

    units: tuple[Unit, ...]
    done: Mapping[Key, Done]
    lost: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """For people: `prompt a, greedy, seed 1` or `all prompts, greedy, seed 1, repeat 1`."""
        first = self.units[0]
        what = f"prompt {shown(first.id)}" if len(self.units) == 1 else f"all {len(self.units)} prompts"
        repeat = f", repeat {first.repeat}" if first.repeat else ""
        return f"{what}, {first.processor}, seed {first.seed}{repeat}"


class Lots:
    """Hands out what is missing; true while there is something. `given_up`: what was lost so often that it stays."""

    def __init__(self, plan: Plan, done: Mapping[Key, Done], formats: Sequence[str]) -> None:
        missing = _missing(plan, done, formats)
        there: dict[Unit, dict[Key, Done]] = {}
        for key, earlier in done.items():
            there.setdefault(_unit(key), {})[key] = earlier
        self._waiting = deque(
            Lot(units, {key: earlier for unit in units for key, earlier in there.get(unit, {}).items()})
            for _, units in weighed(plan)
            if missing & set(units)
        )
        self.given_up: list[Lot] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> Lot:
        """The next one."""
        return self._waiting.popleft()

    def lose(self, lot: Lot, why: str) -> None:
        """Take one back that was not played whole: last, as it may have been the reason."""
        lot.lost.append(why)
        (self.given_up if len(lot.lost) >= _TRIES else self._waiting).append(lot)


def _missing(plan: Plan, done: Container[Key], formats: Sequence[str]) -> set[Unit]:
    return {
        plan.unit(one, place.prompt)
        for one in plan.passes()
        for place in plan.places(one, formats)
        if place.key not in done
    }


def _unit(key: Key) -> Unit:
    return Unit(key.repeat, key.seed, key.processor, key.id)
