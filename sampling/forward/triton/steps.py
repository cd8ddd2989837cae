"""The steps of a block by our kernels: fewer launches, and less that goes through memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sampling.forward.kernels.linear import Prepared
from sampling.forward.kernels.quantisation_scales import FP8, FP8_LARGEST, FP8_LOWEST, FP8_TYPE
from sampling.forward.kernels.scores import Masks, Scores
from sampling.forward.models.steps import SILU, Destination, Norm, ProductFormat, StepRows, Steps, left
from sampling.forward.triton.launch import OPTIONS, Launch, power_of_two

_TILE = 1024


@dataclass(frozen=True, slots=True)
class TritonSteps(Steps):
    """Steps that give what `Steps` gives, to rounding. Norms that take the mean off stay plain.

    fp8: whether rows are rounded for products in fp8 in the steps that lead to them.
    """

    fp8: bool = False

    def attend(
        self,
        raw: Tensor,
        rest: Prepared,
        of: ProductFormat,
        norms: tuple[Norm | None, Norm | None],
        cos: Tensor,
        sin: Tensor,
        rows: StepRows,
        masks: Masks | None,
        scores: Scores,
    ) -> Tensor:
        """See `Steps.attend`. Where the cache says where they go, keys and values go there at once."""
        to = rows.destination()
        if to is None or not _by_head(norms, self.shape.head_dim):
            return Steps.attend(self, raw, rest, of, norms, cos, sin, rows, masks, scores)
        mixed = _by_row(left(raw, rest, of).to(cos.dtype))
        query = mixed.new_empty(len(mixed), self.shape.heads, self.shape.head_dim)
        self.turning(mixed, norms, cos, sin, query, to).run()
        return rows.attend_stored(query, scores)

    def turning(
        self,
        mixed: Tensor,
        norms: tuple[Norm | None, Norm | None],
        cos: Tensor,
        sin: Tensor,
        query: Tensor,
        to: Destination,
    ) -> Launch:
        """The kernel that turns queries, `[n, heads, head_dim]`, and stores keys and values."""
        from sampling.forward.triton.step_kernels import turn_and_store

        shape, (of_query, of_keys) = self.shape, norms
        weights = mixed if of_query is None else of_query.weight, mixed if of_keys is None else of_keys.weight
        eps = 0.0 if of_query is None else of_query.eps, 0.0 if of_keys is None else of_keys.eps
        tensors = mixed, cos, sin, *weights, query, to.keys, to.values, to.places
        return Launch(
            turn_and_store,
            (len(mixed), shape.heads + 2 * shape.kv_heads),
            (*tensors, *eps, mixed.stride(0), to.row_step, to.head_step, to.head_rows),
            {"HEADS": shape.heads, "KV_HEADS": shape.kv_heads, "DIM": shape.head_dim}
            | {"WIDE": power_of_two(shape.head_dim), "NORMED": of_query is not None, "num_warps": 1, **OPTIONS},
        )

    def join(
        self,
        x: Tensor,
        raw: Tensor,
        rest: Prepared,
        of: ProductFormat,
        norms: tuple[Norm | None, Norm | None],
        into: ProductFormat,
    ) -> tuple[Tensor, Prepared]:
        """See `Steps.join`."""
        if any(norm is not None and norm.centred for norm in norms):
            return Steps.join(self, x, raw, rest, of, norms, into)
        joined = torch.empty_like(x, memory_format=torch.contiguous_format)
        rounding = self.fp8 and into.arithmetic is FP8
        plain = norms[1] is None and not rounding
        normed = joined if plain else torch.empty_like(joined, dtype=FP8_TYPE if rounding else joined.dtype)
        scales = joined.new_empty(len(joined), 1, dtype=torch.float32) if rounding else None
        self.adding(_by_row(x), _by_row(left(raw, rest, of).to(x.dtype)), norms, joined, normed, scales).run()
        return joined, into.arithmetic.enter(normed) if scales is None else (normed, scales)

    def adding(
        self,
        x: Tensor,
        more: Tensor,
        norms: tuple[Norm | None, Norm | None],
        joined: Tensor,
        normed: Tensor,
        scales: Tensor | None = None,
    ) -> Launch:
        """The kernel that adds, and takes the norm of the sum; norms: see `Steps.join`.

        scales: `[n, 1]`, where `normed` is in fp8.
        """
        from sampling.forward.triton.step_kernels import add_and_norm

        width, (after, norm) = x.shape[1], norms
        weights = x if after is None else after.weight, x if norm is None else norm.weight
        eps = 0.0 if after is None else after.eps, 0.0 if norm is None else norm.eps
        wide = power_of_two(width)
        tensors = x, more, *weights, joined, normed, x if scales is None else scales
        return Launch(
            add_and_norm,
            (len(x),),
            (*tensors, self.shape.residual_scale, *eps, width, x.stride(0), more.stride(0)),
            {"WIDE": wide, "AFTER": after is not None, "NORM": norm is not None, **_fp8_numbers(scales is not None)}
            | {"num_warps": min(16, max(4, wide // 512)), **OPTIONS},
        )

    def gate(self, raw: Tensor, rest: Prepared, of: ProductFormat, into: ProductFormat) -> Prepared:
        """See `Steps.gate`."""
        if not self.fp8 or into.arithmetic is not FP8:
            return Steps.gate(self, raw, rest, of, into)
        both = _by_row(left(raw, rest, of))
        out = both.new_empty(len(both), both.shape[1] // 2, dtype=FP8_TYPE)
        scales = both.new_empty(len(both), 1, dtype=torch.float32)
        self.rounding(both, out, scales).run()
        return out, scales

    def rounding(self, both: Tensor, out: Tensor, scales: Tensor) -> Launch:
        """The kernel that multiplies activation(gate) with up, and rounds that to fp8 with its scales `[n, 1]`."""
        from sampling.forward.triton.step_kernels import gate_up_and_round

        return Launch(
            gate_up_and_round,
            (len(out),),
            (both, out, scales, out.shape[1], both.stride(0)),
            {"TILE": 2 * _TILE, "SILU": self.shape.gate == SILU, **_fp8_numbers(True), "num_warps": 8, **OPTIONS},
        )

    def gated(self, both: Tensor) -> Tensor:
        """See `Steps.gated`."""
        out = both.new_empty(len(both), both.shape[1] // 2)
        self.gating(_by_row(both), out).run()
        return out

    def gating(self, both: Tensor, out: Tensor) -> Launch:
        """The kernel that multiplies activation(gate) with up."""
        from sampling.forward.triton.step_kernels import gate_and_up

        rows, width = out.shape
        return Launch(
            gate_and_up,
            (rows, -(-width // _TILE)),
            (both, out, width, both.stride(0)),
            {"TILE": _TILE, "SILU": self.shape.gate == SILU, "num_warps": 4, **OPTIONS},
        )


def _fp8_numbers(there: bool) -> dict[str, float]:
    """What kernels know of fp8; no numbers where nothing is rounded to it."""
    return {"LARGEST": FP8_LARGEST if there else 0.0, "LOWEST": FP8_LOWEST if there else 0.0}


def _by_row(rows: Tensor) -> Tensor:
    """The same, the numbers of a row side by side."""
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _by_head(norms: tuple[Norm | None, Norm | None], dim: int) -> bool:
    """Whether both norms are of each head, or there is none."""
    query, keys = norms
    if query is None or keys is None:
        return query is keys
    return all(len(norm.weight) == dim and not norm.centred for norm in (query, keys))
