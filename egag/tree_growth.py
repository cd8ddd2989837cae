"""How far a tree of drafts is grown: the contract of whoever decides it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from egag.draft_distribution import DraftDistribution


class TreeGrowth(ABC):
    """Decides layer by layer. No node that was drawn is taken back."""

    @abstractmethod
    def start_tree(self, distribution: DraftDistribution | None, steps: int = 1) -> bool:
        """Whether to grow a tree, given the drafter's distribution of its first layer.

        steps: of drafting that are done then; more than one where a drafter looks at several places in one pass.
        """

    @abstractmethod
    def acceptance(self, chance: float, depth: int) -> float:
        """That a node of a tree is accepted if it is judged, at a depth from 0 and with the drafter's chance of it."""

    @abstractmethod
    def expand_layer(self, level: int, chances: Sequence[float], layer: Sequence[float]) -> bool:
        """Whether a tree of `level` layers gets one more.

        chances: that each node and all above it are right, as the drafter tells it; layer: of those that would be fed.
        """
