"""What a trained drafter is: its sizes, what it reads, and the model that it was trained for."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import inf
from typing import Any, Literal

from utils.errors import UserError, nearest, wrong_value

_SIZES = {
    "hidden_size": (1, 2**20),
    "vocab_size": (1, 2**31),
    "draft_vocab": (1, 2**31),
    "steps": (1, 1000),
    "layers": (1, 1000),
    "intermediate_size": (0, 2**24),
    "heads": (1, 2**16),
    "kv_heads": (1, 2**16),
    "head_dim": (0, 2**16),
    "window": (1, 2**62),
    "target_size": (0, 2**20),
    "output_rank": (0, 2**20),
    "candidate_rank": (0, 2**20),
    "candidates": (0, 2**31),
    "markov_rank": (0, 2**16),
    "mask_token": (-1, 2**31),
}
OUTPUT_RANKS = ("output_rank", "candidate_rank")
"""Ranks of products over all tokens: a head with one of them has no smaller draft vocabulary."""
_NUMBERS = ("rms_norm_eps", "rope_theta")
_SWITCHES = ("normed", "input_norm", "final_norm", "own_output", "normed_residual", "normed_feedback", "fills")
_TEXTS = ("method", "base", "base_digest")


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
    normed_feedback: while drafting, the head reads its own states behind the output's norm. state_norm: norms of the
    target's states in front of the layer that joins them, one of `each`, or one of the `joined` (EAGLE-3.1, arXiv
    2605.09992). output_rank: where it is not 0, the head's own output over all tokens is a product of two matrices of
    that rank (SlimSpec, 2605.10453). candidate_rank: where it is not 0, a product of two matrices of that rank finds so
    many `candidates` among all tokens, and the output matrix scores no other (EAGLE-4). markov_rank: of the matrix
    that a one-pass head adds to its logits for the token before, 0 = none. confidence: what such a head tells the
    acceptance of a draft from, its state, or its state and the token before. fills: its rows stand where their drafts
    do, where otherwise each drafts the token behind it. mask_token: whose embedding stands for a token that is not
    known yet, -1 = one of its own.
    attention_windows: of each block, how many rows its attention sees, its own included, 0 = all; empty where no block
    has a window. recommended: values of parameters by name, such as `gamma`, that suit the methods that draft with it;
    a session begins with them, and nothing else reads them. Raises `UserError` for a value that no head has.
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
    state_norm: Literal["none", "each", "joined"] = "none"
    output_rank: int = 0
    candidate_rank: int = 0
    candidates: int = 0
    markov_rank: int = 0
    confidence: Literal["none", "state", "markov"] = "none"
    fills: bool = False
    mask_token: int = -1
    attention_windows: tuple[int, ...] = ()
    recommended: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, (least, most) in _SIZES.items():
            value = getattr(self, name)
            self._expect(name, type(value) is int and least <= value <= most, f"an integer from {least} to {most}")
        for name in _NUMBERS:
            value = getattr(self, name)
            self._expect(name, type(value) in (int, float) and 0 < value < inf, "a number above 0")
        for name in _SWITCHES:
            self._expect(name, isinstance(getattr(self, name), bool), "true or false")
        for name in _TEXTS:
            self._expect(name, isinstance(getattr(self, name), str), "a text")
        self._expect("fuse", self.fuse in ("linear", "attention"), "linear or attention")
        self._expect("state_norm", self.state_norm in ("none", "each", "joined"), "none, each or joined")
        for name in OUTPUT_RANKS:
            rank, drafts_all = getattr(self, name), self.draft_vocab == self.vocab_size
            everything = f"0, or a draft vocabulary of all {self.vocab_size} tokens"
            self._expect(name, not rank or drafts_all, everything)
            self._expect(name, rank <= self.hidden_size, f"{self.hidden_size}, hidden_size, at most")
        self._expect("candidate_rank", not (self.candidate_rank and self.output_rank), "0 where output_rank is not")
        least, most = (1, self.vocab_size) if self.candidate_rank else (0, 0)
        found = f"{least} to {most} where candidate_rank is {self.candidate_rank}"
        self._expect("candidates", least <= self.candidates <= most, found)
        self._expect("confidence", self.confidence in ("none", "state", "markov"), "none, state or markov")
        self._expect("confidence", self.confidence != "markov" or self.markov_rank > 0, "state where markov_rank is 0")
        self._expect("mask_token", self.mask_token < self.vocab_size, f"a token of {self.vocab_size}, or -1")
        self._expect("features", all(type(layer) is int and layer >= 0 for layer in self.features), "numbers of layers")
        self._expect("ranks", all(row and all(map(_share, row)) for row in self.ranks), "rows of shares from 0 to 1")
        windows, each = self.attention_windows, f"none, or one of each of {self.layers} layers"
        self._expect("attention_windows", all(map(_rows, windows)), "numbers of rows, 0 for a block that sees all")
        self._expect("attention_windows", len(windows) in (0, self.layers), each)
        self._expect("rope_scaling", isinstance(self.rope_scaling, Mapping | None), "an object, or null")
        self._expect("recommended", isinstance(self.recommended, Mapping), "an object")
        self._expect("kv_heads", self.heads % self.kv_heads == 0, f"a divisor of heads {self.heads}")

    def _expect(self, name: str, right: bool, expected: str) -> None:
        if not right:
            raise wrong_value(name, getattr(self, name), expected)

    def as_dict(self) -> dict[str, Any]:
        """For config.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any], place: str) -> "HeadConfig":
        """From config.json. Raises `UserError` for keys that are missing or unknown, and for wrong values."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            near = nearest(unknown[0], known)
            hint = f". Did you mean {near!r}?" if near else ""
            raise UserError(f"{place}: config.json has {unknown[0]!r}; expected only keys of a head{hint}")
        missing = [name for name in _REQUIRED if name not in values]
        if missing:
            raise UserError(f"{place}: config.json has no {', '.join(missing)}; expected the folder of a trained head")
        try:
            rows = tuple(tuple(row) for row in values.get("ranks", ()))
            lists = {name: tuple(values.get(name, ())) for name in ("features", "attention_windows")}
            return cls(**{**values, **lists, "ranks": rows})
        except UserError as error:
            raise UserError(f"{place}: config.json: {error}") from None
        except TypeError:
            names = "features, ranks or attention_windows"
            raise UserError(f"{place}: config.json: {names} hold no lists; expected lists") from None


_REQUIRED = [field.name for field in fields(HeadConfig)[:6]]


def _rows(value: Any) -> bool:
    return type(value) is int and value >= 0


def _share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1
