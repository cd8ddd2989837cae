"""Models of any shape with random weights: what forwards cost without a checkpoint. Their text means nothing."""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import psutil
import torch
from torch import Tensor

from sampling.forward.kernels.formats import FORMATS
from sampling.forward.kernels.shape_check import LayerSizes, refuse_indivisible
from sampling.forward.models import lean
from sampling.forward.models.decoders.table import DECODERS
from sampling.forward.models.lean import LeanModel
from sampling.loading.checkpoint import LoadedModel, Placement, tokenizer_of
from sampling.loading.embedded import embedded_gguf
from sampling.loading.gguf.cache import converted
from sampling.loading.options import RANDOM
from sampling.loading.stages import Progress
from sampling.pair.model_info import ModelInfo
from utils.errors import UserError, one_of
from utils.files import checked_path
from utils.text import first_line

# Sizes of published models: SmolLM2-135M, Llama 3.2 1B and Llama 3.1 8B.
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "llama-135m": {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True,
    },
    "llama-1b": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": True,
    },
    "llama-8b": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
    },
}  # fmt: skip
_DEVIATION = 0.02
_COPIES = 1.3  # fused products stand beside their parts, and packed ones beside plain ones, while they are made


class RandomWeights:
    """Weights of a shape by their transformers names, each made when it is asked for: norms of ones, all else normal.

    Each is a function of its name and size alone, so that whoever asks, in whatever order, gets the same model. Zeros
    would be faster to multiply on some processors.
    """

    def __init__(self, config: Any, place: Placement) -> None:
        self._shapes, self._place = _shapes(config), place

    @property
    def numbers(self) -> int:
        """How many there are in all."""
        return sum(shape.numel() for shape in self._shapes.values())

    def __contains__(self, name: object) -> bool:
        return name in self._shapes

    def pop(self, name: str, default: Any = None) -> Any:
        """The weight on the device, or `default` where the shape has none of this name."""
        if name not in self._shapes:
            return default
        made: Tensor = torch.empty(self._shapes[name], device=self._place.device, dtype=self._place.dtype)
        rng = torch.Generator(self._place.device).manual_seed(crc32(name.encode()))
        return made.fill_(1.0) if name.endswith("norm.weight") else made.normal_(0.0, _DEVIATION, generator=rng)


def load_random(name: str, place: Placement, progress: Progress) -> LoadedModel:
    """A `random_model` with the default's tokenizer. Raises `UserError` as that does."""
    progress(f"Making {name}")
    model = random_model(name, config_of(name), place)
    detail = f"random weights, whose text means nothing; {model.num_layers} layers, lean forward"
    dtype = str(model.dtype).removeprefix("torch.")
    info = ModelInfo(name, str(model.device), dtype, detail, kernel=model.kernel, stored=place.weights)
    note = f"{name} has random weights: its text means nothing, and of its numbers times do."
    return LoadedModel(model, _tokenizer(name, model.vocab_size, progress), frozenset(), info, (note,))


def random_model(name: str, config: Any, place: Placement) -> LeanModel:
    """A lean model of this configuration with `RandomWeights`; given: what it is called in errors.

    Raises `UserError` for a shape that the lean forward does not cover, or that does not fit into memory.
    """
    architecture = (config.architectures or ["LlamaForCausalLM"])[0]
    if not lean.covers(architecture, config):
        raise UserError(f"{name}: {architecture} has no lean forward; expected one of {one_of(list(DECODERS))}")
    refuse_indivisible(place.weights, name, LayerSizes.of_config(config), f"target_weights {place.weights}")
    weights = RandomWeights(config, place)
    _refuse_too_large(name, weights.numbers, place)
    return lean.from_weights(config, weights, FORMATS[place.weights])


def config_of(sizes_text: str) -> Any:
    """The configuration that `random:NAME` or `random:PATH` of a config.json names. Raises `UserError`."""
    from transformers import AutoConfig, LlamaConfig

    name = sizes_text.removeprefix(RANDOM)
    if name in SHAPES:
        return LlamaConfig(**SHAPES[name])
    path = checked_path(name, "--target") if name else None
    if path is None or not path.exists():
        raise UserError(f"{sizes_text} given; expected {RANDOM} with {one_of([*SHAPES, 'a config.json'])}")
    try:
        return AutoConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{sizes_text}: {first_line(error)}; expected the config.json of a causal language model"
        ) from None


def _shapes(config: Any) -> dict[str, torch.Size]:
    """Of every weight by its name, a tied one once."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return {name: weight.shape for name, weight in AutoModelForCausalLM.from_config(config).named_parameters()}


def _refuse_too_large(name: str, numbers: int, place: Placement) -> None:
    """Raises `UserError` before memory runs out, which on a CPU would end the process."""
    if place.device.type == "cuda":
        free = torch.cuda.mem_get_info(place.device)[0]
    else:
        free = psutil.virtual_memory().available
    needed = numbers * place.dtype.itemsize * _COPIES
    if needed > free:
        raise UserError(
            f"{name} needs {needed / 2**30:.1f} GiB while it is made in {str(place.dtype).removeprefix('torch.')}, "
            f"and {place.device} has {free / 2**30:.1f} GiB free; expected a smaller shape, --dtype bfloat16 or "
            "another --device"
        )


def _tokenizer(name: str, vocab_size: int, progress: Progress) -> Any:
    """The embedded default's: prompts need one, and answers are read by nobody."""
    tokenizer = tokenizer_of(converted(embedded_gguf(progress), progress))
    if len(tokenizer) > vocab_size:
        raise UserError(f"{name}: vocab_size {vocab_size:,} given; expected {len(tokenizer):,} or more")
    return tokenizer
