"""The contract for which drafts of a finished proposal are verified, and the default: all."""

from collections.abc import Sequence


class Truncation:
    """Cuts the end of a proposal that was not drawn: a copy, or the nodes of a tree. The default keeps all."""

    def truncate(self, chances: Sequence[float], match: int = 0, parents: Sequence[int] | None = None) -> int:
        """The number of drafts to verify, from the first on.

        chances: the drafter's probability of each draft's path, most probable first. match: the number of tokens of the
        text that the copy matched. parents: of a tree, see `Proposal`. The arguments must follow from the text alone,
        so that the cut causes no bias. For a tree of drawn nodes, chances are those of the ranks and not of the drawn
        tokens.
        """
        return len(chances)

    def assign_rows(self, rows: Sequence[int]) -> None:
        """Set the rows of the kept drafts in a proposal that also has drafts of other drafters."""
