"""What the config.json of a Llama-like block says, and which weights such a block has."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sampling.heads.config import HeadConfig
from sampling.heads.published.files import HeadFiles, check_shapes
from utils.errors import one_of

STATIC_ROPE = ("default", "linear", "llama3", "yarn")
FULL, SLIDING = "full_attention", "sliding_attention"
WINDOWED = "Eagle4"
"""In the name of an architecture whose layer has a window where there is one in its config.json."""
USUAL_WINDOW = 2048
"""Positions of a block whose config.json does not say how many."""
_BIASES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def block_fields(files: HeadFiles, config: Mapping[str, Any], layers: int | None = None) -> dict[str, Any]:
    """The fields of `HeadConfig` that a transformers config of a block gives.

    layers: how many blocks there are, where some of them may have a window. Raises `UserError` for what our block does
    not compute: another activation, other windows, a rotary embedding of a part of each head or one that changes with
    the length.
    """
    if config.get("hidden_act", "silu") != "silu":
        raise files.refuse(f"its activation is {config['hidden_act']}", "silu")
    if layers is None:
        _refuse_windows(files, config)
        blocks: dict[str, Any] = {}
    else:
        blocks = {"layers": layers, "attention_windows": _windows(files, config, layers)}
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
            **blocks,
        }
    except KeyError as error:
        raise files.refuse(f"its config.json has no {error.args[0]}", "the config of a Llama-like block") from error


def _windowed(config: Mapping[str, Any]) -> bool:
    """Whether a config without `layer_types` gives its layers the window that it has; Llama's own has none."""
    usual = config.get("model_type") == "mistral" or any(WINDOWED in name for name in config.get("architectures") or ())
    return bool(config.get("use_sliding_window", usual) and config.get("sliding_window"))


def _refuse_windows(files: HeadFiles, config: Mapping[str, Any]) -> None:
    kinds = sorted({kind for kind in config.get("layer_types") or () if kind != FULL})
    if kinds or _windowed(config):
        raise files.refuse(f"its attention is {', '.join(kinds) or 'windowed'}", "full attention")


def _windows(files: HeadFiles, config: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """See `HeadConfig.attention_windows`. A window of transformers counts a token itself, as ours does."""
    kinds, size = config.get("layer_types") or (), config.get("sliding_window")
    if strange := sorted({str(kind) for kind in kinds} - {FULL, SLIDING}):
        raise files.refuse(f"its attention is {', '.join(strange)}", one_of((FULL, SLIDING)))
    if SLIDING in kinds and len(kinds) != layers:
        raise files.refuse(f"layer_types has {len(kinds)} entries, and it has {layers} layers", "one for each layer")
    if not kinds and _windowed(config):
        first = config.get("max_window_layers", 0) if str(config.get("model_type")).startswith("qwen") else 0
        kinds = [SLIDING if layer >= first else FULL for layer in range(layers)]
    if SLIDING not in kinds:
        return ()
    if type(size) is not int or size < 1:
        raise files.refuse(f"sliding_window is {size!r} in its config.json", "an integer of 1 or more")
    return tuple(size if kind == SLIDING else 0 for kind in kinds)


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


def check_block(files: HeadFiles, config: HeadConfig, weights: Mapping[str, Tensor], prefix: str = "block.") -> None:
    """Raises `UserError` where the weights under a prefix are not those of our block."""
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
    block = {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
    strange = sorted(set(block) - set(shapes) - set(optional))
    if strange:
        raise files.refuse(f"its block has {', '.join(strange)}", f"only {', '.join((*shapes, *optional))}")
    for joined in (_BIASES, ("mlp.gate_proj", "mlp.up_proj")):
        if len({f"{name}.bias" in block for name in joined}) > 1:
            raise files.refuse(f"only some of {', '.join(joined)} have a bias", "all or none")
    check_shapes(files, block, shapes | {name: shape for name, shape in optional.items() if name in block}, prefix)
