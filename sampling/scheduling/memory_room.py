"""Whether the next round of many texts fits in a bounded memory: see `BlockRows.fix`."""

from collections.abc import Sequence
from dataclasses import dataclass

from sampling import sequence
from sampling.forward.caches.blocks import BlockRows
from sampling.forward.sharing import SequenceSlot
from utils.errors import UserError


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """The blocks of a target. rows: that a text feeds in a round at most. longest: a text of so many tokens fits."""

    cache: BlockRows
    rows: int
    longest: int

    def holds(self, seqs: Sequence[sequence.Sequence], spare: int = 0) -> bool:
        """Whether the prompts and the next round of these texts fit, and `spare` blocks beside them."""
        return self.cache.has_free(sum(map(self._lacks, seqs)) + spare)

    def _lacks(self, seq: sequence.Sequence) -> int:
        assert isinstance(seq.runner, SequenceSlot)
        rows = seq.runner.cache
        return self.cache.lacks(rows.index, rows.length, len(seq.tokens) + self.rows)

    def check(self, seq: sequence.Sequence) -> None:
        """Raises `UserError` for a text that would not fit alone at its end."""
        if seq.end > self.longest:
            raise UserError(
                f"a text of up to {seq.end} tokens given; expected at most {self.longest}, which kv_memory has room for"
            )
