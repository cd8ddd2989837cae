"""Multi-token prediction modules as they lie in a target's own checkpoint; the folder is the target's.

DeepSeek-V3's layout (vLLM's deepseek_mtp.py, transformers' `MtpLayer`): the module is one layer behind the last,
`model.layers.{n}`, with `eh_proj` over [normed embedding; normed state]. Qwen's: `mtp.fc`, `mtp.layers.0`.
MiMo's (vLLM's mimo_mtp.py): `model.mtp_layers.0`, `input_proj` over [normed state; normed embedding]. The state
that is fed back is the one behind the module's last norm, as transformers does. Of several modules the first
one drafts all steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sampling.heads.head_files import Head
from sampling.heads.published.block_weights import block_fields, check_block
from sampling.heads.published.files import HeadFiles, check_shapes, rename
from utils.errors import one_of

COUNTS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
PLAIN = ("llama", "mistral", "qwen2", "qwen3", "mimo")
_REASONS = {
    "self_attn.kv_a_proj": "its attention is multi-head latent attention (MLA)",
    "mlp.experts": "its MLP is a mixture of experts",
    "mlp.gate.": "its MLP is a mixture of experts",
    "linear_attn": "its attention is linear",
}


@dataclass(frozen=True, slots=True)
class _CheckpointLayout:
    """Where the module is (`{n}` = number of the target's layers), our names for its own, and its halves' order."""

    prefix: str
    names: Mapping[str, str]
    state_first: bool = False


_LAYOUTS = (
    _CheckpointLayout(
        "model.layers.{n}.",
        {
            "": "block.",
            "enorm.": "embed_norm.",
            "hnorm.": "feature_norm.",
            "eh_proj.": "fc.",
            "shared_head.norm.": "norm.",
            "shared_head.head.": "output.",
            "embed_tokens.": "embedding.",
        },
    ),
    _CheckpointLayout(
        "model.mtp_layers.0.",
        {
            "": "block.",
            "token_layernorm.": "embed_norm.",
            "hidden_layernorm.": "feature_norm.",
            "input_proj.": "fc.",
            "final_layernorm.": "norm.",
        },
        state_first=True,
    ),
    _CheckpointLayout(
        "mtp.",
        {
            "layers.0.": "block.",
            "pre_fc_norm_embedding.": "embed_norm.",
            "pre_fc_norm_hidden.": "feature_norm.",
            "fc.": "fc.",
            "norm.": "norm.",
        },
    ),
)


def read_mtp(files: HeadFiles) -> Head:
    """The first module of the folder. Raises `UserError` for a block that is not Llama's, by its kind."""
    layout, tensors = _module(files)
    kind = files.config.get("model_type", "")
    for part, why in _REASONS.items():
        if any(part in name for name in tensors):
            raise files.refuse(f"{why}, in the module of this {kind} checkpoint", "a Llama-like block")
    if kind not in PLAIN:
        raise files.refuse(f"the module of a {kind} checkpoint has a block of its own kind", one_of(PLAIN))
    weights = rename(files, tensors, layout.names)
    fields = block_fields(files, files.config)
    config = files.make(
        method="mtp",
        base=str(files.config.get("_name_or_path") or files.folder.name),
        base_digest="",
        **fields,
        draft_vocab=fields["vocab_size"],
        features=(files.target_layers,),
        normed=True,
        own_output="output.weight" in weights,
        normed_feedback=True,
    )
    check_block(files, config, weights)
    size, vocab = config.hidden_size, config.vocab_size
    shapes = {
        **{f"{name}.weight": (vocab, size) for name in ("embedding", "output") if f"{name}.weight" in weights},
        **{f"{name}.weight": (size,) for name in ("embed_norm", "feature_norm", "norm", "block.input_layernorm")},
        "fc.weight": (size, 2 * size),
    }
    check_shapes(files, weights, shapes)
    if layout.state_first:
        state, embedding = weights["fc.weight"].chunk(2, dim=1)
        weights["fc.weight"] = torch.cat([embedding, state], dim=1)
    return files.head(config, weights)


def _module(files: HeadFiles) -> tuple[_CheckpointLayout, dict[str, Tensor]]:
    """The layout that the folder has, and the weights of its module."""
    layers = files.config.get("num_hidden_layers", files.target_layers)
    prefixes = [layout.prefix.format(n=layers) for layout in _LAYOUTS]
    for layout, prefix in zip(_LAYOUTS, prefixes, strict=True):
        if tensors := files.weights(prefix=prefix):
            return layout, tensors
    raise files.refuse("its config.json counts modules and its weights hold none", f"weights in {', '.join(prefixes)}")
