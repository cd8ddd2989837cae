"""A plan dealt out to several machines: each plays whole units, and every machine finds the same deal by itself."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablation.plan.grid import Plan, PlanPart, WorkUnit
from ablation.plan.prompts.file import Prompt
from sampling.methods.tables import METHODS
from utils.errors import UserError

_BYTES_A_TOKEN = 64  # of a prompt, which is read many tokens at once, over those that are written one by one


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` parts, counted from 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Example: "2/5". Raises `UserError`."""
        index, slash, count = text.partition("/")
        if not (slash and index.isascii() and index.isdigit() and count.isascii() and count.isdigit()):
            raise UserError(f"--shard {text!r} given; expected K/N, such as 2/5")
        if not 1 <= int(index) <= int(count):
            raise UserError(f"--shard {text!r} given; expected a part from 1 to {count}")
        return cls(int(index), int(count))

    @property
    def text(self) -> str:
        """As it is given: `2/5`."""
        return f"{self.index}/{self.count}"

    def file(self, whole: Path) -> Path:
        """Its own results file. Example: n.csv -> n.2-of-5.csv."""
        return whole.with_name(f"{whole.stem}.{self.index}-of-{self.count}{whole.suffix}")


def jobs(plan: Plan) -> list[tuple[WorkUnit, ...]]:
    """What cannot be divided: a prompt in a pass, or a whole pass where prompts meet.

    They do in batches, and where a method remembers earlier prompts.
    """
    passes = [
        tuple(plan.unit(each_pass, prompt) for _, prompt in plan.played(each_pass)) for each_pass in plan.passes()
    ]
    meet = bool(plan.batches) or any(
        METHODS[configuration.method].remembers({**plan.values, **dict(configuration.parameters)})
        for configuration in plan.configurations
    )
    return [units for units in passes if units] if meet else [(unit,) for units in passes for unit in units]


def dealt(plan: Plan, shard: Shard) -> Plan:
    """The plan with what a shard plays of it. Raises `UserError` where there are more shards than there is to play.

    The job with the most to write goes to the shard with the least so far; those with as much come in an order of
    their digests, so that neighbours in the plan, which are of one task, go to different machines.
    """
    lots = jobs(plan)
    if len(lots) < shard.count:
        raise UserError(
            f"--shard {shard.text} given, and the plan divides into {len(lots)} parts at most: "
            f"expected a number of shards up to {len(lots)}"
        )
    loads = [0.0] * shard.count
    mine: list[WorkUnit] = []
    for weight, lot in weighed(plan):
        least = loads.index(min(loads))
        loads[least] += weight
        if least == shard.index - 1:
            mine += lot
    return replace(plan, part=PlanPart(frozenset(mine), shard.text))


def weighed(plan: Plan) -> list[tuple[float, tuple[WorkUnit, ...]]]:
    """The jobs with the tokens that each has to write, the largest first; those of a size in an order of digests."""
    cost = {str(prompt.id): _cost(plan, prompt) for prompt in plan.prompts}
    lots = [(sum(cost[unit.id] for unit in lot), lot) for lot in jobs(plan)]
    return sorted(lots, key=lambda lot: (-lot[0], _digest(lot[1])))


def _cost(plan: Plan, prompt: Prompt) -> float:
    """What a prompt has to write and read, in tokens that are written."""
    read = sum(len(text.encode()) for text in prompt.texts)
    return len(prompt.turns) * plan.length(prompt) + read / _BYTES_A_TOKEN


def _digest(lot: Sequence[WorkUnit]) -> str:
    return hashlib.sha256(repr([tuple(unit) for unit in lot]).encode()).hexdigest()
