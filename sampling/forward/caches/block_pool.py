"""The blocks of a cache by number: which are free, and how many sequences share each of the others."""

from collections.abc import Iterable, Sequence


class BlockPool:
    """A free list and reference counts. It knows numbers alone, no rows and no cache.

    A block is taken by one, and shared with more. It is free again when the last of them has given it back.
    """

    def __init__(self) -> None:
        self._free: list[int] = []
        self._others: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody has."""
        return len(self._free)

    @property
    def any_shared(self) -> bool:
        """Whether several have the same block."""
        return bool(self._others)

    def add(self, blocks: Sequence[int]) -> None:
        """New blocks, free. The lowest of them is taken first."""
        self._free += sorted(blocks, reverse=True)

    def clear(self) -> None:
        """Forget all blocks; nobody has one."""
        self._free.clear()

    def take(self, count: int) -> list[int]:
        """So many free blocks, at most `free`."""
        return [self._free.pop() for _ in range(count)]

    def sharers(self, block: int) -> int:
        """How many have a block that is not free."""
        return 1 + self._others.get(block, 0)

    def share(self, block: int) -> int:
        """One more has a block, until it is given back; its number."""
        self._others[block] = self.sharers(block)
        return block

    def give_back(self, blocks: Iterable[int]) -> None:
        """One has these blocks no longer; those that nobody has are free."""
        for block in blocks:
            others = self._others.pop(block, 0)
            if others > 1:
                self._others[block] = others - 1
            elif not others:
                self._free.append(block)
