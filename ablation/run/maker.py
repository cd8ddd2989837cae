"""What a results file must know of those who make its rows: an engine of this process, or others elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ablation.plan.grid import Plan
from ablation.results import manifest
from sampling.engine import Engine, in_formats
from sampling.forward.kernels.autotune_cache import made
from sampling.pair.profile import LatencyProfile


class RowMaker(Protocol):
    """Says how rows come about, for the manifest beside them."""

    def describe(self, plan: Plan, name: str) -> dict[str, Any]:
        """A new manifest of the plan; with `hosts` where rows are to name theirs."""

    def profiles(self, plan: Plan) -> Mapping[str, LatencyProfile]:
        """The profiles in force by the format of the target's weights, once everything is warmed up."""

    def choices(self) -> Mapping[str, str]:
        """What was decided about the machine by trying, by question, once everything is warmed up."""


@dataclass(frozen=True, slots=True)
class OneEngine:
    """An engine of this process makes all rows."""

    engine: Engine

    def describe(self, plan: Plan, name: str) -> dict[str, Any]:
        """See `RowMaker.describe`."""
        return manifest.describe(plan, self.engine, name)

    def profiles(self, plan: Plan) -> dict[str, LatencyProfile]:
        """See `RowMaker.profiles`."""
        engines = in_formats(self.engine, plan.formats)
        return {name: profile for name, engine_of in engines.items() if (profile := engine_of.profile()) is not None}

    def choices(self) -> dict[str, str]:
        """See `RowMaker.choices`."""
        return {question: str(choice) for question, choice in made().items()}
