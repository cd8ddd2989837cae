"""P-EAGLE heads, as speculators writes them and as vLLM takes them for `parallel_drafting`.

speculators (github.com/vllm-project/speculators, models/peagle): `speculators_model_type` peagle, the block's config in
a config of its own, `mask_token_id`. vLLM (model_executor/models/llama_eagle3.py; PR 32887): an EAGLE-3 config with
`ptd_token_id` or `pard_token`. In both the weights are EAGLE-3's with `mask_hidden`, which `fc` reads in place of the
target's states, and as many `layers.N` as `num_hidden_layers` says, of which the first is the wide one. A mask row
reads the embedding of the mask token: the head's own, where it brings one.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sampling.heads.config import HeadConfig
from sampling.heads.head_files import Head
from sampling.heads.published.block_weights import block_fields
from sampling.heads.published.eagle import SHARED, THIRD, VERIFIER, check_third, draft_ids, states_read, third_fields
from sampling.heads.published.files import HeadFiles, rename
from sampling.heads.published.layers import check_layers, count_layers, later_names

SPECULATORS = "peagle"
_MASKS = ("mask_token_id", "ptd_token_id", "pard_token")
_PLACES = ("num_depths", "para_depths", "para_num")
_UNUSUAL = ("norm_before_fc", "fc_norm", "norm_output")
_USUAL_PLACES = 8


def is_parallel(config: Mapping[str, Any]) -> bool:
    """Whether the config of an EAGLE-3 head says that it drafts all places in one pass."""
    return bool(config.get("parallel_drafting")) or any(name in config for name in _MASKS[1:])


def read_speculators_parallel(files: HeadFiles) -> Head:
    """A head in the format of speculators; it was trained for as many places as it proposes."""
    inner = files.config.get("transformer_layer_config") or {}
    spec = files.config.get("speculators_config") or {}
    proposed = [proposal.get("speculative_tokens") for proposal in spec.get("proposal_methods") or ()]
    base = str((spec.get("verifier") or {}).get("name_or_path") or "")
    return _read(files, inner, base, next(filter(None, proposed), _USUAL_PLACES))


def read_parallel(files: HeadFiles) -> Head:
    """A head in vLLM's layout, whose config does not have to say for how many places it was trained."""
    return _read(files, files.config, files.config.get("base_model_name_or_path", ""), _USUAL_PLACES)


def _read(files: HeadFiles, inner: Mapping[str, Any], base: str, places: int) -> Head:
    """inner: the config of the blocks. places: for how many it was trained, unless the config has a word for it."""
    outer = files.config
    for flag in _UNUSUAL:
        if outer.get(flag):
            raise files.refuse(f"{flag} is {outer[flag]}", "a head without it")
    tensors = {name: weight for name, weight in files.weights().items() if name not in VERIFIER}
    blocks = count_layers(files, tensors, inner.get("num_hidden_layers", 1), parallel=True)
    names = {**THIRD, **SHARED, **later_names(files, tensors), "mask_hidden": "mask_hidden"}
    weights = rename(files, tensors, names)
    weights.pop("t2d", None)
    fields = block_fields(files, inner, blocks)
    ids = draft_ids(files, weights.pop("d2t", None), outer.get("draft_vocab_size"), fields["vocab_size"])
    config = files.make(
        **{"method": "parallel_eagle", "base": base, "base_digest": "", **fields},
        draft_vocab=len(ids),
        features=states_read(files, outer.get("eagle_aux_hidden_state_layer_ids")),
        steps=next((outer[name] for name in _PLACES if outer.get(name)), places),
        **third_fields(outer, weights),
    )
    weights["mask_hidden"] = _mask_hidden(files, weights)
    weights["mask_embedding"] = _mask_embedding(files, config, weights)
    check_layers(files, config, weights)
    theirs = config.target_size or config.hidden_size
    check_third(files, config, weights, {"mask_hidden": (len(config.features) * theirs,)})
    return files.head(config, weights, ids)


def _mask_hidden(files: HeadFiles, weights: Mapping[str, Tensor]) -> Tensor:
    if "mask_hidden" not in weights:
        raise files.refuse("it has no mask_hidden", "what its mask rows read in place of the target's states")
    return weights["mask_hidden"].flatten()


def _mask_embedding(files: HeadFiles, config: HeadConfig, weights: Mapping[str, Tensor]) -> Tensor:
    """The embedding `[H]` of the mask token, of the head's own matrix or else of the target's."""
    matrix = weights.get("embedding.weight", files.embedding)
    number = next((files.config[name] for name in _MASKS if files.config.get(name) is not None), None)
    if type(number) is not int or not 0 <= number < len(matrix):
        raise files.refuse(
            f"its mask token is {number!r}", f"{', '.join(_MASKS)}: an integer from 0 to {len(matrix) - 1}"
        )
    return matrix[number]
