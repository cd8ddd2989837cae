"""Many sequences on real layouts of models: rounded targets, transformers' own modules, places that are given on."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from egag.length_rule import FixedGamma
from sampling.batch import Batch, decode_many
from sampling.drafter import Drafter
from sampling.forward.kernels import int4, int8
from sampling.forward.kernels.formats import FORMATS
from sampling.forward.models import lean
from sampling.forward.models.adapter import TransformersModel
from sampling.forward.runner import ModelRunner, prefill
from sampling.forward.sharing import SharedRunner
from sampling.loop import decode
from sampling.methods.tables import DRAFTERS
from sampling.pair.pair import Pair
from sampling.pair.share import shared_runner
from sampling.scheduling.live_text import Request
from sampling.verify.rejection import RejectionVerifier
from tests.refusals import refused
from tests.tiny import gpt2, llama, mistral, qwen2, random_model, tiny_pair
from utils.events import Finished, Prefilled, Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, NucleusProcessor

PROMPTS = ([5, 6, 7, 5, 6, 7, 5, 6], [40, 41], [9, 8, 7, 9, 8], [3, 3, 3, 3, 3, 3], [70, 5, 70, 5], [1, 2, 3, 4, 1, 2])
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("none", {}),
    "model": ("model", {"draft_weights": "full"}),
    "counts": ("ngram", {}),
    "suffix tree": (
        "suffix",
        {"use_tree_spec": True, "min_token_prob": 0.0, "max_spec_factor": 4.0, "max_cached_requests": 0},
    ),
}


def requests(processor: LogitsProcessor) -> list[Request]:
    return [Request(prompt, processor, 8 + 3 * number, number) for number, prompt in enumerate(PROMPTS)]


def build(case: str, pair: Pair) -> Drafter:
    name, values = CASES[case]
    return DRAFTERS[name].build(pair, {one.name: one.default for one in DRAFTERS[name].all_parameters} | values)  # type: ignore[no-any-return]


def alone(pair: Pair, case: str, request: Request) -> list[int]:
    events = decode(
        pair.target, build(case, pair), FixedGamma(4), RejectionVerifier(), request.processor, request.prompt,
        max_new_tokens=request.max_new_tokens, seed=request.seed,
    )  # fmt: skip
    return [token for event in events if isinstance(event, Round) for token in event.emitted]


def together(pair: Pair, case: str, asked: list[Request], size: int, chunk: int = 0) -> dict[int, list[int]]:
    drafter, target = build(case, replace(pair, share=shared_runner)), shared_runner(pair.target)
    batch = Batch(target, drafter, lambda: FixedGamma(4), RejectionVerifier(), size, prefill_chunk=chunk)
    found: dict[int, list[int]] = {}
    for live, event in decode_many(batch, asked):
        if isinstance(event, Finished):
            found[live.request.seed] = live.seq.tokens[live.seq.prompt_length :]
            assert event.new_tokens == len(found[live.request.seed])
    return found


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
    pair = rounded(name)
    for processor in (GreedyProcessor(), NucleusProcessor(0.9, 0.95)):
        asked = requests(processor)
        expected = {one.seed: alone(pair, case, one) for one in asked}
        for chunk in (0, 3):
            assert together(pair, case, asked, 4, chunk) == expected


@products
@pytest.mark.parametrize("name", ROUNDED)
def test_rows_of_a_rounded_target_have_the_same_bits_in_a_batch_as_alone(name: str) -> None:
    """Behind texts of different lengths, one of them a tree."""
    model = rounded(name).target.model
    many, texts = SharedRunner(model), ([5] * 7, [*range(60)], [9, 8])  # type: ignore[arg-type]
    rows, parents = ([1, 2, 3], [4, 5, 6, 7], [8]), (None, (-1, -1, 1), None)
    slots, singles = [many.another() for _ in texts], [ModelRunner(model) for _ in texts]
    for slot, single, text in zip(slots, singles, texts, strict=True):
        for one in (slot, single):
            prefill(one, text)
    fed = [slot.feed(row, above, (1, 3)) for slot, row, above in zip(slots, rows, parents, strict=True)]
    for output, single, row, above in zip(many.run(fed), singles, rows, parents, strict=True):
        expected = single.forward(row, above, (1, 3))
        assert torch.equal(output.logits, expected.logits)
        assert all(torch.equal(output.hidden[layer], expected.hidden[layer]) for layer in (1, 3))
    slots[1].keep(60, (1, 2))
    singles[1].keep(60, (1, 2))
    lines = torch.tensor([[63], [62]])
    assert torch.equal(slots[1].fork([2, 3], 62, lines).logits, singles[1].fork([2, 3], 62, lines).logits)


@products
@pytest.mark.parametrize("name", ROUNDED)
def test_a_prompt_in_chunks_beside_others_has_the_same_bits_as_alone(name: str) -> None:
    """Its hidden states and the logits behind it, whatever is fed with each chunk, a tree among it."""
    model, text = rounded(name).target.model, [(7 * place) % 90 for place in range(121)]
    single = ModelRunner(model)
    states, expected = prefill(single, text[:-1], (1, 3)), single.forward(text[-1:]).logits
    for chunk in (1, 7, 33, 120):
        many = SharedRunner(model)  # type: ignore[arg-type]
        chain, tree, slot = many.another(), many.another(), many.another()
        prefill(chain, [5] * 9)
        prefill(tree, [*range(60)])
        parts = []
        while slot.length < 120:
            count = min(chunk, 120 - slot.length)
            rows = [chain.rows(2), tree.rows(4, (-1, -1, 1)), slot.prompt_rows(count)]
            ids = torch.tensor([1, 2, 4, 5, 6, 7, *text[slot.length : slot.length + count]])
            with torch.inference_mode():
                parts.append(many.run_flat(rows, ids, (1, 3), [2, 4, 0]).hidden)
            chain.crop(9)
            tree.crop(60)
        for layer in (1, 3):
            assert torch.equal(torch.cat([part[layer][6:] for part in parts]), states[layer])
        assert torch.equal(slot.forward(text[-1:]).logits, expected)


@pytest.mark.parametrize("config", [llama, qwen2, gpt2, mistral], ids=lambda config: config.__name__)
@pytest.mark.parametrize("case", CASES)
def test_transformers_own_modules_write_in_a_batch_what_they_write_alone(config: Any, case: str) -> None:
    """Families without a lean forward go through padded ids, positions and a mask. Greedy and drawn, in turn."""
    wide = {"sliding_window": None} if config is mistral else {}
    models = [TransformersModel(random_model(config(**wide), seed).double()) for seed in (0, 1)]
    pair = replace(tiny_pair(), target=ModelRunner(models[0]), drafter=ModelRunner(models[0]), heads={})
    drawn = (config in (llama, gpt2)) is ([*CASES].index(case) % 2 == 0)
    asked = requests(NucleusProcessor(0.9, 0.95) if drawn else GreedyProcessor())
    expected = {one.seed: alone(pair, case, one) for one in asked}
    for size in (1, 4) if config is llama else (4,):
        for chunk in (0, 3):
            assert together(pair, case, asked, size, chunk) == expected


def test_a_model_whose_layers_are_not_alike_says_so() -> None:
    class Odd(TransformersModel):
        """Its later layers keep rows of another width."""

    odd = Odd(random_model(gpt2(), 0))
    attention = odd.hf.transformer.h[1].attn
    honest = attention.forward

    def narrow(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("rows of another width")

    attention.forward = narrow
    with refused("GPT2LMHeadModel", "batch"):
        shared_runner(ModelRunner(odd))
    attention.forward = honest


def test_what_the_last_sequence_left_is_taken_over_where_it_is_the_same() -> None:
    """A second turn that begins as the first one did feeds its new tokens only, and says the same."""
    pair, greedy, spoken = tiny_pair(), GreedyProcessor(), list[int]()

    def turns() -> Iterator[Request]:
        yield Request([5, 6, 7, 8], greedy, 5, 0)
        yield Request([5, 6, 7, 8, *spoken, 30, 31], greedy, 5, 1, reuse=99)

    drafter = DRAFTERS["none"].build(pair, {})
    drafter.needs_hidden = (0,)
    fed, said = [], []
    batch = Batch(shared_runner(pair.target), drafter, lambda: FixedGamma(0), RejectionVerifier(), 1)
    for live, event in decode_many(batch, turns()):
        if isinstance(event, Prefilled):
            fed.append(len(live.seq.hidden[0]))
        elif isinstance(event, Finished):
            said.append(live.seq.tokens[live.seq.prompt_length :])
            spoken.extend(said[0] if len(said) == 1 else [])
    assert fed == [3, 2]
    assert said[1] == alone(pair, "plain", Request([5, 6, 7, 8, *spoken, 30, 31], greedy, 5, 1))


def test_a_slot_is_a_runner_like_any_other() -> None:
    """A tree is fed, compacted and followed by a chain; branches see their own lines."""
    model = tiny_pair().target.model
    many = SharedRunner(model)  # type: ignore[arg-type]
    _, slot = many.another(), many.another()
    whole = ModelRunner(model)
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
