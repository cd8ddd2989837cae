"""Many sequences in lockstep: each is what it would be alone, whoever shares its forwards."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from transformers import LlamaForCausalLM

from egag.controller import FixedGamma
from sampling.batch import Request, decode_many
from sampling.drafter import Drafter
from sampling.events import Finished, Prefilled, Round
from sampling.forward import int4, int8, lean
from sampling.forward.formats import FORMATS
from sampling.forward.linear import DenseLinear
from sampling.forward.rows import BatchRunner
from sampling.forward.runner import ModelRunner, prefill
from sampling.loop import decode
from sampling.methods import DRAFTERS
from sampling.pair import Pair
from sampling.verifier import RejectionVerifier
from tests.tiny import llama, random_model, tiny_pair
from utils.logits_processor import GreedyProcessor, LogitsProcessor, NucleusProcessor

PROMPTS = ([5, 6, 7, 5, 6, 7, 5, 6], [40, 41], [9, 8, 7, 9, 8], [3, 3, 3, 3, 3, 3], [70, 5, 70, 5], [1, 2, 3, 4, 1, 2])
CASES = {
    "plain": ("none", {}),
    "model": ("model", {}),
    "lookup": ("prompt_lookup", {"min_ngram_size": 1}),
    "counts": ("ngram", {}),
    "suffix tree": (
        "suffix",
        {"use_tree_spec": True, "min_token_prob": 0.0, "max_spec_factor": 4.0, "max_cached_requests": 0},
    ),
    "hybrid": ("extended", {"hybrid_copy": "prompt_lookup"}),
}


@pytest.fixture(scope="module")
def pair() -> Pair:
    """Float64 and the plain kernel, where the number of rows in a product changes nothing that can be seen."""
    made = tiny_pair()
    models = []
    for seed, layers in ((0, 3), (1, 1)):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(llama(num_hidden_layers=layers)).double().eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(3.0)
        models.append(lean.from_transformers(model).with_kernel(DenseLinear))
    return replace(made, target=ModelRunner(models[0]), drafter=ModelRunner(models[1]), heads={})


def requests(processor: LogitsProcessor) -> list[Request]:
    return [Request(prompt, processor, 8 + 3 * number, number) for number, prompt in enumerate(PROMPTS)]


def alone(pair: Pair, drafter: Drafter, request: Request) -> list[int]:
    events = decode(
        pair.target, drafter, FixedGamma(4), RejectionVerifier(), request.processor, request.prompt,
        max_new_tokens=request.max_new_tokens, rng=torch.Generator().manual_seed(request.seed),
    )  # fmt: skip
    return [token for event in events if isinstance(event, Round) for token in event.emitted]


def together(pair: Pair, drafter: Drafter, asked: list[Request], batch: int) -> dict[int, list[int]]:
    target = BatchRunner(pair.target.model, batch, 96)  # type: ignore[arg-type]
    found: dict[int, list[int]] = {}
    for request, seq, event in decode_many(target, drafter, lambda: FixedGamma(4), RejectionVerifier(), iter(asked)):
        if isinstance(event, Finished):
            found[request.seed] = seq.tokens[seq.prompt_length :]
            assert event.new_tokens == len(found[request.seed])
    return found


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("processor", [GreedyProcessor(), NucleusProcessor(0.9, 0.95)], ids=["greedy", "nucleus"])
@pytest.mark.parametrize("case", CASES)
def test_a_batch_writes_what_each_sequence_writes_alone(
    pair: Pair, case: str, processor: LogitsProcessor, batch: int
) -> None:
    """Six requests on up to four places: places are given on, lengths differ, and so do the drafts of a round."""
    name, values = CASES[case]
    asked = requests(processor)
    found = together(pair, DRAFTERS[name].build(pair, values), asked, batch)
    assert found == {request.seed: alone(pair, DRAFTERS[name].build(pair, values), request) for request in asked}


ROUNDED = ["int8", "int4"]
SIZES = {"hidden_size": 96, "intermediate_size": 96, "num_attention_heads": 6, "head_dim": 16}
products = pytest.mark.skipif(not (int8.runs() and int4.runs()), reason="this CPU or torch lacks the products")


def rounded(name: str) -> Pair:
    """A target whose rows may not differ in one bit: its inputs are rounded. It drafts for itself."""
    target = lean.from_transformers(random_model(llama(**SIZES), 0), format=FORMATS[name])
    other = lean.from_transformers(random_model(llama(**SIZES), 0, noise=0.03))
    return replace(tiny_pair(), target=ModelRunner(target), drafter=ModelRunner(other), heads={})


@products
@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("case", ["model", "counts", "suffix tree"])
def test_a_rounded_target_writes_in_a_batch_what_it_writes_alone(name: str, case: str) -> None:
    pair, (part, values) = rounded(name), CASES[case]
    for processor in (GreedyProcessor(), NucleusProcessor(0.9, 0.95)):
        asked = requests(processor)
        found = together(pair, DRAFTERS[part].build(pair, values), asked, 4)
        assert found == {one.seed: alone(pair, DRAFTERS[part].build(pair, values), one) for one in asked}


@products
@pytest.mark.parametrize("name", ROUNDED)
def test_rows_of_a_rounded_target_have_the_same_bits_in_a_batch_as_alone(name: str) -> None:
    """Behind texts of different lengths, one of them a tree; capacity is no multiple of what rows are counted in."""
    model = rounded(name).target.model
    many, texts = BatchRunner(model, 3, 99), ([5] * 7, [*range(60)], [9, 8])  # type: ignore[arg-type]
    rows, parents = ([1, 2, 3], [4, 5, 6, 7], [8]), (None, (-1, -1, 1), None)
    singles = [ModelRunner(model) for _ in texts]
    for slot, single, text in zip(many.slots, singles, texts, strict=True):
        for one in (slot, single):
            prefill(one, text)
    outputs = many.forward(many.slots, [torch.tensor(row) for row in rows], parents, (1, 3))
    for output, single, row, above in zip(outputs, singles, rows, parents, strict=True):
        expected = single.forward(row, above, (1, 3))
        assert torch.equal(output.logits, expected.logits)
        assert all(torch.equal(output.hidden[layer], expected.hidden[layer]) for layer in (1, 3))
    many.slots[1].keep(60, (1, 2))
    singles[1].keep(60, (1, 2))
    lines = torch.tensor([[63], [62]])
    assert torch.equal(many.slots[1].fork([2, 3], 62, lines).logits, singles[1].fork([2, 3], 62, lines).logits)


def test_stale_rows_of_the_last_sequence_are_never_seen(pair: Pair) -> None:
    """Poison behind every sequence's length changes nothing."""
    asked = requests(GreedyProcessor())
    target = BatchRunner(pair.target.model, 2, 96)  # type: ignore[arg-type]
    clean = together(pair, DRAFTERS["none"].build(pair, {}), asked, 2)
    events = decode_many(
        target, DRAFTERS["none"].build(pair, {}), lambda: FixedGamma(0), RejectionVerifier(), iter(asked)
    )
    dirty: dict[int, list[int]] = {}
    for request, seq, event in events:
        for slot in target.slots:
            target.cache._keys[:, slot.index, :, slot.length :] = 1e4
        if isinstance(event, Finished):
            dirty[request.seed] = seq.tokens[seq.prompt_length :]
    assert dirty == clean


def test_what_the_last_sequence_left_is_taken_over_where_it_is_the_same(pair: Pair) -> None:
    """A second turn that begins as the first one did feeds its new tokens only, and says the same."""
    greedy, spoken = GreedyProcessor(), list[int]()

    def turns() -> Iterator[Request]:
        yield Request([5, 6, 7, 8], greedy, 5, 0)
        yield Request([5, 6, 7, 8, *spoken, 30, 31], greedy, 5, 1, reuse=99)

    target = BatchRunner(pair.target.model, 1, 96)  # type: ignore[arg-type]
    drafter = DRAFTERS["none"].build(pair, {})
    drafter.needs_hidden = (0,)
    fed, said = [], []
    for _, seq, event in decode_many(target, drafter, lambda: FixedGamma(0), RejectionVerifier(), turns()):
        if isinstance(event, Prefilled):
            fed.append(len(seq.hidden[0]))
        elif isinstance(event, Finished):
            said.append(seq.tokens[seq.prompt_length :])
            spoken.extend(said[0] if len(said) == 1 else [])
    assert fed == [3, 2]
    assert said[1] == alone(pair, drafter, Request([5, 6, 7, 8, *spoken, 30, 31], greedy, 5, 1))


def test_a_slot_is_a_runner_like_any_other(pair: Pair) -> None:
    """A tree is fed, compacted and followed by a chain; branches see their own lines."""
    whole, slot = pair.target.another(), BatchRunner(pair.target.model, 3, 64).slots[1]  # type: ignore[arg-type]
    for one in (whole, slot):
        prefill(one, [1, 2, 3])
    tree = [one.forward([4, 9, 8, 7, 6], (-1, -1, 0, 1)).logits for one in (whole, slot)]
    torch.testing.assert_close(tree[0], tree[1])
    for one in (whole, slot):
        one.keep(3, (1, 3))
        assert one.length == 6
    torch.testing.assert_close(slot.forward([5, 6]).logits, whole.forward([5, 6]).logits)
    lines = torch.tensor([[7], [6]])
    torch.testing.assert_close(slot.fork([2, 3], 6, lines).logits, whole.fork([2, 3], 6, lines).logits)
