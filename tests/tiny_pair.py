"""A tiny random pair in memory with the byte-level tokenizer: no file and no network."""

from dataclasses import replace

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sampling.forward.lean import LeanModel, from_transformers
from sampling.forward.runner import ModelRunner
from sampling.pair import ModelInfo, Pair
from tests.tiny import TOKENS, tiny_tokenizer


def tiny_llama(seed: int = 0, vocab_size: int = TOKENS, layers: int = 3, window: int = 512) -> LeanModel:
    """A random Llama with two query heads a key/value head. The same seed is the same model."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        initializer_range=0.15,
        tie_word_embeddings=False,
    )
    return from_transformers(LlamaForCausalLM(config).eval())


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
