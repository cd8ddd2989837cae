"""The loaded models as checkpoints that other engines load."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import transformers

from sampling.forward.causal_model import CausalModel
from sampling.heads.head_files import load_head
from sampling.loading.gguf.convert import quiet
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from utils.errors import UserError


def target_model(pair: Pair) -> Any:
    """The target as a model of transformers, where ours is and in its number format."""
    return _loaded(pair.target_info.place, pair.target.model)


def drafter_model(pair: Pair, target: Any) -> Any:
    """The drafter as a model of transformers. target: as `target_model` returns it. Raises `UserError`."""
    info = _drafter(pair)
    if info.trained:
        return _distilled(target, Path(info.place))
    return _loaded(info.place, pair.of_drafter.target.model)


def drafter_folder(pair: Pair, scratch: Path) -> str:
    """Where the drafter's checkpoint is; a distilled one, which has no output matrix of its own, is written there.

    Raises `UserError`.
    """
    info = _drafter(pair)
    if not info.trained:
        return str(info.place)
    model = drafter_model(pair, target_model(pair))
    with quiet():
        model.save_pretrained(scratch)
        pair.tokenizer.save_pretrained(scratch)
    return str(scratch)


def _drafter(pair: Pair) -> ModelInfo:
    if pair.drafter is None:
        raise UserError("no drafter model is loaded to assist; start with --drafter")
    if pair.crossing is not None:
        raise UserError(
            f"{pair.crossing.drafter.name} has another tokenizer than the target; expected a drafter of one tokenizer, "
            "or our own engine"
        )
    return pair.of_drafter.target_info


def _loaded(place: str, like: CausalModel) -> Any:
    with quiet():
        return transformers.AutoModelForCausalLM.from_pretrained(place, dtype=like.dtype).to(like.device).eval()


def _distilled(model: Any, folder: Path) -> Any:
    """The distilled drafter with an output matrix of the whole vocabulary, which other engines need."""
    head = load_head(folder)
    config = deepcopy(model.config)
    config.num_hidden_layers = head.config.layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: head.config.layers]
    small = type(model)(config)
    blocks = {name.replace("blocks.", "layers."): weight for name, weight in head.weights.items()}
    small.model.load_state_dict({**blocks, "embed_tokens.weight": model.model.embed_tokens.weight})
    small.tie_weights()
    return small.to(model.device, model.dtype).eval()
