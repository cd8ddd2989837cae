"""A decoder-only model in one description: sizes, norms, rotary tables, scores, and what its weights are called."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from sampling.forward.kernels.scores import PLAIN_SCORES, Scores
from sampling.forward.models.steps import BlockShape

STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary tables that do not change with the text."""
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class NormNames:
    """What the norms of a block are called; None where it has none.

    attention, mlp: before each half of a block. attention_after, mlp_after: of what the half adds.
    """

    attention: str | None = "input_layernorm"
    mlp: str | None = "post_attention_layernorm"
    attention_after: str | None = None
    mlp_after: str | None = None


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """The weights of a mixture's layer, stacked by expert, and how its router chooses.

    transposed: stacks are `[experts, in, out]`, else `[experts, out, in]`. gate: of gate and up side by side.
    interleaved: they alternate in the stack.
    """

    router: str
    gate_up: str
    down: str
    top: int
    gate: Callable[[Tensor], Tensor]
    renormalised: bool = True
    chosen_first: bool = False
    transposed: bool = False
    interleaved: bool = False


@dataclass(frozen=True, slots=True)
class BlockNames:
    """What the weights of a block are called, and how they become those of a `Layer`.

    gain: added to the weight of every norm (Gemma's is 1 + w). centred: norms take the mean off. order: of a head's
    numbers as the rotary turn has them; None as they are. turned: heads of queries and keys, and all heads, those of
    values included. sinks: their name.
    """

    norms: NormNames = NormNames()
    gain: float = 0.0
    centred: bool = False
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    out: str = "self_attn.o_proj"
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"
    order: tuple[int, ...] | None = None
    turned: tuple[int, int] = (2, 3)
    sinks: str | None = None


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """What is its own in a layer: scores, rotary table (None: no rotation), experts (None: one MLP)."""

    scores: Scores = PLAIN_SCORES
    table: int | None = 0
    experts: ExpertNames | None = None

    def with_table(self, still: int) -> "DecoderLayer":
        """The same layer, the table `still`, which does not turn, in place of none."""
        return replace(self, table=still) if self.table is None else self


@dataclass(frozen=True, slots=True)
class DecoderDescription:
    """A decoder-only model. inner: width of an MLP, or of an expert. ropes: parameters of each rotary table.

    embedding_scale, logit_scale: factors. logit_cap: see `Scores.cap`. names: of its blocks' weights. divides: whether
    each of its weights can be cut for several processes by whole heads.
    """

    shape: BlockShape
    layers: tuple[DecoderLayer, ...]
    eps: float
    inner: int
    ropes: tuple[Mapping[str, Any], ...]
    names: BlockNames = BlockNames()
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float | None = None
    divides: bool = True


def head_dim_of(config: Any) -> int:
    """The width of a head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def layer_types(config: Any) -> list[str]:
    """The type of each layer's attention; without types, a window counts for all of them."""
    windowed = getattr(config, "sliding_window", None) is not None
    types = getattr(config, "layer_types", None)
    return list(types or [SLIDING if windowed else FULL] * config.num_hidden_layers)


def windows(config: Any) -> list[int | None]:
    """The window of each layer, None where no text outgrows it."""
    size = getattr(config, "sliding_window", None)
    narrow = size is not None and size < config.max_position_embeddings
    return [size if narrow and kind == SLIDING else None for kind in layer_types(config)]


def rope_parameters(config: Any) -> Mapping[str, Any]:
    """The parameters of a model with one rotary table."""
    return getattr(config, "rope_parameters", None) or {"rope_type": "default", "rope_theta": 10000.0}


def rotary_dim(config: Any, rope: Mapping[str, Any]) -> int:
    """How many numbers of a head are turned."""
    return int(head_dim_of(config) * (rope.get("partial_rotary_factor") or 1.0))


def head_order(dim: int, turned: int, interleaved: bool) -> tuple[int, ...] | None:
    """The numbers of a head in the order that turns number i with number i + D / 2; None where that is theirs already.

    The first `turned` of them are turned: halves with halves, or, interleaved, each with the next. The others go to
    the ends of both halves, where the table has no rotation. Queries and keys are ordered alike, so no score changes.
    """
    if turned == dim and not interleaved:
        return None
    half, rest = turned // 2, (dim - turned) // 2
    firsts = range(0, turned, 2) if interleaved else range(half)
    seconds = range(1, turned, 2) if interleaved else range(half, turned)
    return (*firsts, *range(turned, turned + rest), *seconds, *range(turned + rest, dim))
