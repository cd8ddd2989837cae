"""The contract for how far a tree of drafts is grown."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from egag.draft_distribution import DraftDistribution


class TreeGrowth(ABC):
    """Decides layer by layer. No drawn node is dropped."""

    @abstractmethod
    def start_tree(self, distribution: DraftDistribution | None, steps: int = 1) -> bool:
        """Whether to grow a tree, given the drafter's distribution of its first layer.

        steps: the steps of drafting done so far, above 1 for a drafter that predicts several positions in one forward.
        """

    @abstractmethod
    def acceptance(self, chance: float, depth: int) -> float:
        """The probability that a judged node is accepted.

        chance: the drafter's probability of the node. depth: from 0.
        """

    @abstractmethod
    def expand_layer(self, level: int, chances: Sequence[float], layer: Sequence[float]) -> bool:
        """Whether a tree of `level` layers gets one more.

        chances: the drafter's probability of each node's path. layer: those of the nodes that would be fed.
        """
