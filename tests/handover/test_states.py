"""Going on from a prompt that was read before is going on from one's own prefill, to the bit."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from sampling.forward.models.adapter import TransformersModel
from sampling.forward.models.longrope import LongRopeModel
from sampling.forward.recomputing import RecomputingRunner
from sampling.forward.runner import PREFILL_CHUNK, ModelRunner, WholeRunner, prefill
from sampling.forward.state import State, put, taken
from sampling.handover import Handover, other_text, prefilled
from sampling.methods.settings import Settings
from sampling.methods.tables import METHODS
from sampling.pair.pair_engine import PairEngine
from sampling.prefilled.reading import read_apart
from sampling.prefilled.shared import SharedPrefills
from tests.conformance.test_runners import lean_pair
from tests.conformance.toy import VOCAB
from tests.refusals import refused
from tests.tiny import tiny_llama
from tests.tiny_models import FORMS, ids, make, runner
from utils.events import Finished, Prefilled, Round

ON_TARGET = [name for name, method in METHODS.items() if method.runs == "target" and not method.search]
BY_THE_CLOCK = ("ucb", "survival")
PROMPT = [2, 4, 1, 5, 3, 2, 4, 1, 0, 5]


def state_of(run: WholeRunner, prompt: list[int], layers: tuple[int, ...] = ()) -> State:
    return read_apart(run, prompt, layers).state


@dataclass
class TwelveBytes:
    """Stands for a state."""

    bytes: int = 12


@pytest.mark.parametrize(
    ("handover", "said"),
    [
        (None, Prefilled(9, 2.5)),
        (Handover(TwelveBytes(), 7.0, shared=True), Prefilled(9, 7.5, shared=True)),  # type: ignore[arg-type]
        (
            Handover(TwelveBytes(), 7.0, transfer_s=0.25, queued_s=3.0),  # type: ignore[arg-type]
            Prefilled(9, 7.5, 3.0, handed=12, transfer_s=2.25),
        ),
    ],
)
def test_who_read_the_prompt_and_how_long_it_took(handover: Handover | None, said: Prefilled) -> None:
    """Here 2 s went by, and the drafter took half a second more, beside a quarter of captures."""
    told = prefilled(9, {"prefill": 2.0, "draft": 0.5, "capture": 0.25}, handover)
    assert told == replace(said, capture_s=0.25)
    alone = prefilled(9, {"prefill": 2.0, "capture": 0.0}, handover)
    assert alone.prefill_s == pytest.approx(said.prefill_s - 0.5)


def same_rows(one: WholeRunner, other: WholeRunner) -> bool:
    mine, theirs = one.cache.rows(), other.cache.rows()  # type: ignore[attr-defined]
    return mine.keys() == theirs.keys() and all(
        torch.equal(a, b) for layer in mine for a, b in zip(mine[layer], theirs[layer], strict=True)
    )


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_state_is_what_a_prefill_leaves(name: str, form: str) -> None:
    model, prompt = make(name), ids(23, seed=3)
    own, other = runner(model, form), runner(model, form)
    states = prefill(own, prompt[:-1], (1, 3))
    kept = state_of(runner(model, form), prompt, (1, 3))
    other.forward(ids(40, seed=9))  # what it held before is no matter
    found = put(kept, other, (3, 1))
    assert other.length == own.length == 22 and same_rows(own, other)
    assert all(torch.equal(found[layer], states[layer]) for layer in (1, 3))
    draft = [prompt[-1], 5, 7, 9]
    assert torch.equal(own.forward(draft).logits, other.forward(draft).logits)


@pytest.mark.parametrize("fixed", [False, True])
def test_a_long_prompt_takes_the_room_that_it_needs(fixed: bool) -> None:
    model = tiny_llama(0, window=4096)
    make_one = ModelRunner.with_graphs if fixed else ModelRunner
    prompt = [int(token) for token in torch.randint(0, 260, (2 * PREFILL_CHUNK + 77 + 2048,))]
    own, other = make_one(model), make_one(model)
    prefill(own, prompt[:-1])
    put(state_of(make_one(model), prompt), other, ())
    assert same_rows(own, other)
    assert torch.equal(own.forward(prompt[-1:]).logits, other.forward(prompt[-1:]).logits)


def test_fixed_and_following_caches_take_each_others_rows() -> None:
    model = tiny_llama(0)
    kept = state_of(ModelRunner(model), PROMPT)
    fixed, back = ModelRunner.with_graphs(model), ModelRunner(model)
    put(kept, fixed, ())
    put(taken(fixed, PROMPT[:-1], {}), back, ())
    assert same_rows(fixed, back)


def test_a_state_is_a_copy() -> None:
    model = tiny_llama(0)
    first = ModelRunner(model)
    kept = state_of(first, PROMPT)
    before = {layer: keys.clone() for layer, (keys, _) in kept.rows.items()}
    first.crop(0)
    first.forward([5, 5, 5, 5, 5])
    assert all(torch.equal(before[layer], keys) for layer, (keys, _) in kept.rows.items())


def told(engine: PairEngine, method: str, values: Settings, prompt: list[int]) -> tuple[Prefilled, list[Any]]:
    """How the prompt was read, and all that follows from it but times."""
    events = list(engine.stream(method, values, prompt))
    assert isinstance(events[0], Prefilled) and isinstance(events[-1], Finished)
    rounds = [one for one in events if isinstance(one, Round)]
    return events[0], [replace(one, draft_s=0.0, verify_s=0.0, other_s=0.0, inner=()) for one in rounds]


@pytest.mark.parametrize("processor", ["greedy", "nucleus 0.8 0.9"])
@pytest.mark.parametrize("fixed", [False, True], ids=["dynamic", "fixed"])
@pytest.mark.parametrize("prompt", [PROMPT, PROMPT[:1]], ids=["ten", "one"])
def test_every_method_goes_on_as_from_its_own_prefill(processor: str, fixed: bool, prompt: list[int]) -> None:
    """All drafts, probabilities and verdicts; the methods share one prefill, which none of them changes."""
    values = Settings()
    values.assign_all([("length", "18"), ("processor", processor), ("chat", "off")])
    own, shared = (PairEngine(lean_pair(fixed)) for _ in range(2))
    shared.prefills = SharedPrefills()
    for method in ON_TARGET:
        if METHODS[method].controller in BY_THE_CLOCK:
            continue
        alone, expected = told(own, method, values, prompt)
        begun, found = told(shared, method, values, prompt)
        assert found == expected, method
        assert begun.shared and not alone.shared and begun.prefill_s > 0 and begun.handed is None


def test_one_prefill_serves_all_that_begin_with_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, ...]] = []

    def counted(target: Any, prompt: list[int], layers: list[int], shared: bool = False) -> Handover:
        read.append(tuple(layers))
        return read_apart(target, prompt, layers, shared)

    monkeypatch.setattr("sampling.prefilled.shared.read_apart", counted)
    engine, values = PairEngine(lean_pair(False)), Settings()
    values.assign_all([("length", "4"), ("chat", "off")])
    engine.prefills = SharedPrefills()
    for prompt in (PROMPT, PROMPT[::-1], PROMPT):
        for method in ("target", "mtp", "prompt_lookup", "speculative", "mtp"):
            told(engine, method, values, prompt)
    assert read == [(), (2,), (2,)], "once more where states are asked for that were not kept, then once a text"
    for turn in range(5):  # answers that differ make texts that differ: the last few are kept
        told(engine, "target", values, [*PROMPT, turn, 0])
    told(engine, "target", values, [*PROMPT, 1, 4])
    assert len(read) == 8
    told(engine, "target", values, PROMPT)
    assert len(read) == 9


def test_the_drafter_model_and_runs_without_a_cache_read_for_themselves() -> None:
    engine, values = PairEngine(lean_pair(False)), Settings()
    values.assign_all([("length", "4"), ("chat", "off")])
    engine.prefills = SharedPrefills()
    assert not told(engine, "drafter", values, PROMPT)[0].shared
    values.assign("cache", "off")
    assert not told(engine, "target", values, PROMPT)[0].shared


def test_the_state_of_another_text_is_refused() -> None:
    engine, values = PairEngine(lean_pair(False)), Settings()
    values.assign_all([("length", "4"), ("chat", "off")])
    other = read_apart(engine.pair.target, [*PROMPT[:4], 0, *PROMPT[5:]], ())

    class Wrong:
        def find(self, *asked: Any) -> Handover:
            return other

    engine.prefills = Wrong()
    with refused(other_text(other.state.tokens, PROMPT)):
        list(engine.stream("target", values, PROMPT))


@torch.inference_mode()
def test_a_state_that_was_changed_is_seen() -> None:
    """Planted: one number of one key is another. The comparisons above must not be blind to it."""
    model = tiny_llama(0, VOCAB)
    kept = state_of(ModelRunner(model), PROMPT)
    own, other = ModelRunner(model), ModelRunner(model)
    prefill(own, PROMPT[:-1])
    changed = kept.rows[1][0].clone()
    changed[0, 3, 2] += 0.5
    put(State(kept.tokens, {**kept.rows, 1: (changed, kept.rows[1][1])}, {}), other, ())
    assert not same_rows(own, other)
    assert not torch.equal(own.forward(PROMPT[-1:]).logits, other.forward(PROMPT[-1:]).logits)


def test_what_is_missing_or_of_another_shape_is_refused() -> None:
    model = tiny_llama(0)
    kept = state_of(ModelRunner(model), PROMPT, (1,))
    with refused("layers 1, 3", "of 1", "layer 3"):
        put(kept, ModelRunner(model), (3, 1))
    used = ModelRunner(model)
    used.forward(PROMPT)
    fewer = State(kept.tokens, {layer: rows for layer, rows in kept.rows.items() if layer}, {})
    narrow = State(kept.tokens, {layer: (k[:1], v[:1]) for layer, (k, v) in kept.rows.items()}, {})
    wide = State(kept.tokens, kept.rows, {1: torch.cat([kept.hidden[1]] * 2, dim=1)})
    rounded = State(kept.tokens, kept.rows, {1: kept.hidden[1].bfloat16()})
    double = State(kept.tokens, {layer: (k.double(), v.double()) for layer, (k, v) in kept.rows.items()}, {})
    for wrong in (fewer, narrow, double, wide, rounded):
        with refused("prefilled state", "target"):
            put(wrong, used, ())


def test_texts_that_are_more_than_rows_are_refused() -> None:
    hf = make("gpt2")
    recomputing, longrope = RecomputingRunner(tiny_llama(0)), ModelRunner(LongRopeModel(hf, 10))
    for kept_by, name in ((recomputing, "LeanModel"), (longrope, "GPT2LMHeadModel")):
        with refused("prefilled state", name):
            put(State((), {}, {}), kept_by, ())
    assert TransformersModel(hf).keeps_rows
