"""What drafters whose head has a recurrent head's arithmetic begin with: its forward, and rows for each sequence."""

from collections.abc import Callable
from functools import partial
from typing import Any

from sampling.forward.int8 import Int8Linear
from sampling.heads.inference import RecurrentForward, RecurrentRunner
from sampling.heads.sharing import SharedHead
from sampling.heads.static import fixed_rows

NewRows = Callable[[], RecurrentRunner]


def forward_and_rows(pair: Any, method: str, draft_weights: str) -> tuple[RecurrentForward, NewRows]:
    """The head of this kind on its target, and what makes the rows of a sequence: shared, of fixed shapes, or neither.

    draft_weights: the setting. Raises `UserError` where the pair has no such head.
    """
    forward = RecurrentForward.of(pair.head(method), pair.target.model)
    if pair.drafts_in_int8(method, draft_weights):
        forward = forward.with_kernel(Int8Linear)
    if pair.share:
        return forward, SharedHead(forward).another
    if pair.cached and pair.target_info.graphs:
        return forward, fixed_rows(forward)
    return forward, partial(RecurrentRunner, forward)
