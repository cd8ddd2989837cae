"""Forwards behind the first one of a round, whose shapes and addresses are known before: what one graph can hold."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sampling.forward.requests import StepGenerator
from utils.device.graph_pool import Tensors
from utils.device.graphed import Graphed

Feed = Callable[[Tensor, Tensor | None], StepGenerator[Tensor]]
"""Raw logits `[k, V]` behind k more drafts `[k]` of these parents; see `ForwardDrafter.feed`."""


@dataclass(frozen=True, slots=True)
class FurtherForwards:
    """A drafter's forwards of a round behind the first, which ask nobody and read nothing on the host.

    key: what they were made for. graph, known: see `CapturedSteps`. inputs: what they read of this round. feed: makes
    of these inputs the feed of one round; it holds neither what captures nor what drafts, for a graph may not own
    itself. done: told when they were made.
    """

    key: Hashable
    graph: Callable[[Hashable, Callable[..., Tensors]], Graphed]
    known: dict[Hashable, Any]
    inputs: Tensors
    feed: Callable[..., Feed]
    done: Callable[[], None] = lambda: None
