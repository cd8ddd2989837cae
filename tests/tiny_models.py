"""Tiny random checkpoints of several architectures, in float32."""

import copy
from collections.abc import Callable

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from sampling.forward.models import lean
from sampling.forward.models.adapter import TransformersModel
from sampling.forward.runner import ModelRunner

VOCAB = 131
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.3,
}  # fmt: skip
LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip

MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "llama-tied-bias": lambda: LlamaForCausalLM(
        LlamaConfig(**SIZES, tie_word_embeddings=True, attention_bias=True, mlp_bias=True)
    ),
    "llama3-rope": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=LLAMA3_ROPE)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCAB, n_embd=48, n_layer=3, n_head=4, n_positions=96, initializer_range=0.3)
    ),
}
LEAN = [name for name in MAKERS if name != "gpt2"]
FORMS = [*((name, "lean") for name in LEAN), *((name, "adapter") for name in MAKERS)]


def make(name: str, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    model = MAKERS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def runner(model: PreTrainedModel, form: str, cls: type[ModelRunner] = ModelRunner) -> ModelRunner:
    """On a copy: the adapter changes the model's attention, the truth must not."""
    model = copy.deepcopy(model)
    if form == "lean":
        assert lean.fits(model)
        return cls(lean.from_transformers(model))
    return cls(TransformersModel(model))


@torch.no_grad()
def truth(model: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    """Logits `[n, V]` of transformers, eager, without a cache."""
    model.set_attn_implementation("eager")
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def ids(count: int, seed: int = 0) -> list[int]:
    return torch.randint(0, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
