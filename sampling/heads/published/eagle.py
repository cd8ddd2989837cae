"""EAGLE heads as their authors publish them, and in the format of `speculators`.

EAGLE-1, EAGLE-2 and HASS (github.com/SafeAILab/EAGLE, eagle/model/cnets1.py): `fc` joins [embedding; state],
the state is the target's last, behind its norm; the block has no norm in front and the head none behind; the
output matrix is the target's. EAGLE-3 (cnets.py): `fc` joins three states, the block reads [normed embedding;
normed feature] and adds to the feature as it is; `d2t` is how far the id of a draft is from its row's number.
EAGLE-3.1 (arXiv 2605.09992; github.com/vllm-project/vllm, pull request 42764): `fc_norm` has a norm for each of the
states in front of `fc`, `norm_before_fc` one for all of them side by side, called `input_norm`; with `norm_output` the
head goes on from its own states behind the norm. ModelOpt says both in `eagle_config`.
EAGLE-4 (docs.nvidia.com/nemo/automodel, export_eagle4; eagle-harness 0.1.3): EAGLE-3.1 with a window, and a candidate
head of low rank that finds `num_candidates` tokens which `lm_head` then scores (`efficient_lm_head_config`). Where its
weights lack, the harness makes them from `lm_head`; here `lm_head` scores all tokens then.
speculators (github.com/vllm-project/speculators): EAGLE-1 and EAGLE-3, the block's config in a config of its own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sampling.heads.config import HeadConfig
from sampling.heads.head_files import Head
from sampling.heads.published.block_weights import block_fields, check_block
from sampling.heads.published.files import HeadFiles, check_shapes, rename
from sampling.heads.published.layers import check_layers, count_layers, later_names
from sampling.heads.recurrent import CANDIDATES, state_norm_widths
from utils.errors import UserError

SHARED = {"embed_tokens.weight": "embedding.weight", "lm_head.weight": "output.weight"}
_FIRST = {"fc.": "fc.", "layers.0.self_attn.": "block.self_attn.", "layers.0.mlp.": "block.mlp."} | {
    "layers.0.post_attention_layernorm.weight": "block.post_attention_layernorm.weight"
}
_NAMED = {
    "fusion_fc.": "fc.",
    "transformer.": "block.",
    "embedding_layernorm.weight": "embed_norm.weight",
    "pre_lm_head_layernorm.weight": "norm.weight",
}
THIRD = {
    **{
        f"{block}{theirs}": ours
        for block in ("midlayer.", "layers.0.")
        for theirs, ours in {
            "": "block.",
            "input_layernorm.weight": "embed_norm.weight",
            "hidden_norm.weight": "feature_norm.weight",
        }.items()
    },
    "fc.": "feature.",
    "fc_norm.": "state_norms.",
    "input_norm.weight": "state_norms.0.weight",
    "norm.weight": "norm.weight",
    "d2t": "d2t",
    "t2d": "t2d",
}
_CANDIDATES = dict(zip(("efficient_lm_head_down_proj.weight", "efficient_lm_head.weight"), CANDIDATES, strict=True))
_STATES = 3
VERIFIER = ("verifier_lm_head.weight", "verifier_norm.weight")


def read_eagle(files: HeadFiles) -> Head:
    """An EAGLE-1 or EAGLE-2 head, or one of HASS."""
    base = files.config.get("base_model_name_or_path", "")
    return _first(files, files.config, base, rename(files, files.weights(), _FIRST | SHARED))


def read_eagle3(files: HeadFiles) -> Head:
    """An EAGLE-3 head; `eagle_config` counts layers by what comes out of them, from 0."""
    eagle_config = files.config.get("eagle_config") or {}
    if not eagle_config.get("use_aux_hidden_state", True):
        raise files.refuse("eagle_config.use_aux_hidden_state is false", "a head that reads three states")
    layers = [layer + 1 for layer in eagle_config.get("eagle_aux_hidden_state_layer_ids") or ()]
    base = files.config.get("base_model_name_or_path", "")
    return _third(files, files.config, base, layers or files.config.get("eagle_aux_hidden_state_layer_ids"))


def read_speculators(files: HeadFiles) -> Head:
    """A head in the format of speculators, whose layer ids count as ours do."""
    kind, inner = files.config["speculators_model_type"], files.config.get("transformer_layer_config") or {}
    verifier = (files.config.get("speculators_config") or {}).get("verifier") or {}
    base = str(verifier.get("name_or_path") or "")
    if kind == "eagle":
        return _first(files, inner, base, rename(files, files.weights(), _NAMED | SHARED))
    if kind == "eagle3":
        return _third(files, inner, base, files.config.get("eagle_aux_hidden_state_layer_ids"))
    raise files.refuse(f"speculators_model_type is {kind}", "one of eagle, eagle3, peagle")


def _fields(files: HeadFiles, config: Mapping[str, Any], base: str, layers: int) -> dict[str, Any]:
    return {"method": "eagle", "base": base, "base_digest": "", **block_fields(files, config, layers)}


def _first(files: HeadFiles, inner: Mapping[str, Any], base: str, weights: dict[str, Tensor]) -> Head:
    if inner.get("num_hidden_layers", 1) != 1:
        raise files.refuse(f"it has {inner['num_hidden_layers']} layers", "one layer")
    fields = _fields(files, inner, base, 1)
    config = files.make(
        **fields,
        draft_vocab=fields["vocab_size"],
        features=(files.target_layers,),
        input_norm="block.input_layernorm.weight" in weights,
        final_norm="norm.weight" in weights,
        own_output="output.weight" in weights,
    )
    check_block(files, config, weights)
    size = config.hidden_size
    needed: dict[str, tuple[int, ...]] = {"fc.weight": (size, 2 * size)}
    if files.config.get("fusion_bias"):
        needed["fc.bias"] = (size,)
    if files.config.get("layernorms"):
        needed |= dict.fromkeys(("embed_norm.weight", "block.input_layernorm.weight", "norm.weight"), (size,))
    _check(files, config, weights, needed, {"fc.bias": (size,), "embed_norm.weight": (size,)})
    return files.head(config, weights)


def _third(files: HeadFiles, inner: Mapping[str, Any], base: str, layers: list[int] | None) -> Head:
    """inner: the config of the block; what else the head has is said beside it."""
    outer = _flags(files.config)
    if outer.get("parallel_drafting"):
        raise files.refuse(f"parallel_drafting is {outer['parallel_drafting']}", "a head without it")
    if outer.get("norm_before_fc") and outer.get("fc_norm"):
        raise files.refuse("norm_before_fc and fc_norm are both set", "one of them")
    brought = {name: weight for name, weight in files.weights().items() if name not in VERIFIER}
    blocks = count_layers(files, brought, inner.get("num_hidden_layers", 1))
    weights = rename(files, brought, {**THIRD, **SHARED, **_CANDIDATES, **later_names(files, brought)})
    weights.pop("t2d", None)
    fields = _fields(files, inner, base, blocks)
    ids = draft_ids(files, weights.pop("d2t", None), outer.get("draft_vocab_size"), fields["vocab_size"])
    config = files.make(
        **fields,
        draft_vocab=len(ids),
        features=states_read(files, layers),
        **third_fields(outer, weights),
        normed_feedback=bool(outer.get("norm_output")),
        state_norm="each" if outer.get("fc_norm") else "joined" if outer.get("norm_before_fc") else "none",
    )
    config = _with_candidates(files, config, weights)
    check_layers(files, config, weights)
    norms = {f"state_norms.{place}.weight": (width,) for place, width in enumerate(state_norm_widths(config))}
    check_third(files, config, weights, norms)
    if beyond := sorted(name for name in weights if name.startswith("state_norms.") and name not in norms):
        told = f"it has {files.theirs[beyond[0]]}, and its config.json asks for no such norm"
        raise files.refuse(told, "fc_norm or norm_before_fc to say so")
    return files.head(config, weights, ids)


def _flags(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with what ModelOpt says in `eagle_config`."""
    inside = config.get("eagle_config") or {}
    said = {"norm_before_fc": inside.get("norm_before_fc"), "norm_output": inside.get("return_hidden_post_norm")}
    return {**{name: value for name, value in said.items() if value is not None}, **config}


def _with_candidates(files: HeadFiles, config: HeadConfig, weights: Mapping[str, Tensor]) -> HeadConfig:
    """The config with the candidate head of EAGLE-4, where it has one. Raises `UserError` for one that is none."""
    if not any(name in weights for name in CANDIDATES):
        return config
    down, up = CANDIDATES
    rank = len(weights[down]) if down in weights else weights[up].shape[-1]
    check_shapes(files, weights, {down: (rank, config.hidden_size), up: (config.draft_vocab, rank)})
    said = files.config.get("efficient_lm_head_config")
    if not isinstance(said, Mapping) or said.get("rank", rank) != rank:
        told = f"efficient_lm_head_config is {said}, and its candidate head has rank {rank}"
        raise files.refuse(told, "its rank and num_candidates there")
    count: Any = said.get("num_candidates")
    try:
        return replace(config, candidate_rank=rank, candidates=count)
    except UserError as error:
        raise files.refuse(f"its candidate head: {error}", "one of EAGLE-4") from None


def third_fields(outer: Mapping[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """What the config of any EAGLE-3 head comes to, beside its block's."""
    return {
        "fuse": "attention",
        "normed": True,
        "input_norm": False,
        "own_output": "output.weight" in weights,
        "target_size": outer.get("target_hidden_size") or 0,
        "normed_residual": bool(outer.get("norm_before_residual")),
    }


def check_third(
    files: HeadFiles, config: HeadConfig, weights: Mapping[str, Tensor], more: Mapping[str, tuple[int, ...]]
) -> None:
    """The shapes of what any EAGLE-3 head has beside its block, and of what else this one needs."""
    size, theirs = config.hidden_size, config.target_size or config.hidden_size
    _refuse_coinciding(files, config, weights, theirs)
    needed: dict[str, tuple[int, ...]] = {
        "feature.weight": (size, len(config.features) * theirs),
        "embed_norm.weight": (size,),
        "feature_norm.weight": (size,),
        "norm.weight": (size,),
        **more,
    }
    if theirs != size:
        needed |= {"embedding.weight": (config.vocab_size, size), "output.weight": (config.draft_vocab, size)}
    _check(files, config, weights, needed, {"feature.bias": (size,)})


def _refuse_coinciding(files: HeadFiles, config: HeadConfig, weights: Mapping[str, Tensor], theirs: int) -> None:
    """Raises `UserError` where a head joins three states and the usual ones of so few layers are not three."""
    count, joined = files.target_layers, weights.get("feature.weight")
    if (
        joined is None
        or joined.shape[1:] != (_STATES * theirs,)
        or config.features != _usual(count)
        or len(config.features) == _STATES
    ):
        return
    usual = f"2, {count // 2} and {count - 3}"
    raise files.refuse(
        f"{files.theirs.get('feature.weight')} is {list(joined.shape)}, which joins {_STATES} states, and those that "
        f"such a head reads (2, n // 2 and n - 3) coincide in a target of {count} layers: {usual}",
        "a target of 7 layers or more, or a head that names three (eagle_aux_hidden_state_layer_ids)",
    )


def _check(
    files: HeadFiles,
    config: HeadConfig,
    weights: Mapping[str, Tensor],
    needed: Mapping[str, tuple[int, ...]],
    optional: Mapping[str, tuple[int, ...]],
) -> None:
    """`check_shapes`, with the embedding, the output rows and the norm where the head brings them."""
    size = config.hidden_size
    may = {**optional, "embedding.weight": (config.vocab_size, size), "output.weight": (config.draft_vocab, size)}
    may |= {"norm.weight": (size,)}
    check_shapes(files, weights, {**{name: shape for name, shape in may.items() if name in weights}, **needed})


def states_read(files: HeadFiles, chosen: list[int] | None) -> tuple[int, ...]:
    """Numbers of the states that are read: a low, a middle and a high one, unless the head names them.

    Example: a target of 32 layers gives (2, 16, 29), what the layers 2, 16 and 29, counted from 0, read.
    """
    count = files.target_layers
    layers = tuple(chosen) if chosen else _usual(count)
    if not all(0 <= layer < count for layer in layers):
        raise files.refuse(f"it reads the states {layers} of its target", f"0 to {count - 1}, those of this target")
    return layers


def _usual(count: int) -> tuple[int, ...]:
    return tuple(sorted({2, count // 2, count - 3}))


def draft_ids(files: HeadFiles, offsets: Tensor | None, rows: int | None, vocab: int) -> Tensor:
    """Ids `[D]` of the draft vocabulary: row r drafts token r + offset r."""
    if offsets is None:
        if rows not in (None, vocab):
            raise files.refuse(f"it drafts from {rows} of {vocab} tokens and has no d2t", "a head with d2t")
        return torch.arange(vocab)
    ids = torch.arange(len(offsets)) + offsets.long()
    if len(ids.unique()) < len(ids) or int(ids.min()) < 0 or int(ids.max()) >= vocab:
        raise files.refuse("d2t gives ids twice, or outside the vocabulary", f"{len(ids)} of 0 to {vocab - 1}")
    return ids
