"""The error for a tree on a model that runs chains of drafts alone."""

from typing import Any

from utils.errors import UserError

COUNTS_ROWS = "it counts rows of its cache and not positions"
"""Why most models that run chains alone do so."""


def chains_only(model: Any) -> UserError:
    """The error for a tree on a model that runs chains."""
    because = getattr(model, "chains_because", COUNTS_ROWS)
    return UserError(
        f"{type(getattr(model, 'hf', model)).__name__}: {because}, so a tree of drafts is not exact on it; "
        "expected chains: draft_tree chain, use_tree_spec off, no recycling, no logitspec and no beam search"
    )
