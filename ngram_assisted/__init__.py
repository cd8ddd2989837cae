"""Drafters without a model: they draft from the text so far.

The public names are `ngram_assisted_speculative_generate`, `NGramStorage` and `OneLevelNGramStorage`.
"""

from typing import Any

import utils.elsewhere  # noqa: F401
from ngram_assisted.ngram_storage import NGramStorage, OneLevelNGramStorage

__all__ = ["NGramStorage", "OneLevelNGramStorage", "ngram_assisted_speculative_generate"]


def __getattr__(name: str) -> Any:
    """The public function, imported at its first use, because importing torch takes a second."""
    if name != "ngram_assisted_speculative_generate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ngram_assisted.ngram_assisted import ngram_assisted_speculative_generate

    return ngram_assisted_speculative_generate
