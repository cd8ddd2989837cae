"""A bound on the keys and values of all models that many texts share: see `BlockRows.fix`."""

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

from sampling.forward.caches.blocks import BlockRows, OutOfBlocks
from sampling.forward.sharing import SharedModel, SharedRunner
from sampling.heads.runner import HeadRunner
from sampling.pair.share import shared_runner
from sampling.scheduling.memory_room import MemoryRoom
from utils.errors import UserError
from utils.text import first_line

MB = 10**6


class KVPool:
    """At most so many bytes of keys and values, in blocks that texts take as they grow; as `Pair.share`, see there.

    Each model is shared once, by all batches. The target has as many blocks as fit beside its drafters', which have a
    few more: a draft never wants for a block that the target would have had.
    """

    def __init__(self, megabytes: int, share: Callable[[Any], SharedModel]) -> None:
        self.megabytes = megabytes
        self._make = share
        self._shared: dict[int, tuple[ref[Any], SharedRunner]] = {}
        self._heads: list[ref[HeadRunner[Any]]] = []
        self._for: tuple[int, int] | None = None

    def __call__(self, runner: Any) -> SharedModel:
        """The model of a runner for many sequences. Raises `UserError` for one whose rows do not lie in blocks."""
        self._shared = {key: kept for key, kept in self._shared.items() if kept[0]() is not None}
        model = runner.model
        if id(model) not in self._shared:
            made = self._make(runner)
            if not isinstance(made, SharedRunner) or not made.cache.in_blocks:
                name = type(getattr(model, "hf", model)).__name__
                raise UserError(
                    f"kv_memory {self.megabytes} given and {name} does not keep its rows in blocks; "
                    "expected kv_memory 0, or a model whose layers keep all rows"
                )
            self._shared[id(model)] = ref(model), made
        return self._shared[id(model)][1]

    def hold(self, head: Any) -> None:
        """Keep the rows of a trained head in blocks, too."""
        if isinstance(head, HeadRunner):
            head.use_blocks()
            self._heads.append(ref(head))

    def room(self, target: SharedModel, texts: int, rows: int) -> MemoryRoom:
        """Give all caches their blocks, but no more than texts can fill; what texts of this target must fit in.

        texts: at a time. rows: that one feeds in a round at most. Raises `UserError` where this is not enough for a
        text, or where a cache is new while texts of another batch are in progress.
        """
        assert isinstance(target, SharedRunner)
        own, others = target.cache, [cache for cache in self._caches() if cache is not target.cache]
        assert isinstance(own, BlockRows)
        more = texts * (2 + rows // own.block)
        if (self._for != (texts, rows) and self._idle) or not all(cache.fixed for cache in (own, *others)):
            bytes_each = own.block_bytes + sum(cache.block_bytes for cache in others)
            reserved = own.block_bytes + sum((1 + more) * cache.block_bytes for cache in others)
            needed = texts * (2 + (target.window + rows) // own.block)
            blocks = min((self.megabytes * MB - reserved) // bytes_each, needed)
            least = 2 + rows // own.block
            if blocks < least:
                wanted = -(-(reserved + least * bytes_each) // MB)
                raise UserError(f"kv_memory {self.megabytes} given; expected at least {wanted} MB for {texts} texts")
            self._fix(own, blocks)
            for cache in others:
                self._fix(cache, blocks + more)
            self._for = texts, rows
        return MemoryRoom(own, rows, (own.blocks - 1) * own.block - rows)

    def _fix(self, cache: BlockRows, blocks: int) -> None:
        try:
            cache.fix(blocks)
        except OutOfBlocks:
            raise UserError(
                "a method whose drafter has rows of its own was asked for while others answer within kv_memory "
                f"{self.megabytes}; expected it when nothing else is answered, or a server of that method"
            ) from None
        except RuntimeError as error:
            raise UserError(
                f"kv_memory {self.megabytes} given, which cannot be had here ({first_line(error)}); expected less"
            ) from None

    @property
    def _idle(self) -> bool:
        """Whether no text has a block."""
        return not any(table for cache in self._caches() for table in cache.tables.values())

    def _caches(self) -> list[BlockRows]:
        heads = [head for kept in self._heads if (head := kept()) is not None]
        caches = [kept.cache for _, kept in self._shared.values()] + [head.cache for head in heads]
        return [cache for cache in caches if isinstance(cache, BlockRows)]


class Sharing:
    """What makes models for the texts of an engine's batches, within a memory or not."""

    def __init__(self) -> None:
        self._pool: KVPool | None = None

    def within(self, megabytes: int) -> Callable[[Any], SharedModel]:
        """See `Pair.share`; megabytes: of keys and values at most, 0 = what texts need."""
        if not megabytes:
            self._pool = None
            return shared_runner
        if self._pool is None or self._pool.megabytes != megabytes:
            self._pool = KVPool(megabytes, partial(shared_runner, blocks=True))
        return self._pool

    def room(self, target: SharedModel, texts: int, rows: int) -> MemoryRoom | None:
        """What texts of a target must fit in, see `KVPool.room`; None where memory is not bounded."""
        return None if self._pool is None else self._pool.room(target, texts, rows)
