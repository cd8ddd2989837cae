"""CUDA branches on tensors that have shapes and no numbers: whatever reads one raises, and kernels are counted."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from egag.entropy import entropy
from egag.length_rule import FixedGamma
from sampling.drafters.draft_tree import TreeShape, grow_tree
from sampling.forward.graphs import sequence_graphs
from sampling.forward.models import lean
from sampling.forward.models.lean import LeanModel
from sampling.forward.requests import StepGenerator, run_single
from sampling.forward.runner import ModelRunner
from sampling.proposal import Proposal
from sampling.verify import proposals
from sampling.verify.block import BlockVerifier
from sampling.verify.match import GreedyVerifier, TargetMatchVerifier
from sampling.verify.proposals import ProposalBatch
from sampling.verify.rejection import RejectionVerifier
from sampling.verify.traversal import TraversalVerifier
from sampling.verify.verdict import pack
from sampling.verify.verifier import Verifier
from tests.pretend_cuda import FREE, WHOLE, forget_kept
from tests.tiny import llama, random_model
from utils.device import sent
from utils.logits_processor import (
    GreedyProcessor,
    LogitsProcessor,
    MultinomialProcessor,
    NucleusProcessor,
    TopKNucleusProcessor,
)

CUDA = torch.device("cuda:0")
VOCAB = 300
MOST_KERNELS = 18


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything that is made in a test has no numbers, on whatever device it says."""
    monkeypatch.setattr(sent, "_queued", lambda made, device: made.to(device))
    forget_kept()
    proposals._layout_of_one.cache_clear()
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    torch._C._ensureCUDADeviceGuardSet()
    with torch.inference_mode(), FakeTensorMode():
        yield
    forget_kept()
    proposals._layout_of_one.cache_clear()


class Kernels(TorchDispatchMode):
    """What would be launched, each with shapes, strides and formats; composite operations are taken apart."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    @property
    def found(self) -> Counter[str]:
        """How many there are of each name."""
        return Counter(name for name, *_ in self.calls)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func._schema.name.split("::")[1])
        if name not in WHOLE:
            with self:
                parts = func.decompose(*args, **(kwargs or {}))
            if parts is not NotImplemented:
                return parts
        if not func.is_view and name not in FREE:
            tensors = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)]
            self.calls.append((name, *((tuple(one.shape), one.stride(), one.dtype) for one in tensors)))
        return func(*args, **(kwargs or {}))


def model(layers: int) -> LeanModel:
    """A lean model on the card; its CUDA branches, in bfloat16."""
    config = llama(num_hidden_layers=layers, vocab_size=VOCAB)
    with torch.inference_mode(False):
        made = random_model(config)
    weights = {
        name: torch.empty(weight.shape, device=CUDA, dtype=torch.bfloat16) for name, weight in made.named_parameters()
    }
    return lean.from_weights(config, weights)


def launched(layers: int, rows: int) -> Counter[str]:
    runner = ModelRunner.with_graphs(model(layers))
    columns = runner.cache.columns(rows)
    given = torch.empty(rows, device=CUDA, dtype=torch.long), *sequence_graphs.chain(rows, rows, CUDA)
    with Kernels() as kernels:
        sequence_graphs._step(runner.model, runner.cache, columns, rows, (), *given)
    return kernels.found


@pytest.mark.parametrize("rows", [1, 5, 17])
def test_a_forward_reads_nothing_and_its_layers_are_few_kernels(rows: int) -> None:
    layer = launched(3, rows) - launched(2, rows)
    assert 0 < layer.total() <= MOST_KERNELS, layer


PROCESSORS: list[LogitsProcessor] = [
    GreedyProcessor(),
    MultinomialProcessor(0.7),
    NucleusProcessor(1.0, 0.9),
    TopKNucleusProcessor(1.0, 40, 0.9),
]


VERIFIERS: list[Verifier] = [
    RejectionVerifier(),
    BlockVerifier(),
    TraversalVerifier(),
    TargetMatchVerifier(),
    GreedyVerifier(),
]
FORMS = ("chain", "tree", "drawn tree")
# Every two of a processor, a verifier and a form.
JUDGED = [
    (processor, verifier, FORMS[(first + second) % 3])
    for first, processor in enumerate(PROCESSORS)
    for second, verifier in enumerate(VERIFIERS)
]


@pytest.mark.parametrize(
    ("processor", "verifier", "form"), JUDGED, ids=lambda one: one if isinstance(one, str) else type(one).__name__
)
def test_judging_reads_nothing(processor: LogitsProcessor, verifier: Verifier, form: str) -> None:
    def logits(rows: int) -> Tensor:
        return torch.empty(rows, VOCAB, device=CUDA)

    def feed(tokens: Tensor, parents: Tensor | None) -> StepGenerator[Tensor]:
        yield from ()
        return logits(len(tokens))

    if form != "chain":
        grown = run_single(grow_tree(TreeShape(4, 12), 3, logits(1), feed, FixedGamma(3)))
        drawn = processor(logits(12)) if form == "drawn tree" else None
        proposal = Proposal(grown.tokens, grown.parents, drawn, entropy(logits(1)[0]))
    else:
        tokens = torch.empty(4, device=CUDA, dtype=torch.long)
        proposal = Proposal(tokens, None, None if processor.greedy else processor(logits(4)), entropy(logits(1)[0]))
    p = processor(logits(len(proposal) + 1))
    batch = ProposalBatch([proposal], p.device)
    verdict = verifier.decide(batch, p, [None])  # type: ignore[list-item]
    found = pack(batch, verdict, batch.of_drafts(p), batch.of_next(p, verdict.end, verdict.token))
    assert found.shape == (4 + len(proposal) * (3 if form == "chain" else 4),) and found.device == CUDA


_TREE = (-1, -1, 0, 1, 3, 3)


@pytest.mark.parametrize(("with_graphs", "kinds"), [(ModelRunner.with_one_width, 1), (ModelRunner.with_graphs, 5)])
def test_in_one_width_all_forwards_are_the_same_calls(
    with_graphs: Callable[[LeanModel], ModelRunner], kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation that meets other shapes or strides may sum in another order. Other runners have a kind a width."""
    forwards, step = list[tuple[Any, ...]](), sequence_graphs._step

    def watched(*given: Any) -> Any:
        with Kernels() as kernels:
            result = step(*given)
        forwards.append(tuple(kernels.calls))
        return result

    monkeypatch.setattr(sequence_graphs, "_step", watched)
    runner = with_graphs(model(2))
    for count, parents in ((40, None), (1, None), (5, None), (7, _TREE), (1, None), (16, None)):
        runner.forward(torch.empty(count, device=CUDA, dtype=torch.long), parents)
    assert len(forwards) > 5 and len(set(forwards)) == kinds
