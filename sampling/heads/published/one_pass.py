"""DFlash and DSpark heads as their authors publish them, and in the format of `speculators`.

DFlash (github.com/z-lab/dflash, dflash/model.py): `fc` joins states of the target, `hidden_norm` is behind it, every
layer's keys and values of the text come from there; the row of a masked position drafts the token of that position,
and the target's embedding and output matrix are not in the checkpoint. DSpark (github.com/deepseek-ai/DeepSpec,
deepspec/modeling/dspark): each row drafts the token behind it; `markov_head` and `confidence_head` stand beside the
layers. Both count layers by what comes out of them, from 0. speculators (github.com/vllm-project/speculators): the same
two, the blocks' config in a config of its own, layers counted as ours are, and `d2t` of a draft vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from sampling.heads.config import HeadConfig
from sampling.heads.head_files import Head
from sampling.heads.published.block_weights import block_fields, check_block
from sampling.heads.published.eagle import draft_ids
from sampling.heads.published.files import HeadFiles, check_shapes, rename

KINDS = ("dflash", "dspark")
_NAMES = {
    "fc.weight": "feature.weight",
    "hidden_norm.weight": "feature_norm.weight",
    "layers.": "blocks.",
    "norm.weight": "norm.weight",
    "markov_head.markov_w1.weight": "markov_in.weight",
    "markov_head.markov_w2.weight": "markov_out.weight",
    "confidence_head.proj.weight": "confidence.weight",
    "confidence_head.proj.bias": "confidence.bias",
    "embed_tokens.weight": "embedding.weight",
    "lm_head.weight": "output.weight",
    "d2t": "d2t",
    "t2d": "t2d",
}
_VERIFIER = ("verifier_lm_head.weight", "verifier_norm.weight")
# What would have to be computed otherwise, and the value with which it is not there.
_PLAIN: Mapping[str, Any] = {
    "projector_type": "dflash",
    "attention_mode": "gqa",
    "markov_head_type": "vanilla",
    "causal": False,
    "is_causal": False,
    "input_embedding_scale": 1.0,
    "output_multiplier": 1.0,
    "final_logit_softcapping": 0.0,
    "selector_rank": 0,
    "conv_kernel_size": 0,
}


@dataclass(frozen=True, slots=True)
class _Said:
    """What a layout says in its own way. blocks: the config of the blocks; layers: as `HeadConfig.features`."""

    blocks: Mapping[str, Any]
    layers: tuple[int, ...]
    base: str
    fills: bool


def read_one_pass(files: HeadFiles) -> Head:
    """A DFlash or DSpark head. Raises `UserError` for a later kind of block, by what it has more."""
    said = _speculators(files) if "speculators_model_type" in files.config else _authors(files)
    _refuse_others(files)
    tensors = {name: weight for name, weight in files.weights().items() if name not in _VERIFIER}
    weights = rename(files, tensors, _NAMES)
    weights.pop("t2d", None)
    vocab = said.blocks.get("vocab_size", files.target_vocab)
    fields = block_fields(files, {**said.blocks, "vocab_size": vocab})
    ids = draft_ids(files, weights.pop("d2t", None), files.config.get("draft_vocab_size"), vocab)
    config = files.make(
        **fields,
        method="dspark",
        base=said.base,
        base_digest="",
        draft_vocab=len(ids),
        features=said.layers,
        layers=said.blocks.get("num_hidden_layers", 1),
        steps=_value(files, "block_size", 16 if said.fills else 7) - said.fills,
        markov_rank=_value(files, "markov_rank", 0) if "markov_in.weight" in weights else 0,
        confidence=_confidence(files, weights),
        fills=said.fills,
        mask_token=_value(files, "mask_token_id", None),
        own_output="output.weight" in weights,
    )
    _check(files, config, weights)
    if config.markov_rank and len(ids) < vocab:
        whole = weights["markov_in.weight"].new_zeros(vocab, config.markov_rank)
        weights["markov_out.weight"] = whole.index_copy(0, ids, weights["markov_out.weight"])
    return files.head(config, weights, ids)


def _authors(files: HeadFiles) -> _Said:
    """DFlash's and DeepSpec's own config.json: what sets a head apart is there or in `dflash_config`."""
    layers, count = _value(files, "target_layer_ids", None), files.config.get("num_target_layers", files.target_layers)
    if count != files.target_layers:
        raise files.refuse(f"its target has {count} layers", f"a head for {files.target_layers}, those of this target")
    spark = any("DSpark" in name for name in files.config.get("architectures") or ())
    fills = not _value(files, "sample_from_anchor", spark)
    return _Said(files.config, _layers(files, [layer + 1 for layer in layers or ()]), "", fills)


def _speculators(files: HeadFiles) -> _Said:
    outer = files.config
    verifier = (outer.get("speculators_config") or {}).get("verifier") or {}
    spark = outer["speculators_model_type"] == "dspark"
    inner = outer.get("transformer_layer_config") or {}
    if outer.get("target_hidden_size") not in (None, inner.get("hidden_size")):
        raise files.refuse(f"target_hidden_size is {outer['target_hidden_size']}", "a head as wide as its target")
    layers = _layers(files, outer.get("aux_hidden_state_layer_ids") or ())
    return _Said(inner, layers, str(verifier.get("name_or_path") or ""), not outer.get("sample_from_anchor", spark))


def _value(files: HeadFiles, name: str, default: Any) -> Any:
    """A value of `dflash_config`, or of config.json itself."""
    dflash_config = files.config.get("dflash_config") or {}
    return dflash_config.get(name, files.config.get(name, default))


def _layers(files: HeadFiles, value: Any) -> tuple[int, ...]:
    """Numbers of the states that are read: all before the last norm, behind which engines and transformers differ."""
    layers, count = tuple(value), files.target_layers
    if not layers or not all(0 <= layer < count for layer in layers):
        raise files.refuse(f"it reads the states {layers} of its target", f"some of 0 to {count - 1}")
    return layers


def _refuse_others(files: HeadFiles) -> None:
    for name, plain in _PLAIN.items():
        value = _value(files, name, None)
        if value is not None and value != plain and not (name == "projector_type" and value in KINDS):
            raise files.refuse(f"{name} is {value}", f"{name} {plain}")


def _confidence(files: HeadFiles, weights: Mapping[str, Tensor]) -> Literal["none", "state", "markov"]:
    if "confidence.weight" not in weights:
        return "none"
    return "markov" if _value(files, "confidence_head_with_markov", False) else "state"


def _check(files: HeadFiles, config: HeadConfig, weights: Mapping[str, Tensor]) -> None:
    """Raises `UserError` where the weights are not those of these blocks, and of these heads behind them."""
    size, vocab, rank, drafts = config.hidden_size, config.vocab_size, config.markov_rank, config.draft_vocab
    for place in range(config.layers):
        prefix = f"blocks.{place}."
        check_block(files, config, weights, prefix)
        check_shapes(files, weights, {f"{prefix}input_layernorm.weight": (size,)})
    if more := [name for name in weights if name.startswith(f"blocks.{config.layers}.")]:
        raise files.refuse(f"it has {more[0]}", f"{config.layers} layers, as its config.json says")
    shapes: dict[str, tuple[int, ...]] = {
        "feature.weight": (size, len(config.features) * size),
        "feature_norm.weight": (size,),
        "norm.weight": (size,),
    }
    if rank:
        shapes |= {"markov_in.weight": (vocab, rank), "markov_out.weight": (drafts, rank)}
    if config.confidence != "none":
        shapes |= {"confidence.weight": (1, size + (rank if config.confidence == "markov" else 0))}
    may: dict[str, tuple[int, ...]] = {"embedding.weight": (vocab, size), "output.weight": (drafts, size)}
    check_shapes(files, weights, shapes | {name: shape for name, shape in may.items() if name in weights})
