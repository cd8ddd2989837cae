"""What goes wrong with one text of a batch ends it alone: the others say what they say by themselves.

Each prompt is read alone, or in chunks beside the rounds of others.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import sampling.sequence
from egag.cost_model import ASSUMED_COSTS, CostModel
from egag.length_rule import FixedGamma, LengthRule
from sampling.batch import Batch, decode_many
from sampling.drafter import Drafter, NullDrafter
from sampling.drafters.model import ModelDrafter
from sampling.forward.caches.rows import RowsCache
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.models.lean import LeanModel, from_transformers
from sampling.forward.runner import ModelRunner
from sampling.loop import decode
from sampling.methods.settings import Settings
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.share import shared_runner
from sampling.proposal import Proposal
from sampling.scheduling.live_text import Request
from sampling.verify.rejection import RejectionVerifier
from tests.refusals import refused
from tests.tiny import llama, random_model
from utils.errors import NoDistribution
from utils.events import Event, FailedText, Finished, Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, TopKProcessor

VOCAB, BAD, WINDOW = 24, 7, 48
SAMPLED = TopKProcessor(1.0, 3)
PROMPTS = ((1, 2, 3), (4, BAD, 5), (6, 8), (9, 1, 1, 2), (BAD,), (3, 3, 3))
CHUNKS = (0, 1, 2)
HEALTHY = [at for at, prompt in enumerate(PROMPTS) if BAD not in prompt]


@cache
def model(seed: int, sick: bool = True) -> LeanModel:
    """Float64, where nobody's rows change another's; the state of one token is NaN, and nobody ever says it."""
    made = random_model(llama(vocab_size=VOCAB, num_hidden_layers=2, max_position_embeddings=WINDOW), seed).double()
    with torch.no_grad():
        made.lm_head.weight[BAD] = 0.0
        if sick:
            made.model.embed_tokens.weight[BAD] = torch.nan
    return from_transformers(made).with_kernel(DenseLinear)


def pair(sick: bool = True, sick_drafter: bool = False) -> Pair:
    info = ModelInfo("tiny", "cpu", "float64")
    target, drafter = ModelRunner(model(0, sick)), ModelRunner(model(1, sick_drafter))
    return Pair(target, drafter, None, frozenset(), info, info)  # type: ignore[arg-type]


def requests(processor: LogitsProcessor, prompts: Sequence[Sequence[int]] = PROMPTS) -> list[Request]:
    return [Request(list(prompt), processor, 6, at, tag=at) for at, prompt in enumerate(prompts)]


def alone(made: Pair, drafter: Drafter, processor: LogitsProcessor, at: int) -> list[int]:
    """What a prompt's text is by itself."""
    made = made.fresh()
    events = decode(
        made.target, drafter, FixedGamma(2), RejectionVerifier(), processor, PROMPTS[at], max_new_tokens=6, seed=at
    )
    return [token for event in events if isinstance(event, Round) for token in event.emitted]


def said(events: Sequence[tuple[Any, Event]]) -> tuple[dict[int, list[int]], dict[int, str]]:
    """The text of each that came to its end, and why the others did not."""
    texts, errors = dict[int, list[int]](), dict[int, str]()
    for live, event in events:
        if isinstance(event, Finished):
            texts[live.request.tag] = live.seq.tokens[live.seq.prompt_length :]
        elif isinstance(event, FailedText):
            errors[live.request.tag] = event.error
    return texts, errors


def shared(made: Pair) -> Pair:
    return replace(made, share=shared_runner)


def batch_of(made: Pair, drafter: Drafter, size: int, chunk: int = 0) -> Batch:
    target = shared_runner(made.target)
    return Batch(target, drafter, lambda: FixedGamma(2), RejectionVerifier(), size, prefill_chunk=chunk)


def model_drafter(made: Pair) -> Drafter:
    return ModelDrafter.build(made, {"draft_weights": "full", "vocabulary": "auto"})


@pytest.mark.parametrize("size", [1, 3, 6])
@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_logits_that_are_none(size: int, drafts: bool, chunk: int) -> None:
    """Greedy and drawn in turn, so that each meets every size, every chunk, and who drafts."""
    made, processor = pair(), (GreedyProcessor(), SAMPLED)[(size // 3 + chunk + drafts) % 2]
    drafter = model_drafter(shared(made)) if drafts else NullDrafter()
    texts, errors = said([*decode_many(batch_of(made, drafter, size, chunk), requests(processor))])
    assert sorted(errors) == [1, 4] and all(error == str(NoDistribution("model")) for error in errors.values())
    lonely = model_drafter(made) if drafts else NullDrafter()
    assert texts == {at: alone(made, lonely, processor, at) for at in HEALTHY}


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_drafter_whose_logits_are_none(chunk: int) -> None:
    """Its own rows are given to the next text as well."""
    made = pair(sick=False, sick_drafter=True)
    batch = batch_of(made, model_drafter(shared(made)), 2, chunk)
    texts, errors = said([*decode_many(batch, requests(SAMPLED))])
    assert sorted(errors) == [1, 4] and set(errors.values()) == {str(NoDistribution("drafter"))}
    assert texts == {at: alone(made, model_drafter(made), SAMPLED, at) for at in HEALTHY}


class Raising(NullDrafter):
    """Fails at one text, in one of the things that a drafter does."""

    def __init__(self, where: str) -> None:
        self.where = where

    def _meet(self, where: str, seq: sampling.sequence.Sequence) -> None:
        if where == self.where and BAD in seq.tokens[: seq.prompt_length]:
            raise ZeroDivisionError("planted")

    def begin(self, seq: sampling.sequence.Sequence) -> None:
        self._meet("begin", seq)

    def propose(self, seq: sampling.sequence.Sequence, gamma: LengthRule, limit: int) -> Proposal:
        self._meet("propose", seq)
        return super().propose(seq, gamma, limit)

    def observe(self, seq: sampling.sequence.Sequence, round: Round) -> None:
        self._meet("observe", seq)

    def finish(self, seq: sampling.sequence.Sequence) -> None:
        self._meet("finish", seq)


@pytest.mark.parametrize("where", ["begin", "propose", "observe"])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_drafter_that_fails_on_a_text(where: str, chunk: int, caplog: pytest.LogCaptureFixture) -> None:
    made = pair(sick=False)
    texts, errors = said([*decode_many(batch_of(made, Raising(where), 3, chunk), requests(GreedyProcessor()))])
    assert errors == dict.fromkeys((1, 4), "ZeroDivisionError: planted")
    assert texts == {at: alone(made, NullDrafter(), GreedyProcessor(), at) for at in HEALTHY}
    assert where == "begin" or "ZeroDivisionError" in caplog.text, "a bug keeps its traceback, in the log"


class Picky(GreedyProcessor):
    """A processor of somebody's own that fails on the rows of one text: those behind the bad token are all zero."""

    def __call__(self, logits: Tensor) -> Tensor:
        if torch.isnan(logits).any():
            raise ZeroDivisionError("planted")
        return super().__call__(logits)


def test_a_processor_that_fails_on_a_text() -> None:
    made = pair()
    texts, errors = said([*decode_many(batch_of(made, NullDrafter(), 3), requests(Picky()))])
    assert errors == dict.fromkeys((1, 4), "ZeroDivisionError: planted")
    assert texts == {at: alone(made, NullDrafter(), GreedyProcessor(), at) for at in HEALTHY}


class Poor(FixedGamma):
    """A rule that fails in its update, or as it hears of costs, of one text alone."""

    def __init__(self, fails: str) -> None:
        super().__init__(2)
        self.fails = fails

    def use_cost_model(self, cost_model: CostModel) -> None:
        if self.fails == "use_cost_model":
            raise ZeroDivisionError("planted")

    def update(self, round: Round) -> None:
        if self.fails == "update":
            raise ZeroDivisionError("planted")


@pytest.mark.parametrize("fails", ["use_cost_model", "update"])
def test_a_rule_that_fails_on_a_text(fails: str) -> None:
    made = pair(sick=False)
    batch, asked = batch_of(made, NullDrafter(), 3), requests(GreedyProcessor())
    first = iter(["", fails, "", ""])
    batch.rule = lambda: Poor(next(first, ""))
    batch_requests = [asked[0], replace(asked[1], price=ASSUMED_COSTS), asked[2], asked[3]]
    if fails == "use_cost_model":  # not before a round
        batch_requests[1] = asked[1]
    live = [batch.admit(request)[0] for request in batch_requests[:3]]
    if fails == "use_cost_model":
        object.__setattr__(live[1], "request", replace(asked[1], price=ASSUMED_COSTS))
    told = [(one, event) for _ in range(8) if batch.live for one, event in batch.play()]
    assert {one.request.tag: event.error for one, event in told if isinstance(event, FailedText)} == {
        1: "ZeroDivisionError: planted"
    }
    for one in (live[0], live[2]):
        assert one.seq.tokens[one.seq.prompt_length :] == alone(made, NullDrafter(), GreedyProcessor(), one.request.tag)


def test_who_watches_a_text_and_fails() -> None:
    def fails(logits: Tensor, round: Round) -> None:
        raise ZeroDivisionError("planted")

    made = pair(sick=False)
    asked = [replace(one, watch=fails) if one.tag in (1, 4) else one for one in requests(GreedyProcessor())]
    texts, errors = said([*decode_many(batch_of(made, NullDrafter(), 3), asked)])
    assert errors == dict.fromkeys((1, 4), "ZeroDivisionError: planted")
    assert texts == {at: alone(made, NullDrafter(), GreedyProcessor(), at) for at in HEALTHY}


@pytest.mark.parametrize("size", [1, 3])
def test_a_drafter_that_cannot_learn_from_a_finished_text(size: int) -> None:
    """It is told when its turn to be learnt from comes, which may be rounds behind its end."""
    made = pair(sick=False)
    events = [*decode_many(batch_of(made, Raising("finish"), size), requests(GreedyProcessor()))]
    texts, errors = said(events)
    assert errors == dict.fromkeys((1, 4), "ZeroDivisionError: planted")
    assert {at: texts[at] for at in HEALTHY} == {
        at: alone(made, NullDrafter(), GreedyProcessor(), at) for at in HEALTHY
    }


class Bold(NullDrafter):
    """Drafts the bad token for one text, in every second round."""

    def propose(self, seq: sampling.sequence.Sequence, gamma: LengthRule, limit: int) -> Proposal:
        if seq.tokens[0] != 6 or seq.rounds % 2 or not limit:
            return super().propose(seq, gamma, limit)
        return Proposal(torch.tensor([BAD, 1, 1][:limit]))


@pytest.mark.parametrize("processor", [GreedyProcessor(), SAMPLED])
def test_a_draft_whose_rows_are_none(processor: LogitsProcessor) -> None:
    """A row that is NaN reaches those before it, so its text ends in that round, as alone, and leaves nothing."""
    made = pair()
    batch, asked = batch_of(made, Bold(), 4), [one for one in requests(processor) if one.tag in HEALTHY]
    texts, errors = said([*decode_many(batch, asked)])
    with refused("model", error=NoDistribution):
        alone(made, Bold(), processor, 2)
    assert errors == {2: str(NoDistribution("model"))}
    assert texts == {at: alone(made, Bold(), processor, at) for at in HEALTHY if at != 2}
    assert batch.target.cache.keys.isfinite().all() and batch.target.cache.values.isfinite().all()


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_batch_is_usable_after_it(chunk: int) -> None:
    made = pair()
    batch = batch_of(made, NullDrafter(), 1, chunk)
    for _ in range(2):
        texts, errors = said([*decode_many(batch, requests(GreedyProcessor()))])
        assert sorted(errors) == [1, 4] and sorted(texts) == HEALTHY
    assert not batch.texts and not batch.live and not batch.full


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_text_given_up_before_its_first_round_leaves_nothing(chunk: int) -> None:
    """Nobody has looked at its rows: they may hold anything."""
    made = pair()
    batch = batch_of(made, NullDrafter(), 1, chunk)
    live, _ = batch.admit(requests(GreedyProcessor())[1])
    if chunk:
        batch.play()
    batch.drop(live)
    texts, errors = said([*decode_many(batch, requests(GreedyProcessor(), PROMPTS[:1]))])
    assert not errors and texts == {0: alone(made, NullDrafter(), GreedyProcessor(), 0)}


def test_an_engine_goes_on_after_logits_that_are_none() -> None:
    """One text by itself: its rows are not in the way of the next one, whatever the forward reads beyond them."""
    engine = PairEngine(pair())
    values = {**Settings(), "length": 6}
    with refused("model", error=NoDistribution):
        list(engine.stream("target", values, PROMPTS[1]))
    events = [event for event in engine.stream("target", values, PROMPTS[0]) if isinstance(event, Round)]
    assert [token for event in events for token in event.emitted] == alone(pair(), NullDrafter(), GreedyProcessor(), 0)


def test_planted_rows_that_are_not_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short text in the place of a long one that failed, beside a long one: its columns go on behind its end."""
    prompts = ((1, 2, 3) * 10, (BAD,) * 20, (3, 3), (4, 4))
    for honest in (True, False):
        if not honest:
            monkeypatch.setattr(RowsCache, "wipe", lambda self, index: None)
        for chunk in (0, 40):
            batch = batch_of(pair(), NullDrafter(), 3, chunk)
            _, errors = said([*decode_many(batch, requests(GreedyProcessor(), prompts))])
            assert (sorted(errors) == [1]) is honest
