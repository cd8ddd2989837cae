"""Which part of each weight a process holds, after Megatron (arXiv 1909.08053).

The products that open a block's half (q, k, v, gate, up) are cut by outputs, those that close it (o, down) by inputs:
whole heads stay together, and the two sums a block are all that goes between processes. The output matrix is cut by
tokens. Embedding and norms are whole everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from utils.errors import UserError

_BY_OUTPUTS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_BY_INPUTS = ("o_proj", "down_proj")
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head"
_COUNTED: Mapping[str, str] = {
    "num_attention_heads": "attention heads",
    "num_key_value_heads": "key/value heads",
    "intermediate_size": "MLP neurons",
}


class StoredWeight(Protocol):
    """A weight that is read by parts: a tensor, or a slice of a safetensors file."""

    def __getitem__(self, place: Any, /) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class TensorCut:
    """The part of process `rank` of `size`."""

    rank: int
    size: int

    def lacks(self, name: str) -> bool:
        """Whether this process has nothing of a weight: a bias that is added to a sum is the first one's."""
        layer, _, kind = name.removesuffix(".weight").rpartition(".")
        return self.rank > 0 and kind == "bias" and layer.endswith(_BY_INPUTS)

    def of(self, name: str, stored: StoredWeight, outputs: int, inputs: int = 0) -> Tensor:
        """This process's part of a weight `[outputs, inputs]`, or of a bias `[outputs]`, by its transformers name.

        Example: o_proj.weight `[8, 6]` over 2 -> columns 3, 4 and 5 for process 1.
        """
        layer, _, kind = name.rpartition(".")
        if layer.endswith(_BY_OUTPUTS):
            return stored[self._slice(outputs)]
        if layer.endswith(_BY_INPUTS) and kind == "weight":
            return stored[:, self._slice(inputs)]
        if layer == HEAD:
            return stored[self.tokens(outputs)]
        return stored[:]

    def tokens(self, vocab_size: int) -> slice:
        """Rows of the output matrix; of a vocabulary that does not divide the last processes have fewer."""
        width = self.width(vocab_size)
        return slice(min(self.rank * width, vocab_size), min((self.rank + 1) * width, vocab_size))

    def width(self, vocab_size: int) -> int:
        """The most rows of the output matrix that a process has."""
        return -(-vocab_size // self.size)

    def _slice(self, count: int) -> slice:
        part = count // self.size
        return slice(self.rank * part, (self.rank + 1) * part)


def whole(weight: Tensor) -> Tensor:
    """A weight as one tensor; of one that is cut over processes, all of which have to ask, the parts put together."""
    joined: Tensor = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
    return joined


def refuse_uneven(name: str, config: Any, size: int) -> None:
    """Raise `UserError` for a model whose heads or MLP do not divide by the number of processes."""
    named = {key: getattr(config, key, None) for key in _COUNTED}
    counts = {key: count for key, count in named.items() if isinstance(count, int)}
    if all(count % size == 0 for count in counts.values()):
        return
    sizes = ", ".join(f"{count} {_COUNTED[key]}" for key, count in counts.items())
    most = min(counts.values())
    allowed = [str(n) for n in range(1, most + 1) if all(count % n == 0 for count in counts.values())]
    raise UserError(
        f"{name} has {sizes}, which do not divide over {size} processes; expected --nproc-per-node "
        f"{' or '.join(allowed)}"
    )
