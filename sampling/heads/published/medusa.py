"""Medusa and Hydra heads as their authors publish them.

Medusa (github.com/FasterDecoding/Medusa): `{k}.{j}.linear` are the residual blocks of head k, and
`{k}.{layers}.weight` is its own output matrix; without one (the legacy form) it is the target's. Hydra
(github.com/zankner/Hydra), `mlp` heads that are grounded: `hydra_mlp.{k}.0` reads state and embeddings through
`linear` and `res_connection`, further residual blocks follow, and `hydra_lm_head.{k}` is its output.
"""

import re
from collections.abc import Mapping

from torch import Tensor

from sampling.heads.head_files import Head
from sampling.heads.published.files import HeadFiles, check_shapes, rename

MEDUSA_FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt", "model.safetensors", "pytorch_model.bin")
HYDRA_FILES = ("hydra_lm_head.safetensors", "hydra_lm_head.pt")
_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.weight")


def read_medusa(files: HeadFiles) -> Head:
    """The heads that the weights have: the number in config.json is known to be wrong in some."""
    weights = files.weights(MEDUSA_FILES)
    steps, layers = _count(files, weights)
    names = {f"{k}.{j}.linear.": f"heads.{k}.{j}.linear." for k in range(steps) for j in range(layers)}
    renamed = rename(files, weights, names | {f"{k}.{layers}.weight": f"outputs.{k}.weight" for k in range(steps)})
    return _head(files, "medusa", renamed, steps, layers)


def read_hydra(files: HeadFiles) -> Head:
    """Raises `UserError` for heads with an attention layer, and for such as do not read the drafts between."""
    arch = files.config.get("hydra_head_arch", "mlp")
    if arch != "mlp":
        raise files.refuse(f"hydra_head_arch is {arch}, which has an attention layer of its own", "mlp")
    if not files.config.get("grounded_heads", False):
        raise files.refuse("grounded_heads is false: such heads do not know the drafts between", "true")
    if files.config.get("hidden_state_offset", 0):
        raise files.refuse(f"hidden_state_offset is {files.config['hidden_state_offset']}", "0, the last state")
    tensors = files.weights(HYDRA_FILES)
    blocks = {
        name.removeprefix("hydra_mlp."): value for name, value in tensors.items() if name.startswith("hydra_mlp.")
    }
    steps, blocks_each = _count(files, blocks)
    names: dict[str, str] = {}
    for k in range(steps):
        names |= {f"hydra_mlp.{k}.0.linear.": f"joins.{k}.", f"hydra_mlp.{k}.0.res_connection.": f"residuals.{k}."}
        names |= {f"hydra_mlp.{k}.{j}.linear.": f"heads.{k}.{j - 1}.linear." for j in range(1, blocks_each)}
        names[f"hydra_lm_head.{k}."] = f"outputs.{k}."
    tensors.pop("input_embed_fn.weight", None)  # the target's embedding, which their module only refers to
    renamed = rename(files, tensors, names)
    return _head(files, "hydra", renamed, steps, blocks_each - 1)


def _count(files: HeadFiles, weights: Mapping[str, Tensor]) -> tuple[int, int]:
    """(heads, blocks a head)."""
    places = [match.groups() for name in weights if (match := _BLOCK.fullmatch(name))]
    if not places:
        raise files.refuse("it has no residual block", "weights named K.J.linear.weight")
    return max(int(k) for k, _ in places) + 1, max(int(j) for _, j in places) + 1


def _head(files: HeadFiles, kind: str, weights: Mapping[str, Tensor], steps: int, layers: int) -> Head:
    first = weights["heads.0.0.linear.weight"] if kind == "medusa" else weights["joins.0.weight"]
    size, output = first.shape[0], weights.get("outputs.0.weight")
    vocab = files.target_vocab if output is None else output.shape[0]
    shapes: dict[str, tuple[int, ...]] = {}
    for k in range(steps):
        for name in ("joins", "residuals") if kind == "hydra" else ():
            shapes |= {f"{name}.{k}.weight": (size, (k + 2) * size), f"{name}.{k}.bias": (size,)}
        for j in range(layers):
            shapes |= {f"heads.{k}.{j}.linear.weight": (size, size), f"heads.{k}.{j}.linear.bias": (size,)}
        if output is not None or kind == "hydra":
            shapes[f"outputs.{k}.weight"] = (vocab, size)
    check_shapes(files, weights, shapes)
    config = files.make(
        method="medusa" if kind == "medusa" else "hydra",
        base=str(files.config.get("base_model_name_or_path", "")),
        base_digest="",
        hidden_size=size,
        vocab_size=vocab,
        draft_vocab=vocab,
        steps=steps,
        layers=layers,
        own_output=output is not None,
    )
    return files.head(config, weights)
