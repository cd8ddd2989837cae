"""Mamba-1's scan of several tokens behind a state (arXiv 2312.00752).

transformers' scan begins from zeros whatever state there is, so that several tokens behind a text are wrong. Ours is
put in its place: it begins from the state that the layer has just asked its cache for.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_SCAN = "mamba_selective_scan"
_BY_HEAD = 4
"""Dimensions of a layer's state where it scans head by head (Zamba): `[1, heads, H, N]`."""
_states: ContextVar[list[Tensor] | None] = ContextVar("states", default=None)
"""The states that a layer has asked for and not yet used, in a forward of ours: one a scan."""


def begin_from_state(model: Any) -> None:
    """Have the scan of this model's module begin from a layer's state, in forwards of ours alone."""
    module: Any = sys.modules[type(model).__module__]
    scan = getattr(module, _SCAN, None)
    if scan is not None and not getattr(scan, "from_state", False):
        setattr(module, _SCAN, _from_state(scan))


@contextmanager
def states_of(cache: Any) -> Iterator[None]:
    """Around a forward over transformers' `cache`: its scans begin from the cache's states."""
    asked: list[Tensor] = []
    get = cache.get_recurrent_state

    def noted(*arguments: Any, **named: Any) -> Tensor | None:
        state: Tensor | None = get(*arguments, **named)
        asked[:] = [] if state is None else state.unbind(1) if state.dim() == _BY_HEAD else [state]
        return state

    cache.get_recurrent_state = noted
    before = _states.set(asked)
    try:
        yield
    finally:
        _states.reset(before)
        del cache.get_recurrent_state


def _from_state(scan: Callable[..., Any]) -> Callable[..., Any]:
    def begun(hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, **settings: Any) -> Any:
        asked = _states.get()
        if not asked:
            return scan(hidden_states, dt, A, B, C, **settings)
        return _scanned(asked.pop(0), hidden_states, dt, A, B, C, **settings)

    begun.from_state = True  # type: ignore[attr-defined]
    return begun


def _scanned(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    **settings: Any,
) -> tuple[Tensor, Tensor]:
    """Outputs `[1, H, n]` and the state `[1, H, N]` behind n tokens.

    x, dt, z: `[1, H, n]`; A: `[H, N]`; B, C: `[1, N, n]`; D: `[H]`. h = exp(dt A) h + dt B x; y = C h + D x.
    """
    dt = dt if delta_bias is None else dt + delta_bias.to(dt.dtype)[..., None]
    dt = F.softplus(dt)
    decay = torch.exp(A[None, :, None, :] * dt[..., None])
    added = dt[..., None] * B.transpose(1, 2)[:, None].float() * x[..., None].float()
    outputs = []
    for place in range(x.shape[2]):
        state = decay[:, :, place] * state + added[:, :, place]
        outputs.append((state.to(x.dtype) @ C[:, :, place, None].to(x.dtype))[..., 0])
    out = torch.stack(outputs, dim=-1)
    out = out if D is None else out + x * D[None, :, None]
    return (out if z is None else out * F.silu(z)).to(x.dtype), state
