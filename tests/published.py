"""Tiny heads with random weights in exactly the layouts that others publish, for the tiny Llama."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.tiny_models import LLAMA3_ROPE, SIZES, VOCAB

SIZE, HEADS, KV_HEADS, INNER = 48, 4, 2, 64
DIM = SIZE // HEADS
DRAFTED = 90
LLAMA = {
    "hidden_act": "silu", "hidden_size": SIZE, "intermediate_size": INNER, "max_position_embeddings": 80,
    "model_type": "llama", "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "num_hidden_layers": 1,
    "rms_norm_eps": 1e-3, "rope_theta": 5000.0, "vocab_size": VOCAB,
}  # fmt: skip
BASE = "base_model_name_or_path"

Made = tuple[dict[str, Any], dict[str, Tensor]]


def random(*shape: int) -> Tensor:
    """Of a size that keeps rows as long as they were."""
    return torch.randn(*shape) * shape[-1] ** -0.5


def linear(name: str, out: int, into: int, bias: bool = False) -> dict[str, Tensor]:
    return {f"{name}.weight": random(out, into)} | ({f"{name}.bias": random(out)} if bias else {})


def norms(*names: str) -> dict[str, Tensor]:
    return {f"{name}.weight": 1 + random(SIZE) for name in names}


def block(prefix: str, wide: int = SIZE, bias: bool = False, dim: int = DIM) -> dict[str, Tensor]:
    attention = f"{prefix}self_attn"
    return {
        **linear(f"{attention}.q_proj", HEADS * dim, wide, bias),
        **linear(f"{attention}.k_proj", KV_HEADS * dim, wide, bias),
        **linear(f"{attention}.v_proj", KV_HEADS * dim, wide, bias),
        **linear(f"{attention}.o_proj", SIZE, HEADS * dim),
        **linear(f"{prefix}mlp.gate_proj", INNER, SIZE),
        **linear(f"{prefix}mlp.up_proj", INNER, SIZE),
        **linear(f"{prefix}mlp.down_proj", SIZE, INNER),
        **norms(f"{prefix}post_attention_layernorm"),
    }


def vocabulary() -> dict[str, Tensor]:
    ids = torch.randperm(VOCAB)[:DRAFTED].sort().values
    return {"d2t": ids - torch.arange(DRAFTED), "t2d": torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, ids, True)}


def medusa(own: bool = True) -> Made:
    weights: dict[str, Tensor] = {}
    for k in range(3):
        for j in range(2):
            weights |= linear(f"{k}.{j}.linear", SIZE, SIZE, bias=True)
        weights |= linear(f"{k}.2", VOCAB, SIZE) if own else {}
    return {"medusa_num_heads": 2, "medusa_num_layers": 2, BASE: "some/vicuna"}, weights


def hydra() -> Made:
    weights = {"input_embed_fn.weight": random(VOCAB, SIZE)}
    for k in range(3):
        for name in ("linear", "res_connection"):
            weights |= linear(f"hydra_mlp.{k}.0.{name}", SIZE, (k + 2) * SIZE, bias=True)
        weights |= linear(f"hydra_mlp.{k}.1.linear", SIZE, SIZE, bias=True)
        weights |= linear(f"hydra_lm_head.{k}", VOCAB, SIZE, bias=True)
    config = {"hydra_num_heads": 3, "hydra_num_layers": 2, "hydra_head_arch": "mlp", "grounded_heads": True}
    return config | {"hidden_state_offset": 0, BASE: "some/vicuna"}, weights


def eagle(bias: bool) -> Made:
    weights = {"embed_tokens.weight": random(VOCAB, SIZE), **linear("fc", SIZE, 2 * SIZE, bias)}
    weights |= block("layers.0.", bias=bias) | {"layers.0.self_attn.rotary_emb.inv_freq": random(DIM // 2)}
    return LLAMA | {"architectures": ["LlamaForCausalLM"], "bias": bias, "qkv_bias": bias}, weights


def eagle3(**extra: Any) -> Made:
    weights = {
        **block("midlayer.", 2 * SIZE),
        **norms("midlayer.hidden_norm", "midlayer.input_layernorm", "norm"),
        **linear("fc", SIZE, 3 * SIZE),
        **linear("lm_head", DRAFTED, SIZE),
        **vocabulary(),
    }
    return LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFTED, **extra}, weights


def eagle3_with_layers() -> Made:
    """It names the states that it reads as SGLang counts them: what comes out of the layers 0 and 1."""
    layers = {"eagle_aux_hidden_state_layer_ids": [0, 1], "use_aux_hidden_state": True}
    config, weights = eagle3(eagle_config=layers)
    return config, weights | linear("fc", SIZE, 2 * SIZE)


def eagle31(flag: str) -> Made:
    """Norms in front of `fc`, and own states behind the norm fed back."""
    config, weights = eagle3(**{flag: True}, norm_output=True)
    if flag == "fc_norm":
        return config, weights | norms(*(f"fc_norm.{place}" for place in range(3)))
    return config, weights | {"input_norm.weight": 1 + random(3 * SIZE)}


def eagle3_of_target_depth() -> Made:
    """Its one layer is called `midlayer`, and its config repeats the number of layers of a target."""
    return eagle3(num_hidden_layers=40)


def counted(count: int, later_norm: str = "input_layernorm") -> dict[str, Tensor]:
    """So many `layers.N`: the first reads embedding and feature, the others what the one before gives."""
    weights = block("layers.0.", 2 * SIZE) | norms("layers.0.hidden_norm", "layers.0.input_layernorm", "norm")
    for number in range(1, count):
        weights |= block(f"layers.{number}.") | norms(f"layers.{number}.{later_norm}")
    return weights | linear("fc", SIZE, 3 * SIZE) | linear("lm_head", DRAFTED, SIZE) | vocabulary()


def eagle3_counted(count: int, later_norm: str = "input_layernorm", **extra: Any) -> Made:
    """vLLM's layout, or TensorRT-LLM's, where the norm in front of a later layer is `hidden_norm`."""
    config = LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFTED}
    return config | {"num_hidden_layers": count, **extra}, counted(count, later_norm)


def speculators_eagle3_layers() -> Made:
    """Three layers, of which the first and the last have a window."""
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    inner = LLAMA | {"num_hidden_layers": 3, "layer_types": kinds, "sliding_window": 5}
    return speculators("eagle3", inner, draft_vocab_size=DRAFTED), counted(3)


def eagle4() -> Made:
    """One layer with a window, all tokens, EAGLE-3.1's norms and feedback, and a candidate head beside `lm_head`."""
    config = LLAMA | {"architectures": ["LlamaForCausalLMEagle4"], "sliding_window": 6, "norm_output": True}
    weights = {name: weight for name, weight in counted(1).items() if name not in ("d2t", "t2d")}
    weights |= norms(*(f"fc_norm.{place}" for place in range(3))) | linear("lm_head", VOCAB, SIZE)
    weights |= linear("efficient_lm_head_down_proj", 7, SIZE) | linear("efficient_lm_head", VOCAB, 7)
    found = {"type": "low_rank", "rank": 7, "num_candidates": 90}
    config |= {"fc_norm": True, "efficient_lm_head_config": found}
    return config, weights | {"embed_tokens.weight": random(VOCAB, SIZE)}


def eagle3_narrow() -> Made:
    """Narrower than its target, and so with an embedding of its own."""
    narrow = 32
    with patch(f"{__name__}.SIZE", narrow):
        config, weights = eagle3(hidden_size=narrow, head_dim=DIM)
    weights |= linear("fc", narrow, 3 * SIZE) | {"embed_tokens.weight": random(VOCAB, narrow)}
    return config | {"target_hidden_size": SIZE}, weights


def speculators(kind: str, inner: Mapping[str, Any], **extra: Any) -> dict[str, Any]:
    verifier = {"architectures": ["LlamaForCausalLM"], "name_or_path": "some/llama"}
    return {
        "speculators_model_type": kind,
        "speculators_config": {"algorithm": kind, "verifier": verifier},
        "transformer_layer_config": dict(inner),
        **extra,
    }


def speculators_eagle(layernorms: bool) -> Made:
    weights = linear("fusion_fc", SIZE, 2 * SIZE, bias=True) | block("transformer.")
    if layernorms:
        weights |= norms("embedding_layernorm", "transformer.input_layernorm", "pre_lm_head_layernorm")
    return speculators("eagle", LLAMA, layernorms=layernorms, fusion_bias=True), weights


def speculators_eagle3() -> Made:
    """With another head width, LLaMA-3's rotary embedding, an own embedding and the normed residual."""
    inner = {name: value for name, value in LLAMA.items() if name != "rope_theta"}
    weights = {
        **block("layers.0.", 2 * SIZE, dim=16),
        **norms("layers.0.hidden_norm", "layers.0.input_layernorm", "norm"),
        **linear("fc", SIZE, 2 * SIZE),
        **linear("lm_head", DRAFTED, SIZE),
        "embed_tokens.weight": random(VOCAB, SIZE),
        **vocabulary(),
    }
    flags = {"norm_before_residual": True, "eagle_aux_hidden_state_layer_ids": [2, 1], "draft_vocab_size": DRAFTED}
    return speculators("eagle3", inner | {"head_dim": 16, "rope_parameters": LLAMA3_ROPE}, **flags), weights


def parallel(**extra: Any) -> Made:
    """vLLM's layout of P-EAGLE, one layer, with the target's embedding."""
    config, weights = eagle3(ptd_token_id=7, num_depths=3, **extra)
    return config, weights | {"mask_hidden": random(1, 3 * SIZE)}


def speculators_parallel() -> Made:
    """Two layers, an own embedding, the normed residual and two states of the target."""
    weights = {
        **block("layers.0.", 2 * SIZE),
        **block("layers.1."),
        **norms("layers.0.hidden_norm", "layers.0.input_layernorm", "layers.1.input_layernorm", "norm"),
        **linear("fc", SIZE, 2 * SIZE),
        **linear("lm_head", DRAFTED, SIZE),
        "embed_tokens.weight": random(VOCAB, SIZE),
        "mask_hidden": random(1, 1, 2 * SIZE),
        **vocabulary(),
    }
    flags = {"norm_before_residual": True, "eagle_aux_hidden_state_layer_ids": [1, 2], "draft_vocab_size": DRAFTED}
    made = speculators("peagle", LLAMA | {"num_hidden_layers": 2}, mask_token_id=5, **flags)
    made["speculators_config"]["proposal_methods"] = [{"proposal_type": "greedy", "speculative_tokens": 3}]
    return made, weights


def speculators_parallel_windows() -> Made:
    """The second layer sees three rows, mask rows among them."""
    made, weights = speculators_parallel()
    made["transformer_layer_config"] |= {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 3}
    return made, weights


def one_pass(bias: bool = False, normed: bool = True, rows: int = VOCAB, rank: int = 0) -> dict[str, Tensor]:
    """Two layers over the states of two layers; with a rank a Markov head and a confidence head."""
    weights = {**linear("fc", SIZE, 2 * SIZE), **norms("hidden_norm", "norm")}
    for place in range(2):
        weights |= block(f"layers.{place}.", bias=bias) | norms(f"layers.{place}.input_layernorm")
        names = (f"layers.{place}.self_attn.{name}.weight" for name in ("q_norm", "k_norm"))
        weights |= {name: 1 + random(DIM) for name in names} if normed else {}
    if rank:
        weights |= linear("markov_head.markov_w1", VOCAB, rank) | linear("markov_head.markov_w2", rows, rank)
        weights |= linear("confidence_head.proj", 1, SIZE + rank, bias=True)
    return weights


def dflash() -> Made:
    """As z-lab has it: the target's embedding and output matrix are not in it."""
    own = {"mask_token_id": 7, "target_layer_ids": [0, 1]}
    config = {"architectures": ["DFlashDraftModel"], "num_hidden_layers": 2, "num_target_layers": 3, "block_size": 4}
    return LLAMA | config | {"model_type": "qwen3", "dflash_config": own}, one_pass()


def dspark() -> Made:
    """As DeepSpec has it: with both matrices, which are the target's in a real one."""
    config = {
        "architectures": ["Qwen3DSparkModel"], "num_hidden_layers": 2, "num_target_layers": 3, "block_size": 3,
        "model_type": "qwen3", "layer_types": ["full_attention"] * 2, "attention_bias": True, "mask_token_id": 7,
        "target_layer_ids": [-1, 1], "num_anchors": 512, "markov_rank": 5, "markov_head_type": "vanilla",
        "enable_confidence_head": True, "confidence_head_with_markov": True,
    }  # fmt: skip
    weights = one_pass(bias=True, rank=5) | linear("lm_head", VOCAB, SIZE)
    return LLAMA | config, weights | {"embed_tokens.weight": random(VOCAB, SIZE)}


def speculators_one_pass(kind: str) -> Made:
    """With a draft vocabulary."""
    rank = 5 if kind == "dspark" else 0
    flags = {"markov_rank": rank, "markov_head_type": "vanilla", "enable_confidence_head": rank > 0}
    flags |= {"confidence_head_with_markov": True} if rank else {}
    config = speculators(
        kind, LLAMA | {"num_hidden_layers": 2, "model_type": "qwen3"}, block_size=4 - (rank > 0), mask_token_id=7,
        aux_hidden_state_layer_ids=[1, 2], draft_vocab_size=DRAFTED, sample_from_anchor=rank > 0, **flags,
    )  # fmt: skip
    return config, one_pass(rows=DRAFTED, rank=rank) | linear("lm_head", DRAFTED, SIZE) | vocabulary()


def target_config(layers: int = SIZES["num_hidden_layers"]) -> dict[str, Any]:
    return LLAMA | {"num_hidden_layers": layers, "num_nextn_predict_layers": 1}


def mtp_deepseek() -> Made:
    own = f"model.layers.{SIZES['num_hidden_layers']}."
    weights = block(own) | norms(*(f"{own}{name}" for name in ("input_layernorm", "enorm", "hnorm")))
    weights |= norms(f"{own}shared_head.norm") | linear(f"{own}eh_proj", SIZE, 2 * SIZE)
    weights |= {f"{own}embed_tokens.weight": random(VOCAB, SIZE), f"{own}shared_head.head.weight": random(VOCAB, SIZE)}
    return target_config(), weights | {"model.norm.weight": random(SIZE)} | block("model.layers.0.")


def mtp_mimo() -> Made:
    own = "model.mtp_layers.0."
    names = ("input_layernorm", "token_layernorm", "hidden_layernorm", "final_layernorm")
    weights = block(own, bias=True) | norms(*(own + name for name in names))
    weights |= linear(f"{own}input_proj", SIZE, 2 * SIZE)
    return target_config() | {"model_type": "mimo"}, weights | {"model.norm.weight": random(SIZE)}


def mtp_qwen() -> Made:
    names = ("layers.0.input_layernorm", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    weights = block("mtp.layers.0.") | linear("mtp.fc", SIZE, 2 * SIZE) | norms(*(f"mtp.{name}" for name in names))
    weights |= {f"mtp.layers.0.self_attn.{name}.weight": 1 + random(DIM) for name in ("q_norm", "k_norm")}
    return target_config() | {"model_type": "qwen3"}, weights


def write(folder: Path, made: Made, file: str) -> Path:
    """The checkpoint in a folder; `file` ends in .pt or .bin, .safetensors, or is an index of two parts."""
    config, weights = made
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    weights = {name: weight.contiguous().clone() for name, weight in weights.items()}
    if file.endswith(".index.json"):
        parts = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
        places = {name: parts[count % 2] for count, name in enumerate(weights)}
        for part in parts:
            save_file({name: weight for name, weight in weights.items() if places[name] == part}, folder / part)
        (folder / file).write_text(json.dumps({"weight_map": places}))
    elif file.endswith(".safetensors"):
        save_file(weights, folder / file)
    else:
        torch.save(weights, folder / file)
    return folder
