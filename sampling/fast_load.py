"""A converted checkpoint straight into the lean form, without transformers' model code.

Importing that code costs more than everything else at start, and it would only be asked for shapes.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors import safe_open

from sampling import lean
from sampling.gguf_cache import META


def lean_folder(folder: Path, device: torch.device, dtype: torch.dtype) -> lean.LeanModel | None:
    """The model of a folder that this program converted; None where the lean forward does not cover it.

    Only our own conversions: their config.json is written whole, so that no default of a transformers
    class has to be known.
    """
    weights_file = folder / "model.safetensors"
    if not (folder / META).is_file() or not weights_file.is_file():
        return None
    config = SimpleNamespace(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
    rope = getattr(config, "rope_parameters", {})
    if not lean.covers(config.architectures[0], config) or rope.get("rope_type") != "default":
        return None
    with safe_open(weights_file, framework="pt") as file:
        weights = {name: file.get_tensor(name).to(device, dtype) for name in file.keys()}  # noqa: SIM118
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    steps = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    return lean.from_weights(config, weights, 1.0 / rope["rope_theta"] ** steps)
