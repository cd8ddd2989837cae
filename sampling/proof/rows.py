"""Does a row of a rounded target depend on what is fed with it? Bits are compared, of chains and of a tree."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import equal

from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, prefill
from sampling.proof.faults import batch_wide

_COUNTS = (2, 5, 8)
_PARENTS = (-1, -1, 0, 1, 2)
_PATHS = ((0, 2, 4), (1, 3))


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows were compared with themselves alone, and how many of them differed in any bit."""

    compared: int
    different: int


def compare_rows(model: LeanModel, texts: Sequence[Sequence[int]]) -> Rows:
    """Rows behind these texts (ids), each of which is followed by its own first tokens."""
    rows_same = [same for text in texts for same in _on(ModelRunner(model), ModelRunner(model), list(text))]
    return Rows(len(rows_same), rows_same.count(False))


def faulty(model: LeanModel) -> LeanModel:
    """The model with products that are wrong on purpose: what the comparison must notice."""
    return model.with_format(batch_wide(model.batch_invariant))


def _on(alone: ModelRunner, together: ModelRunner, text: list[int]) -> list[bool]:
    behind = (text * max(_COUNTS))[: max(_COUNTS)]
    prefill(alone, text)
    expected = [alone.forward([token]).logits[0] for token in behind]
    prefill(together, text)
    same = []
    for count in _COUNTS:
        logits = together.forward(behind[:count]).logits
        same += [equal(row, other) for row, other in zip(logits, expected, strict=False)]
        together.crop(len(text))
    logits = together.forward(behind[: len(_PARENTS) + 1], _PARENTS).logits
    for path in _PATHS:
        alone.crop(len(text))
        for row in (0, *(draft + 1 for draft in path)):
            same.append(equal(alone.forward([behind[row]]).logits[0], logits[row]))
    return same
