"""Mixtures of experts: Mixtral, Qwen 3 MoE, gpt-oss."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sampling.forward.models.decoders.description import DecoderDescription, ExpertNames
from sampling.forward.models.decoders.llama import llama
from sampling.forward.models.steps import gated

_ROUTER, _GATE_UP, _DOWN = "mlp.gate", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"


def mixtral(config: Any) -> DecoderDescription:
    """Mixtral (arXiv 2401.04088): every layer is a mixture."""
    gate = partial(gated, gate=config.hidden_act)
    experts = ExpertNames(_ROUTER, _GATE_UP, _DOWN, config.num_experts_per_tok, gate)
    return _with_experts(llama(config), experts)


def qwen3_moe(config: Any) -> DecoderDescription:
    """Qwen 3 with experts (arXiv 2505.09388): in some layers, or in all."""
    gate = partial(gated, gate=config.hidden_act)
    experts = ExpertNames(_ROUTER, _GATE_UP, _DOWN, config.num_experts_per_tok, gate, config.norm_topk_prob)
    step = config.decoder_sparse_step
    dense = {place for place in range(config.num_hidden_layers) if (place + 1) % step} | {*config.mlp_only_layers}
    return replace(_with_experts(llama(config), experts, dense), inner=config.moe_intermediate_size)


def gpt_oss(config: Any) -> DecoderDescription:
    """gpt-oss (arXiv 2508.10925): sinks, biases everywhere, a clamped gate, every other layer behind a window."""
    decoder = llama(config)
    gate = partial(_clamped, alpha=config.swiglu_alpha, limit=config.swiglu_limit)
    experts = ExpertNames(
        "mlp.router", _GATE_UP, _DOWN, config.num_experts_per_tok, gate,
        chosen_first=True, transposed=True, interleaved=True,
    )  # fmt: skip
    return replace(_with_experts(decoder, experts), names=replace(decoder.names, sinks="self_attn.sinks"))


def _with_experts(
    decoder: DecoderDescription, experts: ExpertNames, dense: set[int] | frozenset[int] = frozenset()
) -> DecoderDescription:
    layers = (
        layer if place in dense else replace(layer, experts=experts) for place, layer in enumerate(decoder.layers)
    )
    return replace(decoder, layers=tuple(layers), divides=False)


def _clamped(both: Tensor, alpha: float, limit: float) -> Tensor:
    """(up + 1) * gate * sigmoid(alpha * gate), gate and up kept within the limit."""
    gate, up = both.chunk(2, dim=-1)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * (gate * torch.sigmoid(alpha * gate))
