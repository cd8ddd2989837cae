"""The table of formats that load, ours first, and what every loaded head must agree with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sampling.forward.causal_model import CausalModel
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import CONFIG, Head, load_head, read_json
from sampling.heads.published.block_weights import WINDOWED
from sampling.heads.published.eagle import read_eagle, read_eagle3, read_speculators
from sampling.heads.published.files import HeadFiles
from sampling.heads.published.medusa import read_hydra, read_medusa
from sampling.heads.published.mtp import COUNTS, read_mtp
from sampling.heads.published.one_pass import KINDS, read_one_pass
from sampling.heads.published.parallel_eagle import (
    SPECULATORS,
    is_parallel,
    read_parallel,
    read_speculators_parallel,
)
from utils.errors import UserError
from utils.text import first_line

OWN = "method"
_MODELS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")  # how transformers calls what writes text


@dataclass(frozen=True, slots=True)
class HeadLayout:
    """A layout: the kind of head in it, what in config.json tells it from others, and its reader."""

    name: str
    kind: str
    known: Callable[[Mapping[str, Any]], bool]
    read: Callable[[HeadFiles], Head]


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda config: any(config.get(name) for name in names)


def _third(config: Mapping[str, Any]) -> bool:
    kinds = config.get("architectures") or ()
    return "draft_vocab_size" in config or any("Eagle3" in name or WINDOWED in name for name in kinds)


def _parallel_speculators(config: Mapping[str, Any]) -> bool:
    return config.get("speculators_model_type") == SPECULATORS


def _parallel(config: Mapping[str, Any]) -> bool:
    return _third(config) and is_parallel(config)


def _first(config: Mapping[str, Any]) -> bool:
    return config.get("num_hidden_layers") == 1 and "hidden_size" in config


def _one_pass(config: Mapping[str, Any]) -> bool:
    return config.get("speculators_model_type") in KINDS or _has("target_layer_ids", "dflash_config")(config)


# The first one that knows a config.json reads it.
FORMATS = (
    HeadLayout("Medusa (medusa_num_heads)", "medusa", _has("medusa_num_heads"), read_medusa),
    HeadLayout("Hydra (hydra_num_heads)", "hydra", _has("hydra_num_heads"), read_hydra),
    HeadLayout(
        f"speculators P-EAGLE (speculators_model_type {SPECULATORS})",
        "parallel_eagle",
        _parallel_speculators,
        read_speculators_parallel,
    ),
    HeadLayout("DFlash and DSpark (target_layer_ids)", "dspark", _one_pass, read_one_pass),
    HeadLayout("speculators (speculators_model_type)", "eagle", _has("speculators_model_type"), read_speculators),
    HeadLayout(f"built-in MTP ({', '.join(COUNTS)})", "mtp", _has(*COUNTS), read_mtp),
    HeadLayout("P-EAGLE (ptd_token_id or pard_token)", "parallel_eagle", _parallel, read_parallel),
    HeadLayout("EAGLE-3 and EAGLE-4 (draft_vocab_size)", "eagle", _third, read_eagle3),
    HeadLayout("EAGLE (num_hidden_layers 1)", "eagle", _first, read_eagle),
)


def kind_of(folder: Path) -> str:
    """Which method a head is for. Raises `UserError` for a folder that is none."""
    config = read_json(folder / CONFIG)
    return HeadConfig.from_dict(config, str(folder)).method if OWN in config else _format(folder, config).kind


def read_head(folder: Path, target: CausalModel) -> Head:
    """A head in our format or in one of `FORMATS`, for a target of these sizes."""
    config = read_json(folder / CONFIG)
    if OWN in config:
        return load_head(folder)
    layout = _format(folder, config)
    try:
        return layout.read(HeadFiles(folder, config, target.num_layers, target.vocab_size, target.embedding))
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        why = first_line(error)
        raise UserError(f"{folder / CONFIG}: a value is of the wrong kind ({why}); expected {layout.name}") from error


def check_fit(head: Head, name: str, place: str, target: CausalModel, digest: str) -> None:
    """Raises `UserError` where weights, hidden size or vocabulary that a head was trained for are not the target's.

    name, place, digest: the target's name, where its weights came from, and their `fingerprint`.
    """
    if head.config.base_digest not in ("", digest):
        raise UserError(
            f"{head.place} was trained on the weights of {head.config.base}, and {name} ({place}) has others; "
            "expected a head for this target"
        )
    if any(layer > target.num_layers for layer in head.config.features):
        raise UserError(
            f"{head.place} reads the states {list(head.config.features)} of {name}; expected 0 to {target.num_layers}"
        )
    theirs = head.config.target_size or head.config.hidden_size, head.config.vocab_size
    ours = target.embedding.shape[1], target.vocab_size
    if theirs != ours:
        base = head.config.base or "a target that it does not name"
        raise UserError(
            f"{head.place} is for {base} (hidden size {theirs[0]}, vocabulary {theirs[1]}), and {name} has hidden "
            f"size {ours[0]}, vocabulary {ours[1]}; expected a head for this target"
        )


def _format(folder: Path, config: Mapping[str, Any]) -> HeadLayout:
    for layout in FORMATS:
        if layout.known(config):
            return layout
    kinds = config.get("architectures")
    if isinstance(kinds, list) and any(str(kind).endswith(_MODELS) for kind in kinds):
        raise UserError(
            f"{folder}: this is a model ({kinds[0]}), not a head; expected a trained head, or the folder as --target "
            "or --drafter"
        )
    formats = ", ".join((f"ours ({OWN})", *(format.name for format in FORMATS)))
    raise UserError(f"{folder}: config.json is in no known format of heads; expected one of {formats}")
