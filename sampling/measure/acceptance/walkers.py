"""From a method and its settings to what walks along texts with its drafter."""

from collections.abc import Mapping
from typing import Any, Protocol

from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.drafters.heads.medusa_hydra import Heads
from sampling.heads.inference import RecurrentForward
from sampling.heads.parallel_forward import HydraForward, MedusaForward
from sampling.heads.recurrent_runner import RecurrentRunner
from sampling.measure.acceptance.fed import FedDrafter, FedHeads, FedModel, FedRecurrent
from sampling.measure.acceptance.follower import FedOneByOne, Follower, meet_own
from sampling.measure.acceptance.meeting import meet
from sampling.measure.acceptance.met import Met
from sampling.measure.acceptance.reading import GivenText
from sampling.measure.acceptance.target_rows import TargetRows
from sampling.methods.tables import METHODS
from sampling.pair.local_engine import LocalEngine
from sampling.pair.pair import Pair
from sampling.pair.processing import processor_of
from utils.errors import UserError

_PARALLEL: dict[str, type[MedusaForward]] = {"medusa": MedusaForward, "hydra": HydraForward}
_RECURRENT = ("eagle", "mtp")


class Walker(Protocol):
    """A drafter on its way along texts. layers: whose states of the target it reads. fed: see `Met.empty`."""

    @property
    def layers(self) -> tuple[int, ...]: ...

    @property
    def fed(self) -> bool: ...

    def begin(self, text: GivenText) -> None:
        """Another text, whose blocks follow in order."""
        ...

    def enter(self, met: Met, block: TargetRows) -> None:
        """Enter what it meets at the places of a block."""
        ...

    def end(self, met: Met) -> None:
        """The text's last block was entered."""
        ...


class FedWalker:
    """A drafter that is fed the text's own tokens at all depths."""

    fed = True

    def __init__(self, drafter: FedDrafter) -> None:
        self.drafter, self.layers = drafter, drafter.layers

    def begin(self, text: GivenText) -> None:
        """See `Walker`."""
        self.drafter.begin(text)

    def enter(self, met: Met, block: TargetRows) -> None:
        """See `Walker`."""
        meet(met, block, self.drafter, 1 if self.drafter.by_tokens else met.depth)

    def end(self, met: Met) -> None:
        """See `Walker`."""
        if self.drafter.by_tokens:
            met.spread()


class OwnWalker:
    """A drafter whose drafts follow its own."""

    fed = False

    def __init__(self, follower: Follower) -> None:
        self._follower, self.layers = follower, follower.layers

    def begin(self, text: GivenText) -> None:
        """See `Walker`."""
        self._follower.begin(text)

    def enter(self, met: Met, block: TargetRows) -> None:
        """See `Walker`."""
        meet_own(met, block, self._follower)

    def end(self, met: Met) -> None:
        """See `Walker`: nothing is left to do."""


def walker(engine: LocalEngine, method: str, values: Mapping[str, Any], depth: int, one_by_one: bool = False) -> Walker:
    """What walks with a method's drafter. one_by_one: never many places at once, which is the same and slower.

    Raises `UserError` for a method that drafts nothing, that cannot run, or whose drafters take turns.
    """
    line = METHODS[method]
    if not line.drafts or line.drafter == "auto" or line.runs != "target":
        what = "its drafters take turns" if line.drafter == "auto" else "it does not draft for the target"
        raise UserError(f"{method} given to walk along texts, but {what}; expected a method with one drafter")
    if lacking := engine.lacks(method, values):
        raise UserError(lacking)
    settings = {**values, **line.preset}
    if not one_by_one and not line.drafts_trees(settings) and (fed := _at_once(engine.pair, line.drafter, settings)):
        return FedWalker(fed)
    drafter, pair = engine.drafter(method, values), engine.pair
    processor = processor_of(pair, values["processor"], values["grammar"])
    follower = Follower(drafter, pair.target, processor, pair.stop, values["seed"], depth)
    if isinstance(drafter, ForwardDrafter) and drafter.shape is None:
        return FedWalker(FedOneByOne(follower))
    return OwnWalker(follower)


def _at_once(pair: Pair, drafter: str, values: Mapping[str, Any]) -> FedDrafter | None:
    """The drafter over many places at once, where there is such a way."""
    weights = values.get("draft_weights", "auto")
    if drafter == "model" and pair.crossing is None:
        return FedModel(pair.drafting(weights).another())
    if drafter in _PARALLEL:
        heads = pair.kept_head(drafter, _PARALLEL[drafter], weights, Heads)
        return FedHeads(heads, pair.target.model.num_layers, pair.target.window)
    if drafter in _RECURRENT:
        return FedRecurrent(pair.kept_head(drafter, RecurrentForward, weights, RecurrentRunner))
    return None


def target_itself(pair: Pair) -> Walker:
    """The target as its own drafter: everything is accepted."""
    return FedWalker(FedModel(pair.target.another()))
