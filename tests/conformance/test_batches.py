"""Every drafter, rule and verifier in a batch: a text is what it is alone, whoever shares its forwards."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch

import sampling.sequence
from egag.cost_model import ASSUMED_COSTS, CostModel
from egag.length_rule import FixedGamma
from sampling.batch import Batch, decode_many
from sampling.drafter import Drafter, NullDrafter
from sampling.drafters.model import ModelDrafter
from sampling.forward import sharing
from sampling.forward.caches import attention_metadata
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.caches.torch_attention import TorchAttention
from sampling.forward.causal_model import Output
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.kernels.scores import Masks
from sampling.forward.models.lean import LeanModel, from_transformers
from sampling.forward.runner import ModelRunner, Runner
from sampling.forward.sharing import SharedModel, SharedRunner
from sampling.loop import decode
from sampling.methods.verifiers import VERIFIERS
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.pair.share import shared_runner
from sampling.scheduling.live_text import Request
from sampling.verify.rejection import RejectionVerifier
from tests.conformance import suite
from tests.conformance.matrix import BY_THE_CLOCK, NAMES, RULES, TREES, case, ways
from tests.conformance.suite import Case
from tests.conformance.toy import VOCAB, WINDOW, toy_pair
from tests.heads import CachingPair, random_heads
from tests.refusals import refused
from tests.tiny import WIDE, llama, random_model
from utils.errors import UserError
from utils.events import Event, Finished, Prefilled, Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor, NucleusProcessor
from utils.numbers.random_numbers import CounterRNG

LAYERS = 2
# Prompts of many lengths, one that all but fills the window.
PROMPTS = ((1, 4, 2, 0), (3,), (5, 5, 2, 2, 5), (0, 1, 2, 3) * 10, (2, 2, 2), (4, 1, 4, 1, 4), (1,), (0, 5, 0, 5, 0))
LENGTHS = (12, 5, 9, 20, 1, 7, 16, 6)
STOP = frozenset({3})
SHARED = [name for name in NAMES if name not in TREES]
WAYS = [name for name in ways() if name not in TREES]
STEADY = [name for name in RULES if name not in BY_THE_CLOCK]
GREEDY = GreedyProcessor()
SAMPLED: list[LogitsProcessor] = [MultinomialProcessor(1.0), NucleusProcessor(1.0, 0.9)]


def in_turn(names: Sequence[str], name: str, begin: int = 0) -> LogitsProcessor:
    """Greedy for every second name, and sampling for the others."""
    return (GREEDY, SAMPLED[0])[(names.index(name) + begin) % 2]


@cache
def weights(seed: int) -> LeanModel:
    """Float64 and the plain kernel, where the number of rows in a product changes nothing that can be seen."""
    sizes = {"vocab_size": VOCAB, "num_hidden_layers": LAYERS, "max_position_embeddings": WINDOW}
    return from_transformers(random_model(llama(**sizes), seed).double()).with_kernel(DenseLinear)


@cache
def pair(shared: bool = False, share: Callable[[Runner], SharedModel] = shared_runner) -> Pair:
    heads = random_heads(WIDE["hidden_size"], LAYERS, WINDOW, (0, 1, 2, 4, 5), VOCAB)
    info = ModelInfo("lean", "cpu", "float64")
    target, drafter = (ModelRunner(weights(seed)) for seed in (0, 1))
    made = CachingPair(target, drafter, None, STOP, info, info, heads=heads, drafter_heads=heads)  # type: ignore[arg-type]
    return replace(made, share=share if shared else None)


@dataclass(frozen=True)
class Course:
    """What happened to a text: drafts, accepted rows and next token of each round, and why it ended."""

    rounds: tuple[tuple[tuple[int, ...], tuple[int, ...], int | None], ...]
    reason: str | None

    @classmethod
    def of(cls, events: Sequence[Event]) -> "Course":
        rounds = [(one.drafts, one.path, one.next_token) for one in events if isinstance(one, Round)]
        return cls(tuple(rounds), next((one.reason for one in events if isinstance(one, Finished)), None))

    @property
    def text(self) -> list[int]:
        """What was committed."""
        tokens = (([drafts[row] for row in path], token) for drafts, path, token in self.rounds)
        return [token for accepted, last in tokens for token in (*accepted, last) if token is not None]


def seed_of(number: int) -> int:
    return 7 + number


@cache
def alone(names: tuple[str, ...], processor: LogitsProcessor) -> list[Course]:
    """Each text by itself, from the loop of one sequence: what a combination drafts that forgets its texts."""
    one = case(*names, forgetful=True)
    found = []
    for number, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        drafter = one.drafter(pair())
        events = decode(
            pair().target, drafter, one.gamma(), one.verifier(), processor, prompt,
            max_new_tokens=length, stop=STOP, seed=seed_of(number),
        )  # fmt: skip
        found.append(Course.of(list(events)))
    return found


def requests(processor: LogitsProcessor, order: Sequence[int]) -> list[Request]:
    return [Request(list(PROMPTS[at]), processor, LENGTHS[at], seed_of(at), STOP, tag=at) for at in order]


def together(
    one: Case,
    processor: LogitsProcessor,
    size: int,
    order: Sequence[int],
    drafter: Drafter | None = None,
    target: SharedModel | None = None,
) -> list[Course]:
    """The same texts, `size` at a time, admitted in this order."""
    target, drafter = target or SharedRunner(weights(0)), drafter or one.drafter(pair(shared=True))
    batch = Batch(target, drafter, one.gamma, one.verifier(), size)
    events: dict[int, list[Event]] = {at: [] for at in order}
    for live, event in decode_many(batch, requests(processor, order)):
        events[live.request.tag].append(event)
    for told in events.values():
        assert isinstance(told[0], Prefilled) and isinstance(told[-1], Finished)
    return [Course.of(events[at]) for at in range(len(order))]


def shuffled(seed: int) -> list[int]:
    order = [*range(len(PROMPTS))]
    random.Random(seed).shuffle(order)
    return order


def check(names: tuple[str, ...], processor: LogitsProcessor, sizes: Sequence[int]) -> None:
    expected = alone(names, processor)
    for size in sizes:
        one = case(*names, forgetful=True)
        assert together(one, processor, size, shuffled(size)) == expected, f"{size} at a time"


@pytest.mark.parametrize("drafter", SHARED)
def test_greedy_texts_are_those_of_one_sequence(drafter: str) -> None:
    check((drafter,), GREEDY, (8,))


@cache
def autoregression() -> list[list[int]]:
    """Each text by argmax of whole forwards."""
    return [suite.greedy_reference(pair(), *asked) for asked in zip(LENGTHS, PROMPTS, strict=True)]


@pytest.mark.parametrize("drafter", SHARED)
def test_greedy_texts_of_one_sequence_are_those_of_autoregression(drafter: str) -> None:
    assert [course.text for course in alone((drafter,), GREEDY)] == autoregression()


@pytest.mark.parametrize("drafter", SHARED)
def test_drawn_texts_are_those_of_one_sequence(drafter: str) -> None:
    """Under one of the processors, in turn: whoever draws is given a distribution, and not who made it."""
    check((drafter,), SAMPLED[SHARED.index(drafter) % 2], (3,))


@pytest.mark.parametrize("drafter", WAYS)
def test_forwards_of_fixed_shapes_say_the_same(drafter: str) -> None:
    """What fills them up is never read: rows that nobody asked for, places without a text, and columns behind it."""
    one, target = case(drafter, forgetful=True), SharedRunner(weights(0), fixed_shapes=True)
    shared = pair(shared=True, share=lambda runner: SharedRunner(runner.model, fixed_shapes=True))  # type: ignore[arg-type]
    shared = replace(shared, target=ModelRunner.with_graphs(weights(0)))  # so that heads have them as well
    processor = in_turn(WAYS, drafter)
    assert together(one, processor, 3, shuffled(3), one.drafter(shared), target) == alone((drafter,), processor)
    assert target.graphs is not None and target.graphs.shapes


@pytest.mark.parametrize("rule", STEADY)
@pytest.mark.parametrize("at", range(3), ids=["model", "eagle dynamic tree", "prompt_lookup"])
def test_every_rule_belongs_to_one_sequence(at: int, rule: str) -> None:
    """On a chain, a tree and a copy; greedy and drawn, in turn."""
    drafter = ("model", "eagle dynamic tree", "prompt_lookup")[at]
    check((drafter, rule), in_turn(STEADY, rule, at), (3,))


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("at", range(3), ids=["model", "mtp dynamic tree", "suffix"])
def test_every_verifier_judges_a_batch(at: int, verifier: str) -> None:
    """A chain, a tree and a copy; greedy and drawn, in turn."""
    drafter = ("model", "mtp dynamic tree", "suffix")[at]
    check((drafter, RULES[0], verifier), in_turn([*VERIFIERS], verifier, at), (3,))


def test_a_coin_that_is_its_drafts_number_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: one number for every purpose, so that a draft and its verdict go together."""
    honest = CounterRNG._bytes
    monkeypatch.setattr(CounterRNG, "_bytes", lambda self, purpose, count: honest(self, "draft", count))
    with pytest.raises(AssertionError):
        suite.check_law(case("model"), toy_pair(), SAMPLED[0], runs=4 * suite.RUNS)


def test_texts_of_several_processors_are_judged_each_by_its_own() -> None:
    one, processors = case("model"), [GREEDY, *SAMPLED]
    expected = [alone(("model",), processor) for processor in processors]
    batch = Batch(SharedRunner(weights(0)), one.drafter(pair(shared=True)), one.gamma, one.verifier(), 3)
    asked = [replace(requests(processors[at % 3], range(8))[at], tag=at) for at in range(8)]
    events: dict[int, list[Event]] = {at: [] for at in range(8)}
    for live, event in decode_many(batch, asked):
        events[live.request.tag].append(event)
    assert [Course.of(events[at]) for at in range(8)] == [expected[at % 3][at] for at in range(8)]


def test_a_round_tells_how_many_shared_it_and_how_long_others_were_waited_for() -> None:
    one = case("none")
    batch = Batch(SharedRunner(weights(0)), one.drafter(pair(shared=True)), one.gamma, one.verifier(), 3)
    live_of: dict[int, list[int]] = {}
    waited = 0.0
    for live, event in decode_many(batch, requests(GreedyProcessor(), range(8))):
        if isinstance(event, Round):
            live_of.setdefault(live.request.tag, []).append(event.live)
            waited += event.waited_s
    assert {count for counts in live_of.values() for count in counts} <= {1, 2, 3} and max(live_of[0]) == 3
    assert waited > 0.0, "prompts were read while others waited"


def test_a_rule_is_told_what_its_own_drafts_cost() -> None:
    """All shares make up the round; who drafts more has the larger one, by the price of so many rows."""
    one = case("prompt_lookup")
    batch = Batch(SharedRunner(weights(0)), one.drafter(pair(shared=True)), one.gamma, one.verifier(), 3)
    for request in requests(GreedyProcessor(), [2, 6, 3]):
        batch.admit(request)
    told = batch.play()
    shares = [live.seq.last for live, _ in told]
    price = ASSUMED_COSTS.among(3)
    for phase in ("draft_s", "verify_s", "other_s"):
        whole = getattr(told[0][1], phase)
        assert sum(getattr(share, phase) for share in shares if share) == pytest.approx(whole)
    drafts = [len(share.drafts) for share in shares if share]
    assert len(set(drafts)) > 1, "some draft more than others"
    costs = [share.verify_s / price.verify_s(len(share.drafts)) for share in shares if share]
    assert costs == pytest.approx([costs[0]] * 3)


@pytest.mark.parametrize("size", [1, 2])
def test_a_rule_knows_what_rounds_cost_from_the_first_one_on(size: int) -> None:
    """Alone in its batch as well, and its share once there are more."""
    one, told = case("none"), CostModel(((1, 20.0), (3, 24.0)), 1.0, 1.0)
    batch = Batch(SharedRunner(weights(0)), one.drafter(pair(shared=True)), one.gamma, one.verifier(), size)
    for request in requests(GreedyProcessor(), [2, 6][:size]):
        live, _ = batch.admit(replace(request, price=told))
        assert live.seq.rule.cost_model == told
    batch.play()
    assert all(live.seq.rule.cost_model == told.among(size) for live in batch.live)


def test_a_text_that_is_dropped_frees_its_place_and_changes_no_other() -> None:
    one = case("model")
    expected = alone(("model",), GREEDY)
    batch = Batch(SharedRunner(weights(0)), one.drafter(pair(shared=True)), one.gamma, one.verifier(), 2)
    first, _ = batch.admit(requests(GreedyProcessor(), [0])[0])
    second, _ = batch.admit(requests(GreedyProcessor(), [2])[0])
    told = [batch.play()]
    batch.drop(first)
    assert not batch.full and [one.seq for one in batch.live] == [second.seq]
    third, _ = batch.admit(requests(GreedyProcessor(), [7])[0])
    while batch.live:
        told.append(batch.play())
    for live, at in ((second, 2), (third, 7)):
        course = Course.of([round for rounds in told for own, round in rounds if own is live])
        assert course.rounds == expected[at].rounds


@pytest.mark.parametrize("size", [0, -1])
def test_no_batch_has_no_places(size: int) -> None:
    one = case("none")
    with refused("batch", size, 1):
        Batch(SharedRunner(weights(0)), one.drafter(pair()), one.gamma, one.verifier(), size)


def test_what_is_refused_changes_nothing() -> None:
    one = case("model")
    batch = Batch(SharedRunner(weights(0)), one.drafter(pair(shared=True)), one.gamma, one.verifier(), 2)
    for prompt in ([], [1] * WINDOW):
        with pytest.raises(UserError):
            batch.admit(Request(list(prompt), GreedyProcessor(), 5, 0))
    assert not batch.live and not batch.full


class TestPlanted:
    """The classic faults of batches, each of which must be seen."""

    @pytest.fixture(autouse=True)
    def expected(self) -> None:
        """What texts are alone is kept: it is known before a fault is planted."""
        for drafter in ("none", "model", "suffix tree", "mtp dynamic tree"):
            alone((drafter,), GREEDY)
        alone(("model",), SAMPLED[0])

    @staticmethod
    def fails(drafter: str, processor: LogitsProcessor | None = None) -> bool:
        try:
            check((drafter,), processor or GREEDY, (3,))
        except (AssertionError, UserError, IndexError, RuntimeError):
            return True
        return False

    def test_stale_numbers_that_are_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rows behind a text's length hold NaN: a mask does not hide them."""
        before = RowsCache._make_room

        def dirty(self: RowsCache, count: int) -> None:
            before(self, count)
            self.values[self.values == 0.0] = torch.nan

        monkeypatch.setattr(RowsCache, "_make_room", dirty)
        assert self.fails("none")

    def test_positions_by_the_longest_text(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = RowsCache._positions

        def column(self: RowsCache, feeds: Any, places: torch.Tensor) -> torch.Tensor:
            return honest(self, feeds, places) + max(one.slot.length for one in feeds) - feeds[0].slot.length

        monkeypatch.setattr(RowsCache, "_positions", column)
        assert self.fails("none")

    def test_rows_of_rejected_drafts_that_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(RowsSlot, "crop", lambda self, length: None)
        assert self.fails("model")

    def test_trees_that_are_not_compacted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = RowsCache.move

        def only_alone(self: RowsCache, *args: Any) -> None:
            if self.taken == 1:
                honest(self, *args)

        monkeypatch.setattr(RowsCache, "move", only_alone)
        assert self.fails("suffix tree") or self.fails("mtp dynamic tree")

    def test_a_sequence_that_sees_its_neighbour(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = TorchAttention._side

        def shifted(self: TorchAttention, *given: Any) -> Any:
            side = honest(self, *given)
            return replace(side, mask=Masks(side.mask.within(None).roll(1, 0)))

        monkeypatch.setattr(TorchAttention, "_side", shifted)
        assert self.fails("none")

    def test_one_generator_for_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """CounterRNG that follow one another across texts make each depend on the others."""
        generator = random.Random(0)
        monkeypatch.setattr(CounterRNG, "raw", lambda self, count, purpose: generator.randbytes(8 * count))
        assert self.fails("model", SAMPLED[0])

    def test_results_that_are_handed_to_the_wrong_text(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = SharedRunner.run_flat

        def reversed_rows(self: SharedRunner, *args: Any) -> Output:
            whole = honest(self, *args)
            return Output(whole.logits.flip(0), whole.hidden)

        monkeypatch.setattr(SharedRunner, "run_flat", reversed_rows)
        assert self.fails("none")


def test_a_few_of_many_attend_apart_and_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether sequences attend side by side or each by itself is seen by nobody."""
    seen = set[str]()
    for kind in (attention_metadata.PaddedAttention, attention_metadata.PerSequenceAttention):
        honest = kind.__init__

        def noted(self: Any, *args: Any, honest: Any = honest, kind: Any = kind, **more: Any) -> None:
            seen.add(kind.__name__)
            honest(self, *args, **more)

        monkeypatch.setattr(kind, "__init__", noted)
    check(("eagle",), GREEDY, (8,))
    assert seen == {"PaddedAttention", "PerSequenceAttention"}


def test_a_place_is_given_to_the_next_text() -> None:
    """Rows grow with what is asked for, not with how many texts there were."""
    one, drafter = case("model"), case("model").drafter(pair(shared=True))
    target = SharedRunner(weights(0))
    batch = Batch(target, drafter, one.gamma, one.verifier(), 2)
    for _ in range(3):
        for _ in decode_many(batch, requests(GreedyProcessor(), range(8))):
            pass
    assert target.cache.keys.shape[1] == 2
    assert drafter.runner.cache.keys.shape[1] <= 3  # type: ignore[attr-defined]


def test_the_module_has_no_slot_of_its_own() -> None:
    assert sharing.SharedRunner(weights(0)).cache.keys.shape[1] == 0, "no place before somebody asks for one"


class Keeping(NullDrafter):
    """Writes down each round of a text, and what is written there when the text is whole."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, ...], list[int]] = {}

    def begin(self, seq: sampling.sequence.Sequence) -> None:
        seq.drafter_state[self] = []

    def observe(self, seq: sampling.sequence.Sequence, round: Round) -> None:
        seq.drafter_state[self].append(round.number)

    def finish(self, seq: sampling.sequence.Sequence) -> None:
        self.kept[tuple(seq.tokens[: seq.prompt_length])] = seq.drafter_state[self]


def test_a_drafter_finishes_a_text_with_what_it_keeps_for_it() -> None:
    """Alone and among others, though a short text waits there for a long one that began before."""
    one, lonely, shared = case("none"), Keeping(), Keeping()
    for number, prompt in enumerate(PROMPTS):
        stream = decode(
            *(ModelRunner(weights(0)), lonely, one.gamma(), one.verifier(), GreedyProcessor(), prompt),
            max_new_tokens=LENGTHS[number],
            seed=0,
        )
        assert isinstance([*stream][-1], Finished)
    together(one, GreedyProcessor(), 3, [*range(len(PROMPTS))], shared)
    assert lonely.kept.keys() == shared.kept.keys() == {*PROMPTS}
    assert all(kept == [*range(len(kept))] for kept in (*lonely.kept.values(), *shared.kept.values()))


def test_a_text_that_waits_gives_its_rows_back() -> None:
    """One long text, and nine short ones that are over long before it."""
    drafter = ModelDrafter.build(pair(shared=True), {"draft_weights": "full"})
    batch = Batch(SharedRunner(weights(0)), drafter, FixedGamma, RejectionVerifier(), 2)
    asked = [Request([1, 2], GreedyProcessor(), length, 0) for length in (30, *[2] * 9)]
    cache = drafter.runner.cache  # type: ignore[attr-defined]
    before = cache.taken - len(cache._free)
    most = max(cache.taken - len(cache._free) for _ in decode_many(batch, asked))
    assert most - before <= 2
