"""Tables of named things: what can be listed, completed, documented and tested by looping."""

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar

from utils.errors import UnknownName, UserError


class NamedEntry(Protocol):
    """Anything a registry can hold."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=NamedEntry)


class Registry(Mapping[str, T]):
    """A table by name, in declaration order; a wrong name is an error that helps.

    `kind` is what an entry is called in messages ("drafter", "command"), `listed` says where a long table can be read.
    Entries that are declared stay as they are; a program may `enter` its own behind them.
    Raises `ValueError` when two entries share a name.
    """

    def __init__(self, kind: str, *entries: T, listed: str = "") -> None:
        self.kind, self.listed = kind, listed
        self._entries = {entry.name: entry for entry in entries}
        if len(self._entries) != len(entries):
            raise ValueError(f"two entries of one name in the table of {kind}s")
        self._declared = frozenset(self._entries)

    def declared(self, name: str) -> bool:
        """Whether an entry of this name was declared, and may not be replaced."""
        return name in self._declared

    def refuse(self, name: str) -> None:
        """Raises `UserError` for the name of a declared entry."""
        if self.declared(name):
            raise UserError(f"{self.kind} {name!r} is the project's own; expected another name")

    def enter(self, entry: T) -> None:
        """Put an entry behind the others, or in the place of one that was entered under its name.

        Raises `UserError` for the name of a declared entry.
        """
        self.refuse(entry.name)
        self._entries[entry.name] = entry

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownName(self.kind, name, self._entries, self.listed) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
