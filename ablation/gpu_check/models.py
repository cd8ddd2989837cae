"""Models for measuring where no checkpoint is at hand: tiny ones on disk, and published shapes with random weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, PreTrainedModel, PreTrainedTokenizerFast

from ablation.gpu_check.heads import save_random_heads
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner
from sampling.loading.checkpoint import Placement
from sampling.loading.random_weights import RandomWeights
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TINY: Mapping[str, int] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": len(SPECIALS) + 256,
}  # fmt: skip
_DRAFTER_LAYERS, _HEAD_STEPS = 2, 4
_DRAFTED = 32_000  # a head's draft vocabulary, where the target's is larger


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A token a byte, and a chat template."""
    tokens = (*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()))
    backend = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=SPECIALS[-1], pad_token=SPECIALS[0])
    tokenizer.chat_template = CHAT
    return tokenizer


def save_tiny(folder: Path, window: int = 512) -> dict[str, str]:
    """A tiny target, its own first layers as the drafter model and a head of every kind: what `LoadOptions` is given.

    Weights are drawn wide enough that no two logits are near each other; the drafter agrees often, and not always.
    """
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    config = LlamaConfig(**TINY, max_position_embeddings=window)
    config.eos_token_id, config.bos_token_id, config.pad_token_id = tokenizer.eos_token_id, None, None
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.2 if "embed" in name else 0.15)
    _save(model, tokenizer, folder / "target")
    config.num_hidden_layers = _DRAFTER_LAYERS
    drafter = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    drafter.load_state_dict(model.state_dict(), strict=False)
    _save(drafter, tokenizer, folder / "drafter")
    block = {"intermediate_size": 8, "heads": 2, "head_dim": 4}
    sizes = {**_head_sizes(TINY["hidden_size"], window, TINY["vocab_size"]), **block}
    ids = torch.arange(0, TINY["vocab_size"], 2)
    heads = save_random_heads(folder / "heads", sizes, TINY["num_hidden_layers"], ids)
    return {
        "target": str(folder / "target"),
        "drafter": str(folder / "drafter"),
        "heads": ",".join(map(str, heads.values())),
    }


def save_eagle(folder: Path, model: LeanModel, inner: int) -> dict[str, Path]:
    """An EAGLE head of one of the target's own blocks; inner: the width of its MLP."""
    hidden, shape = model.embedding.shape[1], model.blocks.shape
    block = {"intermediate_size": inner, "heads": shape.heads, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim}
    sizes = {**_head_sizes(hidden, model.window, model.vocab_size), **block}
    ids = torch.arange(min(_DRAFTED, model.vocab_size))
    return save_random_heads(folder, sizes, model.num_layers, ids, ("eagle",), deviation=0.02)


def pair_of(
    name: str,
    model: LeanModel,
    graphs: bool,
    drafter: LeanModel | None = None,
    heads: Mapping[str, Path] | None = None,
) -> Pair:
    """A pair of models that were made here; nothing ends an answer early."""
    info = ModelInfo(name, str(model.device), str(model.dtype).removeprefix("torch."), graphs=graphs)
    runner = ModelRunner.with_graphs if graphs else ModelRunner
    return Pair(
        runner(model),
        None if drafter is None else runner(drafter),
        byte_tokenizer(),
        frozenset(),
        info,
        None if drafter is None else info,
        heads=heads or {},
    )


def in_transformers(config: Any, place: Placement) -> PreTrainedModel:
    """The model of `random_model` as a transformers model, with the very same weights; nothing ends its answers."""
    weights = RandomWeights(config, place)
    with place.device:
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=place.dtype)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weights.pop(name))
    model.generation_config = GenerationConfig(pad_token_id=0)
    return model.eval()


def _save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _head_sizes(hidden: int, window: int, vocabulary: int) -> dict[str, int]:
    return {"hidden_size": hidden, "window": window, "vocab_size": vocabulary, "steps": _HEAD_STEPS}
