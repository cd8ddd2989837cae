"""Token ids as people hand them over: lists, tensors, arrays. One text comes out, or a refusal in one line."""

from collections.abc import Mapping, Sequence, Set
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

from utils.errors import UserError
from utils.text import quoted

if TYPE_CHECKING:
    from torch import Tensor

Ids: TypeAlias = "Sequence[int] | Tensor"
OneOrMore: TypeAlias = "int | Sequence[int] | Set[int] | Tensor"


_LIST = "a list of ids, such as tokenizer.encode(text)"


def token_ids(name: str, ids: Any, expected: str = _LIST) -> list[int]:
    """The ids of one text as Python integers: from a list, or from a tensor or an array `[n]` or `[1, n]`.

    name: what errors call it. Raises `UserError` for several texts, and for what is no list of ids.
    """
    try:
        return [_id(entry) for entry in _one_row(name, ids)]
    except (TypeError, NotImplementedError):
        raise UserError(f"{name} {quoted(ids)} given; expected {expected}") from None


def _one_row(name: str, ids: Any) -> Any:
    if isinstance(ids, Mapping | Set):
        raise TypeError("its ids have no order")
    if not hasattr(ids, "tolist"):
        return ids
    shape = tuple(ids.shape)
    if len(shape) != 1 and shape[:-1] != (1,):
        raise UserError(f"{name} of shape {shape} given; expected one text, [n] or [1, n]")
    return ids.reshape(-1).tolist()


def one_or_more(name: str, value: Any) -> list[int]:
    """The same from a single id, or several. Raises `UserError`."""
    try:
        return [_id(value)]
    except TypeError:
        ids = list(value) if isinstance(value, Set) else value
        return token_ids(name, ids, "an id, or a list of ids")


def known(name: str, ids: Sequence[int], vocab_size: int) -> Sequence[int]:
    """The ids as they are. Raises `UserError` for the first one that is not from 0 to `vocab_size` - 1."""
    for id in ids:
        if not 0 <= id < vocab_size:
            raise UserError(f"{name}: id {id} given; expected 0 to {vocab_size - 1}")
    return ids


def _id(entry: Any) -> int:
    if isinstance(entry, bool):
        raise TypeError("a truth value is no id")
    return index(entry)


def alike(first: Sequence[int], other: Sequence[int]) -> int:
    """The length of the common prefix of two texts, in tokens."""
    pairs = enumerate(zip(first, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(first), len(other)))
