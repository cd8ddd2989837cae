"""The engine: one decode loop, drafters that propose, verifiers that judge, a cache that rolls back.

The public functions are `autoregressive_generate`, `speculative_generate`, `beam_search_generate` and `decode`. The
first two also exist with `_encoder_decoder` at the end of their names. `decode` gives an event for every round. It runs
on the runner that `runner_for` makes from a model.
For experiments: `load_pair(LoadOptions())`, `compare` for methods side by side on it, and `register` for a method of
your own.
"""

from typing import Any

import utils.elsewhere  # noqa: F401

_PUBLIC = {
    "autoregressive_generate": "sampling.api.generate",
    "speculative_generate": "sampling.api.generate",
    "autoregressive_generate_encoder_decoder": "sampling.api.generate_encoder_decoder",
    "speculative_generate_encoder_decoder": "sampling.api.generate_encoder_decoder",
    "beam_search_generate": "sampling.api.generate",
    "decode": "sampling.loop",
    "runner_for": "sampling.api.generate",
    "LoadOptions": "sampling.loading.options",
    "load_pair": "sampling.loading.pairs",
    "compare": "sampling.api.compare",
    "register": "sampling.api.register",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    """A public function, imported at its first use, because importing torch takes a second."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """All names with the public functions, for completion and `dir`, before these functions are imported."""
    return sorted({*globals(), *__all__})
