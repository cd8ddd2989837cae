"""Trained heads as they were laid out on a target, for drafters that are built anew."""

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar
from weakref import ref

from utils.device.spare import CACHES

T = TypeVar("T")


class KeptHeads:
    """What runs each head, with its rows and its graphs: a drafter of the same head on the same target takes it over.

    It is let go of with the target, and where memory runs out.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[ref[Any], Any]] = {}
        CACHES.add(self)

    def take(self, target: object, folder: Path | None, about: Hashable, make: Callable[[], T]) -> T:
        """What was made for this target; made now where it was not, or where the head's files are others by now.

        folder: of the head's files. about: what else it depends on.
        """
        key = id(target), folder, _written(folder), about
        self._made = {kept: (model, made) for kept, (model, made) in self._made.items() if model() is not None}
        if key not in self._made:
            self._made[key] = ref(target), make()
        made: T = self._made[key][1]
        return made

    def drop(self) -> None:
        """See `Spare.drop`: whoever drafts with one has it."""
        self._made.clear()


def _written(folder: Path | None) -> int:
    """When the files of a head were written last, in nanoseconds."""
    files = folder.iterdir() if folder is not None and folder.is_dir() else ()
    return max((file.stat().st_mtime_ns for file in files), default=0)
