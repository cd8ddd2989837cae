"""The parts of a plan that nobody has played yet: the largest first, and one that is lost once more at the end."""

from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from ablation.plan.grid import Plan, RowKey, WorkUnit
from ablation.plan.shard import weighed
from ablation.run.execute import PlayedRow
from utils.text import shown

_TRIES = 3


@dataclass(slots=True)
class WorkItem:
    """What cannot be divided (`shard.jobs`), with what an earlier run left of it. lost: why, once for each loss."""

    units: tuple[WorkUnit, ...]
    done: Mapping[RowKey, PlayedRow]
    lost: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """For people: `prompt a, greedy, seed 1` or `all prompts, greedy, seed 1, repeat 1`."""
        first = self.units[0]
        what = f"prompt {shown(first.id)}" if len(self.units) == 1 else f"all {len(self.units)} prompts"
        repeat = f", repeat {first.repeat}" if first.repeat else ""
        return f"{what}, {first.processor}, seed {first.seed}{repeat}"


class WorkQueue:
    """Hands out what is missing; true while there is something. `given_up`: what was lost so often that it stays."""

    def __init__(self, plan: Plan, done: Mapping[RowKey, PlayedRow], formats: Sequence[str]) -> None:
        missing = _missing(plan, done, formats)
        there: dict[WorkUnit, dict[RowKey, PlayedRow]] = {}
        for key, earlier in done.items():
            there.setdefault(_unit(key), {})[key] = earlier
        self._waiting = deque(
            WorkItem(units, {key: earlier for unit in units for key, earlier in there.get(unit, {}).items()})
            for _, units in weighed(plan)
            if missing & set(units)
        )
        self.given_up: list[WorkItem] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> WorkItem:
        """The next one."""
        return self._waiting.popleft()

    def lose(self, item: WorkItem, why: str) -> None:
        """Take one back that was not played whole: last, as it may have been the reason."""
        item.lost.append(why)
        (self.given_up if len(item.lost) >= _TRIES else self._waiting).append(item)


def _missing(plan: Plan, done: Container[RowKey], formats: Sequence[str]) -> set[WorkUnit]:
    return {
        plan.unit(each_pass, place.prompt)
        for each_pass in plan.passes()
        for place in plan.places(each_pass, formats)
        if place.key not in done
    }


def _unit(key: RowKey) -> WorkUnit:
    return WorkUnit(key.repeat, key.seed, key.processor, key.id)
