"""Tiny random models: checkpoints on disk, as a hub would serve them, and a pair in memory, in milliseconds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from sampling.forward.models.lean import LeanModel, from_transformers
from sampling.forward.runner import ModelRunner
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|end|>")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As Qwen3 and SmolLM3 have it, and as Granite has it: the switch is assigned where it is not given.
THINKS = CHAT + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
GRANITE = (
    "{% if thinking is not defined %}{% set thinking = false %}{% endif %}{% if thinking %}Think.{% endif %}" + CHAT
)
TOKENS = len(SPECIALS) + 256 + 1
WIDE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
_COMMON = {**WIDE, "num_key_value_heads": 2, "max_position_embeddings": 128, "vocab_size": TOKENS}


def tiny_tokenizer(eos: str = "<|end|>", swapped: bool = False) -> PreTrainedTokenizerFast:
    """Bytes, one merge and four special tokens, with a chat template; `swapped` exchanges the ids of 'A' and 'B'."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate((*SPECIALS, *alphabet, "ab"))}
    if swapped:
        vocab["A"], vocab["B"] = vocab["B"], vocab["A"]
    backend = Tokenizer(models.BPE(vocab, [("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos, pad_token="<|endoftext|>")
    tokenizer.chat_template = CHAT
    return tokenizer


def llama(**changes: Any) -> PretrainedConfig:
    """A Llama with grouped-query attention."""
    return LlamaConfig(**{**_COMMON, **changes})


def qwen2(**changes: Any) -> PretrainedConfig:
    """A Qwen2: biases on q, k and v."""
    return Qwen2Config(**{**_COMMON, **changes})


def gpt2(**changes: Any) -> PretrainedConfig:
    """A GPT-2: learned positions, no lean form."""
    return GPT2Config(**{"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": TOKENS, **changes})


def mistral(**changes: Any) -> PretrainedConfig:
    """A Mistral, whose attention slides over 16 tokens."""
    return MistralConfig(**{**_COMMON, "sliding_window": 16, **changes})


def mamba(**changes: Any) -> PretrainedConfig:
    """A Mamba: a recurrent state, no rows to roll back."""
    return MambaConfig(**{"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": TOKENS, **changes})


def random_model(config: PretrainedConfig, seed: int = 0, noise: float = 0.0) -> PreTrainedModel:
    """A float32 model of these sizes. The same seed is the same model; noise makes another one like it."""
    torch.manual_seed(seed)
    config.eos_token_id = SPECIALS.index("<|end|>")
    config.bos_token_id = config.pad_token_id = None
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    matrices = {name: weight for name, weight in model.named_parameters() if weight.dim() > 1}
    for name, weight in matrices.items():  # wide enough that no two logits are near each other
        torch.nn.init.normal_(weight, std=0.2 if "embed" in name or "wte" in name else 0.15)
    with torch.no_grad():
        for weight in matrices.values() if noise else ():
            weight.add_(torch.randn_like(weight), alpha=noise)
    return model


def save_checkpoint(
    folder: Path, config: PretrainedConfig, tokenizer: Any = None, seed: int = 0, noise: float = 0.0
) -> Path:
    """A random checkpoint with its tokenizer, as `save_pretrained` writes it."""
    random_model(config, seed, noise).save_pretrained(folder)
    (tokenizer or tiny_tokenizer()).save_pretrained(folder)
    return folder


def tiny_llama(seed: int = 0, vocab_size: int = TOKENS, layers: int = 3, window: int = 512) -> LeanModel:
    """A random Llama in its lean form."""
    sizes = {"vocab_size": vocab_size, "num_hidden_layers": layers, "max_position_embeddings": window}
    return from_transformers(random_model(llama(**sizes), seed))


def tiny_pair(seed: int = 0, window: int = 512) -> Pair:
    """A random target, and its own first layers as the drafter: they agree often, and not always."""
    model = tiny_llama(seed, window=window)
    tokenizer = tiny_tokenizer()
    return Pair(
        ModelRunner(model),
        ModelRunner(replace(model, blocks=replace(model.blocks, layers=model.layers[:2]))),
        tokenizer,
        frozenset({tokenizer.eos_token_id}),
        ModelInfo("tiny", "cpu", "float32"),
        ModelInfo("tiny, 2 of 3 layers", "cpu", "float32"),
    )


def save_gguf(path: Path, checkpoint: Path) -> Path:
    """A Llama checkpoint with the tiny tokenizer as a float32 GGUF file."""
    model = LlamaForCausalLM.from_pretrained(checkpoint)
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer)
    for name, weight in model.state_dict().items():
        writer.add_tensor(_gguf_name(name), _gguf_weight(name, weight.numpy(), config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    vocab = tiny_tokenizer().get_vocab()
    tokens = sorted(vocab, key=lambda token: vocab[token])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIALS else 1 for token in tokens])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(vocab["<|end|>"])
    writer.add_bos_token_id(vocab["<|im_start|>"])
    writer.add_chat_template(CHAT)


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _gguf_name(name: str) -> str:
    for ours, theirs in _GGUF_NAMES.items():
        name = name.replace(ours, theirs)
    return name


def _gguf_weight(name: str, weight: np.ndarray, config: Any) -> np.ndarray:
    """llama.cpp interleaves the two halves of every rotary head of q and k."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if part in name:
            halves = weight.reshape(count, 2, weight.shape[0] // count // 2, weight.shape[1])
            return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))
    return weight
