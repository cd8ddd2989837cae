"""Configurations of every family of the page, a few hidden units each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import CONFIG_MAPPING, PretrainedConfig

VOCABULARY = 128

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

# Where a published configuration has a window or a chunk, it holds 8 tokens here: three of them fit into a text.
_WINDOWS = ("sliding_window", "attention_chunk_size", "local_attention")


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """A family in one setting. setting: what differs from what is published. built: else its own defaults are read.

    text: the family of its text model, where it sees as well.
    """

    model_type: str
    setting: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    built: bool = True
    text: "ModelFamily | None" = None

    def __str__(self) -> str:
        return f"{self.model_type}, {self.setting}" if self.setting else self.model_type

    def config(self) -> PretrainedConfig:
        """A configuration of a few hidden units, or the published sizes of a family that is not built."""
        kind = CONFIG_MAPPING[self.model_type]
        if not self.built:
            return kind(**self.changes)
        if self.text is not None:
            return kind(text_config=self.text.config().to_dict(), vision_config=_VISION, **self.changes)
        published = kind()
        known = {*published.to_dict(), *kind.attribute_map}
        sizes = {key: value for key, value in _SIZES.items() if key in known}
        if "kv_lora_rank" in known:  # latent attention has as many heads of keys as of queries
            sizes["num_key_value_heads"] = 4
        sizes |= {key: 8 for key in _WINDOWS if getattr(published, key, None) is not None}
        return kind(**{**sizes, **self.changes})


def _plain(*names: str) -> list[ModelFamily]:
    return [ModelFamily(name) for name in names]


def _layers(count: int, *names: str, **changes: Any) -> list[ModelFamily]:
    """Families with so many layers, in the pattern that they are published with."""
    return [ModelFamily(name, changes={"num_hidden_layers": count, **changes}) for name in names]


def _seeing(name: str, text: str, setting: Mapping[str, Any], **changes: Any) -> ModelFamily:
    """A family that sees, with a text model of another one."""
    return ModelFamily(name, changes=changes, text=ModelFamily(text, changes=setting))


def _published(*names: str) -> list[ModelFamily]:
    return [ModelFamily(name, built=False) for name in names]


_SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2, "pad_token_id": 0}
_VISION = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 8,
    "patch_size": 4, "depth": 1, "num_heads": 2, "out_hidden_size": 32, "projection_dim": 32, "vision_output_dim": 16,
}  # fmt: skip
_ROTARY = {"rope_type": "default", "rope_theta": 1e4}
_SECTIONS = {"rope_parameters": {**_ROTARY, "mrope_section": [1, 1, 2]}}
_RECURRENT = ["linear_attention", "full_attention"] * 2
_GATED_DELTA = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
                "linear_value_head_dim": 8}  # fmt: skip
_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_expand": 2}
# Many index heads: of few, most scores are 0, and equal scores are chosen by place.
_INDEX = {"index_head_dim": 16, "index_n_heads": 32, "index_topk": 8}
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
    ModelFamily("dbrx", changes={"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8},
                                 "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2}}),
    ModelFamily("falcon", "ALiBi", {"alibi": True}),
    ModelFamily("bloom", changes={"n_layer": 2, "hidden_size": 32}),
    *_plain("cpmant", "minimax_m3_vl_text", "mpt", "openai-gpt", "recurrent_gemma", "xlnet"),
    # Windows and chunks.
    *_layers(4, "afmoe", "beam", "cohere2", "cohere2_moe", "exaone4", "exaone_moe", "flint", "gemma2", "gpt_oss",
             "granite_swa", "granitemoe_swa", "kolibri1", "laguna", "mellum", "mimo_v2_flash", "olmo3", "vaultgemma"),
    *_layers(2, "ministral", "mistral"),
    *_layers(7, "gemma3_text"),
    *_layers(6, "gemma4_unified_text", global_head_dim=8),
    *_layers(6, "gemma4_text", **_PER_LAYER, global_head_dim=8),
    *_layers(4, "gemma3n_text", **_PER_LAYER, num_kv_shared_layers=2, laurel_rank=4,
             activation_sparsity_pattern=[0.0] * 4, layer_types=["sliding_attention", "full_attention"] * 2),
    *_layers(4, "cwm", bos_token_id=1, eos_token_id=2),
    *_layers(4, "llama4_text", intermediate_size_mlp=48),
    *_layers(4, "modernbert-decoder", **_SPECIAL),
    # Sparse attention that chooses 8 rows by an index.
    *_layers(4, "axk2", "deepseek_v32", "glm_moe_dsa", "hy_v4", **_INDEX),
    *_layers(2, "dots3_note_text", layer_types=["sliding_attention", "indexed_attention"], **_INDEX),
    # Short convolutions.
    *_layers(4, "lfm2", "lfm2_moe", layer_types=["conv", "full_attention"] * 2),
    *_layers(6, "lfm3", layer_types=["conv", "full_attention", "sliding_attention"] * 2),
    # Recurrent states.
    *_layers(4, "olmo_hybrid", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", **_GATED_DELTA),
    *_layers(4, "bailing_hybrid", layer_types=_RECURRENT),
    *_layers(2, "kimi_linear", layer_types=_RECURRENT[:2]),
    *_layers(4, "minimax", "inkling_text", "inkling2_text", "falcon_mamba", "mamba"),
    *_layers(2, "mamba2", num_heads=8, n_groups=1, state_size=8),
    *_layers(4, "bamba", **_MAMBA2, attn_layer_indices=[1, 3]),
    *_layers(4, "falcon_h1", **_MAMBA2, mamba_d_ssm=64),
    *_layers(4, "granitemoehybrid", **_MAMBA2, layer_types=_RECURRENT),
    *_layers(4, "jamba", attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
             mamba_d_state=8, mamba_dt_rank=4),
    ModelFamily("nemotron_h", changes={"mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 1, "ssm_state_size": 8}),
    *_layers(4, "zamba"),
    *_layers(4, "zamba2", layers_block_type=["linear_attention", "hybrid"] * 2, n_mamba_heads=8, mamba_headdim=8,
             mamba_ngroups=1, mamba_d_state=8, num_mem_blocks=1),
    *_layers(4, "zaya", num_experts_per_tok=1),
    ModelFamily("xlstm", changes={"hidden_size": 128, "embedding_dim": 128, "num_blocks": 2,
                                  "max_inference_chunksize": 16}),
    ModelFamily("cohere_compass_text", changes={"rope_parameters": {"full_attention": _ROTARY}}),
    *_layers(4, "qwen4_exp_text", **_GATED_DELTA, indexer_n_heads=32, indexer_kv_heads=1, indexer_head_dim=16,
             indexer_budget=8, indexer_compress_ratio=2, hc_lowrank=8, ngram_vocab_size_base=64, split_ngram_parts=1),
    ModelFamily("doge", changes={"keep_window_size": 8}),
    ModelFamily("rwkv", changes={"attention_hidden_size": 32}),
    # Checkpoints that see: their text model, asked with text.
    _seeing("gemma3", "gemma3_text", {"num_hidden_layers": 7}, mm_tokens_per_image=4),
    _seeing("gemma4", "gemma4_text", {"num_hidden_layers": 6, **_PER_LAYER, "global_head_dim": 8, "pad_token_id": 0},
            audio_config=None),
    _seeing("llama4", "llama4_text", {"num_hidden_layers": 4, "intermediate_size_mlp": 48}),
    _seeing("mistral3", "mistral", {"sliding_window": None}),
    _seeing("qwen2_vl", "qwen2_vl_text", _SECTIONS),
    _seeing("qwen2_5_vl", "qwen2_5_vl_text", _SECTIONS),
    _seeing("qwen3_vl", "qwen3_vl_text", _SECTIONS),
    _seeing("qwen3_5", "qwen3_5_text", {"num_hidden_layers": 4, **_GATED_DELTA}),
    *_published("blt", "deepseek_v4", "reformer", "xlm"),
]  # fmt: skip

_START = {"decoder_start_token_id": 2, "pad_token_id": 1}
_T5 = {"decoder_start_token_id": 0, "pad_token_id": 0, "relative_attention_num_buckets": 8,
       "relative_attention_max_distance": 12}  # fmt: skip

_GEMMA = {
    "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "sliding_window": 8, "max_position_embeddings": 128, "vocab_size": VOCABULARY,
    "query_pre_attn_scalar": 8, "pad_token_id": 1,
}  # fmt: skip

_BERT = {
    "model_type": "bert", "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 128,
}  # fmt: skip

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
    ModelFamily("t5gemma", changes={"encoder": _GEMMA, "decoder": _GEMMA, "vocab_size": VOCABULARY, **_START}),
    ModelFamily("t5gemma2", changes={
        "encoder": {"text_config": _GEMMA, "vision_config": _VISION, "mm_tokens_per_image": 4},
        "decoder": {**_GEMMA, "model_type": "t5gemma2_decoder"}, **_START,
    }),
    ModelFamily("encoder-decoder", "two models of BERT", {
        "encoder": _BERT, "decoder": {**_BERT, "is_decoder": True, "add_cross_attention": True}, **_START,
    }),
    *_published("whisper"),
]  # fmt: skip

FAMILIES = [*DECODERS, *ENCODER_DECODERS]
