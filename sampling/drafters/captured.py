"""All drafts of a round behind its first forward as one function of fixed shapes, which a GPU graph can record.

The function is the very one that drafts step by step (`growth.py`): its forwards and its choices are recorded together.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from egag.length_rule import FixedGamma
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.growth import DraftGrowth
from sampling.forward.graphs.further import Feed, FurtherForwards
from sampling.forward.graphs.sequence_graphs import width_for
from sampling.forward.requests import StepGenerator, run_single
from sampling.forward.tree import Parents, laid_out
from sampling.proposal import Proposal, ProposalForm
from sampling.verify.graphed import about
from utils.device.graph_pool import Tensors
from utils.device.sent import moved
from utils.logits_processor import LogitsProcessor
from utils.numbers.random_numbers import RNG, RandomRequest, RecordingRNG, Source, drawn, replayed


@dataclass(frozen=True, slots=True)
class DraftingPlan:
    """What decides the drafts of a round where no number of it is looked at.

    depth: drafts of a chain, or levels of a tree. common: how many tokens the pair shares. draft_ids: see
    `LogitsDistribution`; those of the drafter, whose graphs these are.
    """

    shape: TreeShape | None
    depth: int
    common: int
    processor: LogitsProcessor
    draft_ids: Tensor | None = None

    @property
    def key(self) -> Hashable:
        """Plans with equal keys draft alike."""
        return "drafts", self.shape, self.depth, self.common, about(self.processor)

    def drafts(self, logits: Tensor, feed: Feed, rng: RNG) -> Proposal:
        """The proposal behind logits `[1, V]`."""

        def shared(tokens: Tensor, parents: Tensor | None) -> StepGenerator[Tensor]:
            return (yield from feed(tokens, parents))[:, : self.common]

        growth = DraftGrowth(
            FixedGamma(self.depth), self.depth, self.processor, rng, logits.device, draft_ids=self.draft_ids
        )
        return run_single(growth.proposal(self.shape, logits, shared))


@torch.inference_mode()
def captured_drafts(plan: DraftingPlan, logits: Tensor, forwards: FurtherForwards, rng: Source) -> Proposal:
    """The proposal behind logits `[1, V]`, made with a graph; it holds until the next call.

    The random numbers of a round are drawn before the graph runs, in the order in which the drafts use them. The first
    round of a plan runs without a graph and records this order, so drafts are the same with a graph and without.
    """
    known: tuple[ProposalForm, list[RandomRequest]] | None = forwards.known.get(plan.key)
    if known is None:
        recording = RecordingRNG(rng)
        inputs = (moved(one, logits.device) for one in forwards.inputs)
        proposal = plan.drafts(logits, forwards.feed(*inputs), recording)
        forwards.known[plan.key] = ProposalForm.of(proposal), recording.requests
    else:
        form, requests = known
        function = partial(_drafted, plan, form, forwards.feed, len(forwards.inputs), tuple(requests))
        graph = forwards.graph((plan.key, forwards.key), function)
        proposal = _proposal(form, graph(logits, *forwards.inputs, *drawn(requests, rng)))
    forwards.done()
    return proposal


def _drafted(
    plan: DraftingPlan,
    form: ProposalForm,
    feed: Callable[..., Feed],
    count: int,
    requests: Sequence[RandomRequest],
    logits: Tensor,
    *inputs: Tensor,
) -> Tensors:
    """The parts of the proposal, and the tree as the target's forward takes it.

    inputs: of the feed, then the random numbers.
    """
    proposal = plan.drafts(logits, feed(*inputs[:count]), replayed(requests, inputs[count:]))
    parts = form.tensors(proposal, logits.device)
    if not isinstance(proposal.parents, Parents):
        return parts
    return *parts, *laid_out(proposal.parents, width_for(len(proposal) + 1), logits.device)


def _proposal(form: ProposalForm, made: Tensors) -> Proposal:
    if not form.tree:
        return form.proposal(*made)
    *parts, depth, seen = made
    return form.proposal(*parts, laid_out=(depth, seen))
