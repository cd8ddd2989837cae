"""Drafters walked along texts: one forward of the target over each, and every drafter at all of its places."""

from collections.abc import Mapping

import torch

from sampling.measure.acceptance.met import Met
from sampling.measure.acceptance.reading import GivenText
from sampling.measure.acceptance.target_rows import blocks
from sampling.measure.acceptance.walkers import Walker
from sampling.pair.pair import Pair
from utils.errors import UserError
from utils.logits_processor import LogitsProcessor


@torch.inference_mode()
def walk_along(
    pair: Pair, text: GivenText, walkers: Mapping[str, Walker], processor: LogitsProcessor, depth: int
) -> dict[str, Met]:
    """What each drafter met along one text, by its name.

    Raises `UserError` for a text that is longer than the target's window, and as drafters do.
    """
    if len(text.ids) > pair.target.window:
        raise UserError(f"text {text.id!r}: {len(text.ids)} tokens; expected at most the {pair.target.window} that fit")
    mets = {name: Met.empty(len(text.answer), depth, walker.fed) for name, walker in walkers.items()}
    layers = sorted({layer for walker in walkers.values() for layer in walker.layers})
    for walker in walkers.values():
        walker.begin(text)
    for block in blocks(pair.target, text, processor, pair.stop, depth, layers):
        for name, walker in walkers.items():
            walker.enter(mets[name], block)
    for name, walker in walkers.items():
        walker.end(mets[name])
    return mets
