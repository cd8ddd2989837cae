"""How many positions a head drafts for: those of its config.json, or its target's where its rotary embedding allows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sampling.heads.config import HeadConfig
from sampling.heads.contents import TURNS
from sampling.heads.head_files import CONFIG, read_json
from sampling.heads.published.block_weights import STATIC_ROPE, USUAL_WINDOW
from sampling.heads.published.formats import OWN, kind_of
from utils.errors import UserError


@dataclass(frozen=True, slots=True)
class HeadWindow:
    """stated: positions in its config.json. static: whether its rotary embedding is the same whatever the length.

    A static one is defined for every position. So a head can draft beyond what it states, at positions that it may not
    have seen in training. What a head drafts decides the speed and never the output.
    """

    stated: int
    static: bool

    @classmethod
    def of(cls, config: HeadConfig) -> "HeadWindow":
        """The window of a head that was read."""
        kind = (config.rope_scaling or {}).get("rope_type", "default")
        return cls(config.window, kind in STATIC_ROPE)

    @classmethod
    def in_folder(cls, folder: Path) -> "HeadWindow | None":
        """The window of a head on disk, without its weights; None for kinds without positions (Medusa, Hydra).

        Raises `UserError` for a folder that is no head.
        """
        config = read_json(folder / CONFIG)
        if kind_of(folder) not in TURNS:
            return None
        if OWN in config:
            return cls.of(HeadConfig.from_dict(config, str(folder)))
        stated = _published(config).get("max_position_embeddings", USUAL_WINDOW)
        return cls(stated, static=True) if type(stated) is int else None  # the reader of the weights refuses the rest

    def within(self, wanted: int | None, target: int) -> int:
        """Positions that the head drafts for, behind a target of so many. wanted: `--head-window`; None: as many as go.

        Raises `UserError` where more are wanted than a rotary embedding that changes with the length has.
        """
        if wanted is not None and wanted > self.stated and not self.static:
            raise UserError(
                f"head_window {wanted} given, and the rotary embedding of the head changes with the length; expected "
                f"at most {self.stated}, the window in its config.json"
            )
        if wanted is None:
            wanted = target if self.static else self.stated
        return min(wanted, target)


def _published(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of the block: speculators has one of its own for it."""
    inner = config.get("transformer_layer_config")
    return inner if isinstance(inner, Mapping) else config
