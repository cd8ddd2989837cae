"""This process's part of one checkpoint: read alone, then tried by all processes together."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from sampling.forward.models import lean
from sampling.forward.sharded.cut import TensorCut, refuse_uneven, whole
from sampling.forward.sharded.group import ProcessGroup
from sampling.forward.sharded.lean import part_of
from sampling.loading.checkpoint import (
    LoadedModel,
    Placement,
    UnreadCheckpoint,
    as_loaded,
    converted,
    described,
    read_weights,
    undisturbed,
)
from sampling.loading.fast_load import converted_shape
from sampling.loading.gguf.convert import quiet
from sampling.loading.origin import ModelOrigin
from sampling.loading.quantized import stored_as
from sampling.loading.refusals.checks import has_encoder
from sampling.loading.refusals.contents import auto_class, refuse_untrained, unused_weights
from sampling.loading.refusals.explained import folder_of, reading, within_memory
from sampling.loading.sharded.files import CutFiles, shapes_in, weight_files
from sampling.loading.stop import refuse_broken_settings
from utils.errors import UserError

Landmarks = dict[str, Tensor]
Rest = Callable[[], LoadedModel]


def load_part(origin: ModelOrigin, place: Placement, trust: bool, group: ProcessGroup) -> tuple[LoadedModel, Landmarks]:
    """This process's part of a model, and the landmarks of the whole one. Raises `UserError` where one process does.

    Nothing goes between processes while they read, so that one that fails keeps no other waiting.
    """
    rest = group.agreed(lambda: _read(origin, place, trust, group))
    return group.agreed(lambda: _tried(origin, trust, rest))


def _tried(origin: ModelOrigin, trust: bool, rest: Rest) -> tuple[LoadedModel, Landmarks]:
    with undisturbed(origin, trust), quiet():
        loaded = rest()
        landmarks = {name: whole(weight) for name, weight in loaded.model.landmarks().items()}
    return loaded, landmarks


def _read(origin: ModelOrigin, place: Placement, trust: bool, group: ProcessGroup) -> Rest:
    """What does not take the other processes, and then what does."""
    with undisturbed(origin, trust), quiet():
        if (ours := converted(origin, place, partial(_converted_part, group, origin))) is not None:
            return partial(_over, ours, group)
        about = described(origin, place, trust)
        if has_encoder(about.config):
            raise UserError(
                f"{origin.name} is an encoder-decoder model, which several processes do not share; expected a "
                "decoder-only model, or one process"
            )
        refuse_uneven(origin.name, about.config, group.seat.size)
        with within_memory(origin, about.config, place.dtype):
            if any(lean.divides(name, about.config) for name in about.config.architectures or ()):
                return partial(_over, _lean_part(origin, about, place, group), group)
            return _planned(origin, about, place, group)


def _over(loaded: LoadedModel, group: ProcessGroup) -> LoadedModel:
    size, info = group.seat.size, loaded.info
    return replace(loaded, info=replace(info, processes=size, detail=f"{info.detail}, tensor parallel over {size}"))


def _converted_part(
    group: ProcessGroup, origin: ModelOrigin, folder: Path, device: torch.device, dtype: torch.dtype, weights: str
) -> lean.LeanModel | None:
    """See `lean_folder`."""
    config = converted_shape(folder)
    if config is None:
        return None
    refuse_uneven(origin.name, config, group.seat.size)
    files = CutFiles(weight_files(origin, True), _cut(group), device, dtype)
    return part_of(config, files, group)


def _lean_part(origin: ModelOrigin, about: UnreadCheckpoint, place: Placement, group: ProcessGroup) -> LoadedModel:
    """A checkpoint of a family with a lean forward, without a transformers model in between."""
    config = about.config
    refuse_broken_settings(folder_of(origin))
    with reading(origin, "its weights", about.shared["trust_remote_code"]):
        places = weight_files(origin, about.shared["local_files_only"])
        if config.tie_word_embeddings:
            places.pop("lm_head.weight", None)
        _, unused = _matching(origin, config, places)
        files = CutFiles(places, _cut(group), place.device, place.dtype)
        model = part_of(config, files, group)
    settings = SimpleNamespace(config=config, generation_config=_generation(origin, config))
    return as_loaded(origin, about, model, settings, "lean forward", place.weights, unused=unused)


def _matching(origin: ModelOrigin, config: Any, places: dict[str, Path]) -> tuple[Any, str | None]:
    """The model without storage, and a note on weights that it has no use for.

    Raises `UserError` for weights that are missing, `ValueError` for those of another shape.
    """
    with torch.device("meta"):
        empty = auto_class(config).from_config(config)
    stored, expected = shapes_in(places), {name: weight.shape for name, weight in empty.named_parameters()}
    keys = {"missing_keys": expected.keys() - stored.keys(), "unexpected_keys": stored.keys() - expected.keys()}
    keys["unexpected_keys"] = {name for name in keys["unexpected_keys"] if not name.endswith("rotary_emb.inv_freq")}
    refuse_untrained(origin.name, empty, keys)
    for name in expected:
        if stored[name] != expected[name]:
            raise ValueError(f"{name} is {list(stored[name])}, and its config.json says {list(expected[name])}")
    return empty, unused_weights(origin.name, config, keys)


def _generation(origin: ModelOrigin, config: Any) -> Any:
    from transformers import GenerationConfig

    folder = folder_of(origin)
    if folder and (folder / "generation_config.json").is_file():
        return GenerationConfig.from_pretrained(folder)
    return GenerationConfig.from_model_config(config)


def _planned(origin: ModelOrigin, about: UnreadCheckpoint, place: Placement, group: ProcessGroup) -> Rest:
    """A model that transformers cuts by the plan of its family, and trying it."""
    from transformers.distributed import DistributedConfig

    from sampling.loading.adapt import adapted, limits

    config = about.config
    if not getattr(config, "base_model_tp_plan", None):
        raise UserError(
            f"{origin.name} ({config.model_type}): transformers has no tensor-parallel plan for this family; expected "
            "one process, or a family with a plan"
        )
    if place.device.type == "cpu" and torch.cuda.is_available():
        raise UserError(
            f"--device cpu given, and transformers cuts {origin.name} over GPUs where there are some; expected "
            "--device cuda, or CUDA_VISIBLE_DEVICES empty"
        )
    hf, unused = read_weights(
        origin, about, dtype=place.dtype, distributed_config=DistributedConfig(tp_size=group.seat.size)
    )
    forward = "transformers' forward"

    def rest() -> LoadedModel:
        model = adapted(origin.name, hf)
        ends = (*limits(model),)
        loaded = as_loaded(origin, about, model, hf, forward, stored_as(hf) or place.weights, ends, unused)
        return _over(loaded, group)

    return rest


def _cut(group: ProcessGroup) -> TensorCut:
    return TensorCut(group.seat.rank, group.seat.size)
