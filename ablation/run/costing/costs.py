"""What a plan must know before anything is timed: what rounds cost, where a configuration weighs it."""

from collections.abc import Callable

from rich.console import Console

from ablation.plan.grid import Plan
from ablation.results.record import Record
from ablation.run.progress.bar import told
from engines.spec import OURS
from sampling.engine import Engine, in_formats
from sampling.measure.drift import ProfileDrift, settle
from sampling.measure.times.profiling import ensure_profile
from sampling.methods.tables import METHODS

_PARTS = 100


def weighs_costs(plan: Plan) -> bool:
    """Whether any of its configurations reads what rounds cost."""
    return any(METHODS[c.method].weighs_costs({**plan.values, **dict(c.parameters)}) for c in plan.configurations)


def ensure_costs(engine: Engine, plan: Plan, err: Console) -> None:
    """Measure what is missing, in each format of the plan, half a minute each at most."""
    if not weighs_costs(plan):
        return
    for name, rounded in in_formats(engine, plan.formats).items():
        if rounded.profile() is None:
            err.print(f"measuring what forwards and drafts cost in {name}, once", soft_wrap=True, highlight=False)
            with told("profile", err) as tell:
                ensure_profile(rounded, _parts(tell))


class WatchedProfiles:
    """The profile of each format beside the times of a plan's own records."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self._engine, self._plan = engine, plan
        self._values = {c.name: {**plan.values, **dict(c.parameters)} for c in plan.configurations}
        self._drifts: dict[str, tuple[Engine, ProfileDrift]] = {}

    def begin(self) -> None:
        """Watch the profiles that are known by now."""
        for name, rounded in in_formats(self._engine, self._plan.formats).items():
            if (profile := rounded.profile()) is not None:
                self._drifts[name] = rounded, ProfileDrift(profile)

    def add(self, record: Record) -> None:
        """Compare a record's times."""
        if record.error is None and record.engine in (None, OURS) and record.target_weights in self._drifts:
            context = (record.prompt_tokens or 0) + (record.new_tokens or 0) / 2
            drift = self._drifts[record.target_weights][1]
            drift.add(record.method, self._values[record.configuration], record, context, record.other_cores)

    def settle(self) -> list[str]:
        """What no longer holds, a line a format; it is dropped, and measured again by the next process."""
        drifts = {name: settle(*watched) for name, watched in self._drifts.items()}
        return [f"{name}: {said}" for name, said in drifts.items() if said is not None]


def _parts(tell: Callable[..., None]) -> Callable[[float], None]:
    return lambda share: tell(int(share * _PARTS), _PARTS)
