"""Configurations of every family of the page, a few hidden units each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import CONFIG_MAPPING, PretrainedConfig

VOCABULARY = 128
_FULL = ["full_attention"] * 2

# By the names that configurations have for the same few sizes; a family takes those that it knows.
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32, "d_model": 32, "n_embd": 32,
    "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "rotary_dim": 8,
    "intermediate_size": 48, "ffn_dim": 48, "ffn_hidden_size": 48, "d_ff": 48, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    "max_position_embeddings": 128, "n_positions": 128,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 4,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    "is_decoder": True, "tie_word_embeddings": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """A family in one setting. setting: what differs from what is published. built: else its own defaults are read."""

    model_type: str
    setting: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    built: bool = True

    def __str__(self) -> str:
        return f"{self.model_type}, {self.setting}" if self.setting else self.model_type

    def config(self) -> PretrainedConfig:
        """A configuration of a few hidden units, or the published sizes of a family that is not built."""
        kind = CONFIG_MAPPING[self.model_type]
        if not self.built:
            return kind(**self.changes)
        known = {*kind().to_dict(), *kind.attribute_map}
        sizes = {key: value for key, value in _SIZES.items() if key in known}
        if "kv_lora_rank" in known:  # latent attention has as many heads of keys as of queries
            sizes["num_key_value_heads"] = 4
        return kind(**{**sizes, **self.changes})


def _plain(*names: str) -> list[ModelFamily]:
    return [ModelFamily(name) for name in names]


def _full(*names: str, **changes: Any) -> list[ModelFamily]:
    """Families that are published with windows or other kinds of layers, with full attention in all."""
    return [
        ModelFamily(name, "all layers full attention", {"layer_types": _FULL, "sliding_window": 64, **changes})
        for name in names
    ]


def _published(*names: str) -> list[ModelFamily]:
    return [ModelFamily(name, built=False) for name in names]


_SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2, "pad_token_id": 0}
_PER_LAYER = {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8}

DECODERS: list[ModelFamily] = [
    *_plain(
        "llama", "qwen2", "qwen3", "internlm3", "iquestcoder",
        "apertus", "arcee", "aria_text", "axk1", "bert", "bert-generation", "big_bird", "biogpt", "bitnet", "camembert",
        "codegen", "cohere", "data2vec-text", "deepseek_v2", "deepseek_v3", "diffllama", "dots1", "electra", "ernie",
        "ernie4_5", "ernie4_5_moe", "falcon", "flex_olmo", "gemma", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "gpt2",
        "gpt_bigcode", "gpt_neox", "gpt_neox_japanese", "gptj", "granite", "granitemoe", "granitemoeshared", "helium",
        "hrm_text", "hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3", "hyperclovax", "jais2", "jetmoe", "longcat_flash",
        "megatron-bert", "minicpm3", "minimax_m2", "mixtral", "nanochat", "nemotron", "olmo", "olmo2",
        "olmoe", "opt", "persimmon", "phi", "phi3", "phimoe", "qwen2_moe", "qwen3_moe", "rembert", "roberta",
        "roberta-prelayernorm", "roformer", "trocr", "seed_oss", "smollm3", "solar_open", "stablelm", "starcoder2",
        "xglm", "xlm-roberta", "xlm-roberta-xl", "youtu",
    ),
    ModelFamily("ctrl", changes={"n_embd": 32, "dff": 48}),
    ModelFamily("gpt_neo", "all layers global", {"attention_types": [[["global"], 2]]}),
    ModelFamily(
        "gpt_neo", "a window of 8 in local layers", {"attention_types": [[["global", "local"], 1]], "window_size": 8}
    ),
    ModelFamily("mistral", "no sliding window", {"sliding_window": None}),
    ModelFamily("ministral3", "no sliding window", {"sliding_window": None}),
    ModelFamily("roc_bert", changes={"enable_shape": False, "enable_pronunciation": False}),
    ModelFamily("xmod", changes={"default_language": "en_XX"}),
    *_full(
        "afmoe", "beam", "cohere2", "cohere2_moe", "exaone4", "exaone_moe", "flint", "gemma2", "gemma3_text", "gpt_oss",
        "granite_swa", "granitemoe_swa", "kolibri1", "laguna", "lfm2", "lfm2_moe", "llama4_text", "mellum",
        "mimo_v2_flash", "ministral", "olmo3", "vaultgemma",
    ),
    *_full("gemma3n_text", **_PER_LAYER, num_kv_shared_layers=0, laurel_rank=4, activation_sparsity_pattern=[0.0] * 2),
    *_full("gemma4_text", **_PER_LAYER, global_head_dim=8),
    *_full("modernbert-decoder", **_SPECIAL),
    ModelFamily("granitemoehybrid", "all layers attention", {"layer_types": ["attention"] * 2, "mamba_n_heads": 4}),
    ModelFamily("falcon", "ALiBi", {"alibi": True}),
    *_plain("bloom", "cpmant", "doge", "mpt", "openai-gpt", "xlm", "xlnet"),
    ModelFamily("lfm2", changes={"full_attn_idxs": [2, 5]}, built=False),
    *_published(
        "afmoe", "bamba", "bailing_hybrid", "cohere2", "deepseek_v32", "falcon_h1", "falcon_mamba", "gemma2",
        "gemma3_text", "gpt_oss", "granitemoehybrid", "jamba", "kimi_linear", "llama4_text", "mamba", "mamba2",
        "minimax", "mistral", "nemotron_h", "qwen3_next", "recurrent_gemma", "rwkv", "xlstm", "zamba2",
    ),
]  # fmt: skip

_START = {"decoder_start_token_id": 2, "pad_token_id": 1}
_T5 = {"decoder_start_token_id": 0, "pad_token_id": 0, "relative_attention_num_buckets": 8,
       "relative_attention_max_distance": 12}  # fmt: skip

ENCODER_DECODERS: list[ModelFamily] = [
    *(ModelFamily(name, changes=_T5) for name in ("t5", "mt5", "longt5", "umt5", "switch_transformers")),
    *(
        ModelFamily(name, changes=_START)
        for name in (
            "bart", "plbart", "mvp", "mbart", "pegasus", "pegasus_x", "bigbird_pegasus", "blenderbot",
            "blenderbot-small", "m2m_100", "nllb-moe", "fsmt", "prophetnet",
        )
    ),
    ModelFamily("marian", changes={"decoder_start_token_id": 127, "pad_token_id": 127}),
    ModelFamily("led", changes={
        **_START, "attention_window": 4, "max_encoder_position_embeddings": 128, "max_decoder_position_embeddings": 64,
    }),
    *_published("t5gemma", "whisper", "encoder-decoder"),
]  # fmt: skip

FAMILIES = [*DECODERS, *ENCODER_DECODERS]
