"""The engine: one decode loop, drafters that propose, verifiers that judge, a cache that rolls back.

For code that calls it: `autoregressive_generate` and `speculative_generate`, each with `_encoder_decoder` behind its
name too, `beam_search_generate`, and `decode` for every round's event, on what `runner_for` makes of a model. For
experiments: `load_pair(LoadOptions())`, `compare` for methods side by side on it, `register` for one of your own.
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
    """The public functions, imported when they are asked for: torch takes a second."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """The public functions too, for completion and `dir`, before they are imported."""
    return sorted({*globals(), *__all__})
