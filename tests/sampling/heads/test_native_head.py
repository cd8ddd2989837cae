"""A head's draft in one call of C++: what it gives, the same bits in any company, and which heads go without."""

from collections.abc import Callable, Iterator, Sequence
from ctypes import c_float
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from sampling.distill.tasks import Trunk
from sampling.forward.cpp import block, whole
from sampling.forward.kernels.probe import use_kernel
from sampling.forward.models.lean import LeanModel
from sampling.forward.requests import run_single
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import Head
from sampling.heads.inference import RecurrentForward
from sampling.heads.recurrent_runner import RecurrentFeed, RecurrentRunner
from sampling.methods.tables import MODELS
from tests.sampling.forward.found_compiler import found_compiler, needs_compiler, own_products
from tests.sampling.forward.test_native import BOTH, model_of

pytestmark = needs_compiler
VOCAB, WIDTH = 96, 64
REDUCED = torch.tensor([token for token in range(VOCAB) if token % 3])

HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "mtp": ("mtp", {}),
    "eagle": ("eagle", {}),
    "eagle-3": ("eagle", {"fuse": "attention", "normed": True, "normed_residual": True}),
    "eagle-3.1": ("eagle", {"fuse": "attention", "normed": True, "state_norm": "each", "normed_feedback": True}),
    "layers and windows": ("eagle", {"layers": 2, "attention_windows": (3, 0)}),
    "no norms": ("eagle", {"input_norm": False, "final_norm": False}),
    "parallel_eagle": ("parallel_eagle", {}),
}


@pytest.fixture(scope="module", autouse=True)
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with found_compiler(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(autouse=True)
def own_kernels() -> Iterator[None]:
    with own_products():
        yield


def head_of(target: LeanModel, name: str, ids: Tensor, **changes: Any) -> RecurrentForward:
    """A head with random weights on this target."""
    kind, values = HEADS[name]
    task = MODELS[kind].load_task()
    sizes = {"hidden_size": WIDTH, "vocab_size": VOCAB, "draft_vocab": len(ids), "intermediate_size": 96}
    heads = {"heads": 4, "kv_heads": 2, "head_dim": 32, "window": target.window}
    described = {**task.configure(target.num_layers), **sizes, **heads, **values, **changes}
    config = HeadConfig(method=kind, base="tiny", base_digest="", **described)
    torch.manual_seed(0)
    with torch.inference_mode(False):
        trunk = Trunk(target.embedding.float(), target.output_rows(ids).float(), ids, target.num_layers)
        module = task(config, trunk).module
    weights = {name: torch.randn_like(weight) * 0.3 for name, weight in module.state_dict().items()}
    return RecurrentForward.of(Head(config, weights, ids, "tiny"), target)


def stepwise(forward: RecurrentForward) -> RecurrentForward:
    """The same head, an operation after the other."""
    made = replace(forward, blocks=replace(forward.blocks))
    made.__dict__["native"] = made.blocks.__dict__["native"] = None
    return made


def drafted(forward: RecurrentForward, sizes: Sequence[int], masks: int = 0) -> list[Tensor]:
    """States and logits of rows of a text, so many at a time, then of a tree of drafts, or of rows without a token."""
    chance = torch.Generator().manual_seed(3)
    count = sum(sizes)
    tokens = torch.randint(VOCAB, (count,), generator=chance)
    above = torch.randn(count, WIDTH, generator=chance).to(forward.embedding)
    slot = RecurrentRunner(forward).another()
    given = list[Tensor]()
    for part, states in zip(tokens.split(list(sizes)), above.split(list(sizes)), strict=True):
        given += slot.text_rows(part, states)
    if masks:
        return [*given, run_single(slot.ahead(tokens[:2], above[:2], masks))]
    run_single(slot.feed(tokens[:1], above[:1]))
    given.append(run_single(slot.branch(torch.tensor([5, 6]), torch.tensor([-1, -1]))))
    return [*given, run_single(slot.branch(torch.tensor([7, 8, 9]), torch.tensor([1, 0, 1])))]


@pytest.mark.parametrize("ids", [REDUCED, torch.arange(VOCAB)], ids=["reduced", "all"])
@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", HEADS)
def test_it_gives_what_its_operations_give_and_a_row_the_same_alone(name: str, dtype: torch.dtype, ids: Tensor) -> None:
    forward = head_of(model_of("llama", dtype), name, ids)
    masks = 3 if name == "parallel_eagle" else 0
    assert forward.native is not None
    found, expected = drafted(forward, [9], masks), drafted(stepwise(forward), [9], masks)
    exact = drafted(stepwise(head_of(model_of("llama"), name, ids)), [9], masks)
    for place, (mine, theirs, right) in enumerate(zip(found, expected, exact, strict=True)):
        assert mine.dtype == dtype and mine.shape == theirs.shape
        if place:  # logits: those of tokens that are never drafted are the lowest
            never = torch.ones(VOCAB, dtype=torch.bool).index_fill(0, ids, False)
            assert (mine[:, never] == torch.finfo(dtype).min).all()
            mine, theirs, right = mine[:, ids], theirs[:, ids], right[:, ids]
        off, usual = (float((one.float() - right).norm()) for one in (mine, theirs))
        assert off < (1e-5 * right.norm() if dtype == torch.float32 else 2 * usual)
    alone = drafted(forward, [1] * 9, masks)
    assert torch.equal(torch.cat(alone[0:18:2]), found[0]) and torch.equal(torch.cat(alone[1:18:2]), found[1])
    assert all(torch.equal(*pair) for pair in zip(alone[18:], found[2:], strict=True))


def test_sequences_side_by_side_get_the_logits_that_they_get_alone() -> None:
    forward = head_of(model_of("llama"), "mtp", REDUCED)
    for blocks in (False, True):
        runner = RecurrentRunner(forward)
        if blocks:
            runner.use_blocks()
        slots = [runner.another() for _ in range(3)]
        tokens, above = torch.arange(9), torch.randn(9, WIDTH)
        feeds = [
            RecurrentFeed(slot._rows, part, states, None, wanted)
            for slot, part, states, wanted in zip(slots, tokens.split(3), above.split(3), (1, 0, 3), strict=True)
        ]
        together = runner.run(feeds)
        for feed, (states, logits) in zip(feeds, together, strict=True):
            by_itself = RecurrentRunner(forward)
            (alone,) = by_itself.run([replace(feed, slot=by_itself.another()._rows)])
            assert torch.equal(alone[0], states) and torch.equal(alone[1], logits)


def test_rows_behind_which_nothing_is_asked_for() -> None:
    forward = head_of(model_of("llama"), "mtp", REDUCED)
    runner = RecurrentRunner(forward)
    feed = RecurrentFeed(runner.another()._rows, torch.arange(5), torch.randn(5, WIDTH), None, 0)
    ((states, logits),) = runner.run([feed])
    assert states.shape == (5, WIDTH) and logits.shape == (0, VOCAB)


def test_who_goes_without() -> None:
    llama = model_of("llama")
    assert head_of(llama, "mtp", torch.arange(VOCAB), output_rank=16).native is None
    assert head_of(llama, "mtp", REDUCED[:24]).native is None, "outputs in pieces of 32"
    assert head_of(llama, "eagle", REDUCED, head_dim=12).native is None
    use_kernel("plain")
    assert head_of(model_of("llama"), "mtp", REDUCED).native is None


@pytest.mark.parametrize(("fault", "said"), [(1.0, "it is off by"), (1e-4, "a row has other bits")])
def test_a_head_that_is_not_right_is_not_used(
    fault: float, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forward, honest, calls = head_of(model_of("llama"), "mtp", REDUCED), block.function_of, count()

    def faulty(name: str, number: str) -> Callable[..., None] | None:
        right: Any = honest(name, number)

        def forward_in_cpp(given: Any, layers: int, ends: int, fed: Any) -> bool:
            right(given, layers, ends, fed)
            c_float.from_address(fed._obj.states).value += 100.0 if fault == 1.0 else fault * next(calls)
            return True

        return forward_in_cpp

    monkeypatch.setattr(whole, "function_of", faulty)
    assert forward.native is None and f"a whole forward in C++ is not used: {said}" in caplog.text
