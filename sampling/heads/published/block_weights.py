"""What the config.json of a Llama-like block says, and which weights such a block has."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sampling.heads.config import HeadConfig
from sampling.heads.published.files import HeadFiles, check_shapes
from utils.errors import one_of

STATIC_ROPE = ("default", "linear", "llama3", "yarn")
USUAL_WINDOW = 2048
"""Positions of a block whose config.json does not say how many."""
_BIASES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def block_fields(files: HeadFiles, config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `HeadConfig` that a transformers config of a block gives.

    Raises `UserError` for what our block does not compute: another activation, windowed attention, a rotary
    embedding of a part of each head or one that changes with the length.
    """
    if config.get("hidden_act", "silu") != "silu":
        raise files.refuse(f"its activation is {config['hidden_act']}", "silu")
    kinds = {kind for kind in config.get("layer_types") or () if kind != "full_attention"}
    windowed = config.get("use_sliding_window", config.get("model_type") == "mistral") and config.get("sliding_window")
    if kinds or windowed:
        raise files.refuse(f"its attention is {', '.join(kinds) or 'windowed'}", "full attention")
    for name in ("num_attention_heads", "hidden_size"):
        if name in config and (type(config[name]) is not int or config[name] < 1):
            raise files.refuse(f"{name} is {config[name]!r} in its config.json", "an integer of 1 or more")
    try:
        heads, size = config["num_attention_heads"], config["hidden_size"]
        return {
            "hidden_size": size,
            "vocab_size": config["vocab_size"],
            "intermediate_size": config["intermediate_size"],
            "heads": heads,
            "kv_heads": config.get("num_key_value_heads") or heads,
            "head_dim": config.get("head_dim") or size // heads,
            "rms_norm_eps": config.get("rms_norm_eps", 1e-6),
            "window": config.get("max_position_embeddings", USUAL_WINDOW),
            **_rope_fields(files, config),
        }
    except KeyError as error:
        raise files.refuse(f"its config.json has no {error.args[0]}", "the config of a Llama-like block") from error


def _rope_fields(files: HeadFiles, config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary base and scaling, from `rope_parameters` or, as older configs have it, `rope_scaling`."""
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    theta = rope.pop("rope_theta", None) or config.get("rope_theta") or 10_000.0
    kind = rope.pop("type", None)
    kind = rope.setdefault("rope_type", kind or "default")
    if kind not in STATIC_ROPE:
        raise files.refuse(f"its rotary embedding is {kind}", one_of(STATIC_ROPE))
    if config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise files.refuse("its rotary embedding turns only a part of each head", "one that turns all of it")
    return {"rope_theta": float(theta), "rope_scaling": None if kind == "default" else rope}


def check_block(files: HeadFiles, config: HeadConfig, weights: Mapping[str, Tensor]) -> None:
    """Raises `UserError` where the weights under `block.` are not those of our block."""
    size, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    wide = (1 if config.fuse == "linear" else 2) * size
    queries, keys = config.heads * dim, config.kv_heads * dim
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (queries, wide),
        "self_attn.k_proj.weight": (keys, wide),
        "self_attn.v_proj.weight": (keys, wide),
        "self_attn.o_proj.weight": (size, queries),
        "mlp.gate_proj.weight": (inner, size),
        "mlp.up_proj.weight": (inner, size),
        "mlp.down_proj.weight": (size, inner),
        "post_attention_layernorm.weight": (size,),
    }
    optional: dict[str, tuple[int, ...]] = {
        **{f"{name.removesuffix('.weight')}.bias": shape[:1] for name, shape in shapes.items() if "_proj" in name},
        "self_attn.q_norm.weight": (dim,),
        "self_attn.k_norm.weight": (dim,),
        "input_layernorm.weight": (size,),
    }
    block = {name.removeprefix("block."): weight for name, weight in weights.items() if name.startswith("block.")}
    strange = sorted(set(block) - set(shapes) - set(optional))
    if strange:
        raise files.refuse(f"its block has {', '.join(strange)}", f"only {', '.join((*shapes, *optional))}")
    for joined in (_BIASES, ("mlp.gate_proj", "mlp.up_proj")):
        if len({f"{name}.bias" in block for name in joined}) > 1:
            raise files.refuse(f"only some of {', '.join(joined)} have a bias", "all or none")
    check_shapes(files, block, shapes | {name: shape for name, shape in optional.items() if name in block})
