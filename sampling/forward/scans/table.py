"""transformers' functions that scan a chain or a row, and what is put in their place in forwards of ours."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import signature
from typing import Any, Protocol

from sampling.forward.scans.delta_rule import DeltaRule
from sampling.forward.scans.mamba import Mamba
from sampling.forward.scans.mamba2 import Mamba2
from sampling.forward.scans.scan import Scan

SCANS: Mapping[str, Callable[[dict[str, Any]], Scan]] = {
    "torch_chunk_gated_delta_rule": DeltaRule.of,
    "torch_recurrent_gated_delta_rule": DeltaRule.of_one,
    "chunk_kimi_delta_attention": DeltaRule.of,
    "recurrent_kimi_delta_attention": DeltaRule.of_one,
    "mamba_selective_scan": Mamba.of,
    "mamba_selective_state_update": Mamba.of_one,
    "mamba2_chunk_scan": Mamba2.of,
    "mamba2_selective_state_update": Mamba2.of_one,
}


class Scanned(Protocol):
    """Who runs the scans of a forward."""

    def scanned(self, scan: Callable[[], Scan], own: Callable[[], Any]) -> Any:
        """What the layer's function returns. own: transformers' function."""
        ...


_running: ContextVar[Scanned | None] = ContextVar("running", default=None)


def take_over(model: Any) -> None:
    """Have the scans of this model's module ask who runs them. Outside forwards of ours they stay what they are."""
    module: Any = sys.modules[type(model).__module__]
    for name, kind in SCANS.items():
        function = getattr(module, name, None)
        if function is not None and not hasattr(function, "taken_over"):
            setattr(module, name, _taken_over(function, kind))


@contextmanager
def run_by(scanned: Scanned) -> Iterator[None]:
    """Around a forward whose scans are run by this one."""
    before = _running.set(scanned)
    try:
        yield
    finally:
        _running.reset(before)


def _taken_over(function: Callable[..., Any], kind: Callable[[dict[str, Any]], Scan]) -> Callable[..., Any]:
    parameters = signature(function)

    def scan(*arguments: Any, **named: Any) -> Any:
        if (scanned := _running.get()) is None:
            return function(*arguments, **named)
        given = parameters.bind(*arguments, **named).arguments
        return scanned.scanned(lambda: kind(given), lambda: function(*arguments, **named))

    scan.taken_over = function  # type: ignore[attr-defined]
    return scan
