"""Every test here meets the layouts that a card's kernels return."""

from tests.card_layouts import card_layouts

__all__ = ["card_layouts"]
