"""What a command answers: plain records. Whoever owns the screen renders them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One line that confirms."""

    text: str


@dataclass(frozen=True, slots=True)
class SheetSection:
    """Rows under a heading: name, value, explanation."""

    heading: str
    rows: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class SectionSheet:
    """Sections on one page: /help and /status."""

    title: str
    sections: tuple[SheetSection, ...]
    notes: tuple[str, ...] = ()


Reply = Message | SectionSheet
