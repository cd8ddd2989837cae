"""What may be asked of an engine whose models are in this process, beside what every engine answers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard

from sampling.batch import Batch
from sampling.drafter import Drafter
from sampling.engine import Engine, Text
from sampling.forward.runner import WholeRunner
from sampling.logits_probe import LogitsProbe
from sampling.pair.pair import Pair
from sampling.pair.profile import LatencyProfile
from sampling.prefilled.shared import Prefills
from sampling.scheduling.live_text import Request
from utils.events import Event


class LocalEngine(Engine, Protocol):
    """An engine whose models are loaded in this process, so that their parts can be read, kept and timed.

    raw: what watches the generations that begin from now on; None = nobody looks. prefills: where prompts come from
    that are read before; None = each generation reads its own.
    """

    raw: LogitsProbe | None
    prefills: Prefills | None

    @property
    def pair(self) -> Pair:
        """The models."""
        ...

    @property
    def target(self) -> WholeRunner:
        """What runs the target on one text."""
        ...

    def fresh(self) -> "LocalEngine":
        """Another engine on the same models, with empty caches and no memory."""
        ...

    def renew(self) -> None:
        """Begin with empty caches: whatever an interrupted forward left is gone."""
        ...

    def all_text(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        ...

    def vocabulary(self) -> Mapping[str, int]:
        """Every token of the target's tokenizer with its id."""
        ...

    def lacks(self, name: str, values: Mapping[str, Any]) -> str | None:
        """Why a method cannot run with these values; None where it can."""
        ...

    def drafter(self, name: str, values: Mapping[str, Any]) -> Drafter:
        """The drafter that `stream` uses with these values, with what it remembers."""
        ...

    def memories(self) -> list[tuple[str, str]]:
        """(run, what it keeps) of each drafter and rule that was used and keeps something."""
        ...

    def use_profile(self, profile: LatencyProfile | None) -> None:
        """Let what runs from now on weigh these costs."""
        ...

    def batch(self, name: str, values: Mapping[str, Any], size: int, run: str | None = None) -> Batch:
        """What writes many texts with one method, `size` of them at a time. Raises `UserError` where it cannot."""
        ...

    def request(self, name: str, values: Mapping[str, Any], text: Text) -> Request:
        """A text as such a batch takes it."""
        ...

    def walked(
        self,
        name: str,
        values: Mapping[str, Any],
        prompt: Sequence[int],
        most: int,
        raw: LogitsProbe,
        run: str | None = None,
    ) -> Iterator[Event]:
        """Events of a method that drafts `most` tokens at every position of the target's own text."""
        ...

    def in_format(self, name: str) -> "LocalEngine":
        """See `Engine.in_format`."""
        ...


def is_local(engine: Engine) -> TypeGuard[LocalEngine]:
    """Whether an engine's models are in this process."""
    return hasattr(engine, "pair")
