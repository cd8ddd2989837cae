"""Tiny random encoder-decoder models in float32, and pairs of them."""

from collections.abc import Callable

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    PretrainedConfig,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from sampling.forward.models.encoder_decoder.model import AnswerOpening, EncoderDecoderModel
from sampling.forward.runner import ModelRunner
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from tests.tiny import tiny_tokenizer

WINDOW = 40
_LAYERS = {
    "d_model": 24, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 3, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": WINDOW, "init_std": 0.4,
}  # fmt: skip


def t5(vocab: int) -> PretrainedConfig:
    """A T5 whose answers begin with id 0; distances beyond 6 share their biases."""
    return T5Config(
        vocab_size=vocab,
        d_model=24,
        d_kv=6,
        d_ff=32,
        num_heads=3,
        num_layers=2,
        num_decoder_layers=2,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )


def bart(vocab: int) -> PretrainedConfig:
    """A BART whose answers begin with id 2."""
    return BartConfig(vocab_size=vocab, decoder_start_token_id=2, **_LAYERS)


def marian(vocab: int) -> PretrainedConfig:
    """A Marian whose answers begin with its padding, the last id."""
    last = vocab - 1
    return MarianConfig(
        vocab_size=vocab,
        scale_embedding=True,
        pad_token_id=last,
        decoder_start_token_id=last,
        eos_token_id=0,
        **_LAYERS,
    )


CONFIGS: dict[str, Callable[[int], PretrainedConfig]] = {"t5": t5, "bart": bart, "marian": marian}
_SEEDS = {"t5": 3, "bart": 3, "marian": 1}
_SPREAD = {"embed_positions": 1.0, "relative": 1.0, "shared": 3.0, "embed": 3.0, "lm_head": 1.0}
_CLASSES = {"t5": T5ForConditionalGeneration, "bart": BartForConditionalGeneration, "marian": MarianMTModel}


def make(name: str, vocab: int, noise: float = 0.0) -> PreTrainedModel:
    """Random weights, always the same, under which texts do not settle on one token; noise makes a model like it.

    The output has a matrix of its own: one that is tied to the embedding says the last token again.
    """
    torch.manual_seed(_SEEDS[name])
    model = _CLASSES[name](CONFIGS[name](vocab)).eval()
    model.lm_head = torch.nn.Linear(24, vocab, bias=False)
    with torch.no_grad():
        for place, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(0.1 * torch.randn_like(weight))
            else:
                weight.normal_(std=next((std for part, std in _SPREAD.items() if part in place), 0.25))
        for weight in model.parameters() if noise else ():
            weight.mul_(1.0 + noise * torch.randn_like(weight))
    return model


def adapted(model: PreTrainedModel) -> EncoderDecoderModel:
    """Behind the engine's forward."""
    return EncoderDecoderModel(model, AnswerOpening.of("tiny", model))


def seq2seq_pair(name: str, vocab: int, noise: float = 0.1, stop: frozenset[int] = frozenset()) -> Pair:
    """A target and a drafter that agrees with it now and then; noise 0.0 = the target's twin."""
    target, drafter = adapted(make(name, vocab)), adapted(make(name, vocab, noise))
    info = ModelInfo("tiny", "cpu", "float32")
    return Pair(ModelRunner(target), ModelRunner(drafter), tiny_tokenizer(), stop, info, info, encoder=True)
