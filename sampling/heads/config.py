"""What a trained drafter is: its sizes, what it reads, and the model that it was trained for."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from utils.errors import UserError


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """The contents of a head's config.json.

    method: what drafts with it, a line of the table MODELS. base, base_digest: the target's name and the hash of its
    weights (`fingerprint`). features: target layers whose states are read, numbered as `CausalModel.forward` numbers
    them. layers: blocks of the head; steps: how many drafts ahead it was trained for. draft_vocab: rows of its
    output, the target's `vocab_size` where it drafts from the whole vocabulary. fuse: how a recurrent head joins
    embedding and feature, by a linear layer in front of the block (`linear`, EAGLE and MTP) or as the two halves of
    the input of its attention (`attention`, EAGLE-3). normed: both are normalised first. input_norm, final_norm:
    whether the block and the output have a norm of their own. own_output: it brings an output matrix. ranks: held-out
    frequency with which the token of rank r (columns) is the target's at draft d (rows). target_size: width of the
    target's states, where it is not the head's own. rope_scaling: parameters of a rotary embedding other than the
    default, by transformers' names. normed_residual: what the block adds to is the feature behind its norm.
    normed_feedback: while drafting, the head reads its own states behind the output's norm. recommended: values
    of parameters by name, such as `gamma`, that suit the methods that draft with it; a session begins with them, and
    nothing else reads them.
    """

    method: str
    base: str
    base_digest: str
    hidden_size: int
    vocab_size: int
    draft_vocab: int
    features: tuple[int, ...] = ()
    steps: int = 4
    layers: int = 1
    intermediate_size: int = 0
    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 0
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    window: int = 2048
    fuse: Literal["linear", "attention"] = "linear"
    normed: bool = False
    input_norm: bool = True
    final_norm: bool = True
    own_output: bool = False
    ranks: tuple[tuple[float, ...], ...] = ()
    target_size: int = 0
    rope_scaling: Mapping[str, Any] | None = None
    normed_residual: bool = False
    normed_feedback: bool = False
    recommended: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For config.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any], place: str) -> "HeadConfig":
        """From config.json. Raises `UserError` for keys that are missing or unknown."""
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise UserError(f"{place}: config.json has {', '.join(unknown)}; expected only {', '.join(sorted(known))}")
        values = dict(values)
        values["features"] = tuple(values.get("features", ()))
        values["ranks"] = tuple(tuple(row) for row in values.get("ranks", ()))
        try:
            return cls(**values)
        except TypeError as error:
            raise UserError(f"{place}: config.json is not that of a head: {error}") from error
