"""The contract of a grammar that follows a text. What implements it is a library of its own, which is not imported."""

from abc import abstractmethod
from collections.abc import Sequence

from sampling.processors.text_processors import TextProcessor


class FollowedGrammar(TextProcessor):
    """A grammar behind the committed output of one text; drafts move nothing."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """What it took so far, on the host."""

    @abstractmethod
    def follow(self, output: Sequence[int]) -> None:
        """Move over the output tokens that were committed. Raises `CannotContinue` for one that it forbids."""

    @abstractmethod
    def may(self, path: Sequence[int], token: int) -> bool:
        """Whether a token may follow the output and the drafts of a path; behind an end of the text nothing may."""

    @abstractmethod
    def forced(self, limit: int) -> list[int]:
        """The tokens that must follow the output, at most so many."""

    @abstractmethod
    def check(self, path: Sequence[int]) -> None:
        """Raises `CannotContinue` where no token was left in a row of the round that the accepted path leads over."""

    def allowed(self, drafts: Sequence[int], pending: Sequence[int] = ()) -> int:
        """How many of the drafts may follow each other behind the output and `pending`."""
        for count, token in enumerate(drafts):
            if not self.may([*pending, *drafts[:count]], token):
                return count
        return len(drafts)

    def allowed_rows(self, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
        """The rows of a tree of drafts that may follow the output, each behind its ancestors."""
        paths, rows = {-1: list[int]()}, list[int]()
        for row, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
            if parent in paths and self.may(paths[parent], token):
                paths[row] = [*paths[parent], token]
                rows.append(row)
        return rows
