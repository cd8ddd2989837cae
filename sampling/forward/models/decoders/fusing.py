"""Weights by their transformers names into the layers of a lean forward."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sampling.forward.kernels.linear import Kernel, Product
from sampling.forward.kernels.probe import make_linear
from sampling.forward.models.blocks import Layer, Weights
from sampling.forward.models.decoders.description import BlockNames, DecoderLayer, ExpertNames
from sampling.forward.models.experts import Experts, Router, Woken
from sampling.forward.models.steps import Norm

LLAMA_NAMES = BlockNames()


def fuse(
    weights: Weights,
    prefix: str,
    eps: float,
    kernel: Kernel = make_linear,
    names: BlockNames = LLAMA_NAMES,
    layer: DecoderLayer | None = None,
) -> Layer:
    """One block of the weights behind `prefix`, its products computed by `kernel`; by default one like Llama's."""
    layer = layer or DecoderLayer()

    def norm(name: str | None, by_head: bool = False) -> Norm | None:
        weight = None if name is None else weights.pop(f"{prefix}{name}.weight", None)
        if weight is None:
            return None
        return norm_of(_ordered(weight, names.order) if by_head else weight, eps, names)

    def joined(*parts: str) -> Product:
        """Linear layers of one input as one product, outputs side by side."""
        weight = torch.cat([weights.pop(f"{prefix}{part}.weight") for part in parts])
        biases = [weights.pop(f"{prefix}{part}.bias") for part in parts if f"{prefix}{part}.bias" in weights]
        return kernel(weight, torch.cat(biases) if biases else None)

    sinks = None if names.sinks is None else weights.pop(f"{prefix}{names.sinks}")
    experts = None if layer.experts is None else _experts(weights, prefix, layer.experts, kernel)
    return Layer(
        attention_norm=norm(names.norms.attention),
        qkv=joined(*names.qkv) if names.order is None else _turned(weights, prefix, names, kernel),
        q_norm=norm("self_attn.q_norm", by_head=True),
        k_norm=norm("self_attn.k_norm", by_head=True),
        out=joined(names.out),
        mlp_norm=norm(names.norms.mlp),
        gate_up=None if experts else joined(*names.gate_up),
        down=None if experts else joined(names.down),
        attention_after=norm(names.norms.attention_after),
        mlp_after=norm(names.norms.mlp_after),
        scores=layer.scores if sinks is None else replace(layer.scores, sinks=sinks),
        table=layer.table or 0,
        experts=experts,
    )


def norm_of(weight: Tensor, eps: float, names: BlockNames) -> Norm:
    """A norm with this weight; with a gain it is wider than 16 bits, as the sum is in transformers."""
    if names.gain:
        weight = weight.to(torch.promote_types(weight.dtype, torch.float32)) + names.gain
    return Norm(weight, eps, names.centred)


def _turned(weights: Weights, prefix: str, names: BlockNames, kernel: Kernel) -> Product:
    """Queries, keys and values as one product, each head of queries and keys in the order of the turn."""
    joined: list[Tensor | None] = []
    for kind in ("weight", "bias"):
        there = [f"{prefix}{name}.{kind}" for name in names.qkv if f"{prefix}{name}.{kind}" in weights]
        rows = torch.cat([weights.pop(name) for name in there]) if there else None
        turning, heads = names.turned
        cut = 0 if rows is None else len(rows) * turning // heads
        joined.append(None if rows is None else torch.cat([_ordered(rows[:cut], names.order), rows[cut:]]))
    return kernel(*joined)


def _ordered(rows: Tensor, order: Sequence[int] | None) -> Tensor:
    """`[heads * D, ...]` with each head's rows in this order."""
    return rows if order is None else rows.unflatten(0, (-1, len(order)))[:, list(order)].flatten(0, 1)


def _experts(weights: Weights, prefix: str, names: ExpertNames, kernel: Kernel) -> Experts:
    gate_up, down = (_stack(weights, f"{prefix}{name}", names, kernel) for name in (names.gate_up, names.down))
    scores = weights.pop(f"{prefix}{names.router}.weight"), weights.pop(f"{prefix}{names.router}.bias", None)
    router = Router(*scores, names.top, names.renormalised, names.chosen_first)
    return Experts(router, gate_up, down, names.gate, Woken(0, len(down)))


def _stack(weights: Weights, name: str, names: ExpertNames, kernel: Kernel) -> tuple[Product, ...]:
    """The products of all experts; gate and up are laid side by side."""
    stack, bias = weights.pop(name), weights.pop(f"{name}_bias", None)
    stack = stack.transpose(1, 2) if names.transposed else stack
    if names.interleaved and name.endswith(names.gate_up):
        stack = torch.cat([stack[:, ::2], stack[:, 1::2]], dim=1)
        bias = None if bias is None else torch.cat([bias[:, ::2], bias[:, 1::2]], dim=1)
    biases = [None] * len(stack) if bias is None else list(bias)
    return tuple(kernel(weight.contiguous(), added) for weight, added in zip(stack, biases, strict=True))
