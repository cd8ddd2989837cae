"""Whether runs take the times that a profile says: one that no longer holds is measured again."""

from statistics import median

from sampling.engine import Engine
from sampling.measure.ledger import RunAccount
from sampling.methods.method import FIXED
from sampling.methods.parameters import WEIGHTS
from sampling.methods.tables import AR, METHODS
from sampling.pair.local_engine import is_local
from sampling.pair.profile import LatencyProfile
from sampling.pair.profile_store import drop
from utils.device.machine import BUSY_CORES
from utils.parameter import Values

TOLERANCE = 0.15
_RUNS, _ROUNDS = 3, 8
# Shares of a forward: less is no matter for whoever weighs costs, and mostly noise.
_SEEN = 0.05
_FORWARD = "the target's forward"


class ProfileDrift:
    """The times of runs over those of a profile, of runs that no other process disturbed."""

    def __init__(self, profile: LatencyProfile) -> None:
        self.profile = profile
        self._ratios: dict[str, list[float]] = {}

    def add(self, name: str, values: Values, run: RunAccount, context: float, other_cores: float | None) -> None:
        """One run of a method, behind so many tokens on average.

        Drafts count where the profile timed the same: one drafter in its usual weights, its length a plain number.
        """
        method = METHODS[name]
        price = method.cost_model(self.profile, values, round(context))
        quiet = other_cores is not None and other_cores <= BUSY_CORES
        if not quiet or price is None or not run.rounds or run.rounds < _ROUNDS:
            return
        if name == AR:
            self._note(_FORWARD, run.verify_ms, price.verify_s(0))
            return
        drafts = (run.drafted or 0) / run.rounds
        plain = method.controller in FIXED and values[WEIGHTS.name] == WEIGHTS.default
        alone = method.parts[0].hybrid is None and not method.drafts_trees(values)
        if drafts and plain and alone and price.draft_s(drafts) > _SEEN * price.verify_s(0):
            self._note(f"{method.drafter}'s drafting", run.draft_ms, price.draft_s(drafts))

    def _note(self, what: str, measured_ms: float | None, expected_s: float) -> None:
        if measured_ms is not None:
            self._ratios.setdefault(what, []).append(measured_ms / 1e3 / expected_s)

    def told(self) -> str | None:
        """What differs by more than `TOLERANCE` in the median of several runs; None where nothing does."""
        known = {what: median(ratios) for what, ratios in self._ratios.items() if len(ratios) >= _RUNS}
        off = [f"{what} {ratio:.2f}" for what, ratio in known.items() if abs(ratio - 1.0) > TOLERANCE]
        if not off:
            return None
        return (
            f"times differ from the profile's, measured over expected: {', '.join(off)}; it is measured anew next time"
        )


def settle(engine: Engine, drift: ProfileDrift) -> str | None:
    """What differs; what was kept of the engine's pair then goes, so that the next process measures anew."""
    said = drift.told()
    if said is not None and is_local(engine):
        drop(engine.pair)
    return said
