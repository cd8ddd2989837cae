"""Processor and verification of a round as one function of fixed shapes, which a GPU graph can record."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor

from sampling.forward.graphs.sequence_graphs import SequenceGraphs
from sampling.forward.runner import ModelRunner, Runner
from sampling.proposal import Proposal, ProposalForm
from sampling.verify.proposals import ProposalBatch
from sampling.verify.verdict import Verdict, unpack
from sampling.verify.verifier import Verifier
from sampling.verify.verify import EagerVerification, RoundInput, Verification, packed_verdict
from utils.device.graph_pool import Tensors
from utils.logits_processor import LogitsProcessor
from utils.numbers.random_numbers import RNG, RandomRequest, RecordingRNG, drawn, replayed


def verification_of(target: Runner, verifier: Verifier, processor: LogitsProcessor) -> Verification:
    """The verification of the rounds of one text: as a graph if the target's forwards are graphs, otherwise eager."""
    graphs = target.graphs if isinstance(target, ModelRunner) else None
    if graphs is not None and is_plain(verifier, processor):
        return GraphedVerification(graphs, verifier, processor)
    return EagerVerification(verifier)


class GraphedVerification:
    """Verifies the rounds of one text with a graph.

    The random numbers of a verdict are drawn before the graph runs, in the order in which the verifier uses them. The
    first round of a form runs without a graph and records this order, for later texts as well. The verdicts are
    therefore the same with a graph and without.
    """

    def __init__(self, graphs: SequenceGraphs, verifier: Verifier, processor: LogitsProcessor) -> None:
        self._graphs, self._verifier, self._processor = graphs, verifier, processor
        self._eager = EagerVerification(verifier)

    def run(self, feeds: Sequence[RoundInput], flat: Tensor | None = None) -> list[Verdict | Exception]:
        """See `Verification.run`."""
        (feed,) = feeds
        proposal, device = feed.proposal, feed.logits.device
        if not self._fixed(proposal):
            return self._eager.run(feeds)
        form = ProposalForm.of(proposal)
        inputs = feed.logits, *form.tensors(proposal, device)
        key = "verify", about(self._verifier), about(self._processor), form, len(proposal)
        requests = self._graphs.known.get(key)
        if requests is None:
            recording = RecordingRNG(feed.seq.rng)
            (packed,) = _packed(self._verifier, self._processor, form, recording, *inputs)
            self._graphs.known[key] = recording.requests
        else:
            function = partial(_replayed, self._verifier, self._processor, form, len(inputs), tuple(requests))
            (packed,) = self._graphs.graph(key, function)(*inputs, *drawn(requests, feed.seq.rng))
        return unpack(ProposalBatch([proposal], device), packed.tolist())

    def _fixed(self, proposal: Proposal) -> bool:
        """Whether the verification reads nothing on the host."""
        return proposal.parents is None or not self._verifier.reads_trees


def _packed(
    verifier: Verifier, processor: LogitsProcessor, form: ProposalForm, rng: RNG, logits: Tensor, *parts: Tensor
) -> Tensors:
    """The packed result of a round."""
    batch = ProposalBatch([form.proposal(*parts)], logits.device)
    return (packed_verdict(verifier, processor, batch, logits, [rng]),)


def _replayed(
    verifier: Verifier,
    processor: LogitsProcessor,
    form: ProposalForm,
    count: int,
    requests: Sequence[RandomRequest],
    *inputs: Tensor,
) -> Tensors:
    """The same, with the inputs after the first `count` as its random numbers."""
    return _packed(verifier, processor, form, replayed(requests, inputs[count:]), *inputs[:count])


def about(part: Any) -> tuple[Any, ...]:
    """The values that a verifier or processor depends on. Two with equal values share a graph."""
    return type(part), tuple(sorted(vars(part).items()))


def is_plain(*parts: Any) -> bool:
    """Whether plain values describe all parts fully. Other parts depend on their arguments, or hold state."""
    return all(isinstance(value, bool | int | float | str | tuple) for part in parts for value in vars(part).values())
