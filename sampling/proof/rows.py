"""Does a row of a target depend on what is fed with it? Bits are compared, of chains and of a tree."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import equal

from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, prefill
from sampling.proof.faults import batch_wide

_COUNTS = (2, 3, 5, 8, 17, 33)
_PARENTS = (-1, -1, 0, 1, 2)
_PATHS = ((0, 2, 4), (1, 3))


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows were compared with themselves alone, and how many of them differed in any bit.

    alike: the largest number of rows of a chain up to which none did.
    """

    compared: int
    different: int
    alike: int


def compare_rows(model: LeanModel, texts: Sequence[Sequence[int]]) -> Rows:
    """Rows behind these texts (ids), each of which is followed by its own first tokens."""
    alone, together = ModelRunner(model), ModelRunner(model)
    same, alike = list[bool](), _COUNTS[-1]
    for text in texts:
        by_count, in_tree = _on(alone, together, list(text))
        same += [*(row for rows in by_count.values() for row in rows), *in_tree]
        alike = min([alike, *(_fewer(count) for count, rows in by_count.items() if not all(rows))])
    return Rows(len(same), same.count(False), alike)


def _fewer(count: int) -> int:
    """The next smaller number of rows that is compared."""
    return (1, *_COUNTS)[_COUNTS.index(count)]


def faulty(model: LeanModel) -> LeanModel:
    """The model with products that are wrong on purpose: what the comparison must notice."""
    return model.with_format(batch_wide(model.batch_invariant))


def _on(alone: ModelRunner, together: ModelRunner, text: list[int]) -> tuple[dict[int, list[bool]], list[bool]]:
    """Whether each row is as alone: of chains by their number of rows, and of a tree."""
    behind = (text * _COUNTS[-1])[: min(_COUNTS[-1], alone.window - len(text))]
    prefill(alone, text)
    expected = [alone.forward([token]).logits[0] for token in behind]
    prefill(together, text)
    by_count = dict[int, list[bool]]()
    for count in (count for count in _COUNTS if count <= len(behind)):
        logits = together.forward(behind[:count]).logits
        by_count[count] = [equal(row, other) for row, other in zip(logits, expected, strict=False)]
        together.crop(len(text))
    logits = together.forward(behind[: len(_PARENTS) + 1], _PARENTS).logits
    in_tree = list[bool]()
    for path in _PATHS:
        alone.crop(len(text))
        for row in (0, *(draft + 1 for draft in path)):
            in_tree.append(equal(alone.forward([behind[row]]).logits[0], logits[row]))
    return by_count, in_tree
