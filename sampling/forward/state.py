"""What a prompt leaves in a runner, as a thing of its own: kept, sent, and put into another runner of the same model.

Keys and values of a row never change once they are written, so that a text can go on wherever copies of them are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sampling.forward.caches.cache import Rows
from sampling.forward.runner import KVTransferable, Runner
from utils.errors import UserError


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What is known of the tokens that were fed.

    tokens: their ids, n of them. rows: keys and values of each layer, `[kv_heads, n, head_dim]`; a layer behind a
    window may have its last rows alone. hidden: states `[n, H]` by layer, those that a drafter asked for.
    """

    tokens: tuple[int, ...]
    rows: Mapping[int, Rows]
    hidden: Mapping[int, Tensor]

    @property
    def bytes(self) -> int:
        """Of keys, values and states."""
        tensors = (*(tensor for pair in self.rows.values() for tensor in pair), *self.hidden.values())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@torch.inference_mode()
def taken(runner: Runner, tokens: Sequence[int], hidden: Mapping[int, Tensor]) -> State:
    """A copy of what these tokens left in a runner that was fed with them. Raises `UserError`: see `keeping`."""
    rows = {layer: (keys.clone(), values.clone()) for layer, (keys, values) in keeping(runner).kept.rows().items()}
    return State(tuple(tokens), rows, dict(hidden))


def put(state: State, runner: Runner, layers: Sequence[int]) -> dict[int, Tensor]:
    """Let a runner go on from a state; the hidden states of these layers, on the runner's device.

    Raises `UserError` where the state lacks one of them, and as `keeping` does.
    """
    kept = keeping(runner)
    if not state.tokens:
        layers = ()
    if absent := sorted(set(layers) - set(state.hidden)):
        raise UserError(
            f"the drafter reads the target's states of layers {_listed(sorted(layers))}, and the prefilled state has "
            f"those of {_listed(sorted(state.hidden)) or 'none'}: layer {absent[0]} is missing"
        )
    _refuse_other_shape(state, kept)
    try:
        kept.adopt(state.rows, len(state.tokens))
    except ValueError as error:
        raise UserError(f"the prefilled state cannot be gone on from: {error}") from error
    return {layer: state.hidden[layer].to(runner.device) for layer in layers}


def _refuse_other_shape(state: State, runner: KVTransferable) -> None:
    """Raises `UserError` where a state has not the rows that the runner's model keeps, as far as any were seen."""
    shapes = {layer: _shapes(rows) for layer, rows in state.rows.items()}
    known = {layer: _shapes(rows) for layer, rows in runner.kept.rows().items()}
    tensors = [*(row for rows in state.rows.values() for row in rows), *state.hidden.values()]
    dtypes = {tensor.dtype for tensor in tensors} | {runner.model.dtype}
    widths = {states.shape[1] for states in state.hidden.values()} | {runner.model.embedding.shape[1]}
    if len(dtypes) > 1 or len(widths) > 1 or (state.tokens and known and shapes != known):
        raise UserError("the prefilled state has rows of other layers, shapes or numbers than the target keeps")


def _shapes(rows: Rows) -> list[tuple[int, int]]:
    return [(row.shape[0], row.shape[2]) for row in rows]


def keeping(runner: Runner) -> KVTransferable:
    """The runner as one whose rows can be taken out. Raises `UserError` for one whose text is more than rows."""
    model = runner.model
    if not isinstance(runner, KVTransferable) or not getattr(model, "keeps_rows", False):
        name = type(getattr(model, "hf", model)).__name__
        raise UserError(
            f"a prefilled state of {name} cannot be kept: its text is more than keys and values, or it has no cache; "
            "expected a decoder-only model with its cache on"
        )
    return runner


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers))
