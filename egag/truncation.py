"""Which drafts of a finished proposal are verified: the contract, and what keeps all of them."""

from collections.abc import Sequence


class Truncation:
    """Leaves out the end of a proposal that was not drawn: of copies, and of the nodes of trees. This one keeps all."""

    def truncate(self, chances: Sequence[float], match: int = 0, parents: Sequence[int] | None = None) -> int:
        """How many drafts to have verified, from the first one on.

        chances: that a draft and all before it are right, as the drafter tells it, most likely first. match: how many
        tokens of the text the copy was found by. parents: of a tree, as in a proposal. What is told here must follow
        from the text alone, so that leaving the end out biases nothing: of a tree of drawn nodes the chances are those
        of their ranks, and no chance of what was drawn.
        """
        return len(chances)

    def assign_rows(self, rows: Sequence[int]) -> None:
        """Where the drafts that were kept stand in the proposal, which has those of others as well."""
