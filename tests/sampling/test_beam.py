"""Beam search on a model of six tokens, where every text can be tried."""

from itertools import product

import pytest
import torch

from sampling.beam import BeamSearch, Candidate, common_start
from sampling.forward.runner import ModelRunner
from sampling.pair.pair import Pair
from tests.conformance.toy import PROMPT, VOCAB, toy_pair
from tests.refusals import refused
from utils.events import BeamRound, Event, Finished, Hypothesis

STOPS = [frozenset[int](), frozenset({2}), frozenset({0, 3})]


def run(search: BeamSearch, pair: Pair, length: int, prompt: tuple[int, ...] = PROMPT) -> list[Event]:
    return list(search.decode(pair.target, prompt, max_new_tokens=length, stop=pair.stop))


def result(events: list[Event]) -> Finished:
    finished = events[-1]
    assert isinstance(finished, Finished)
    return finished


def log_probs(target: ModelRunner, tokens: tuple[int, ...]) -> list[float]:
    """ln p of each token after the prompt."""
    target.crop(0)
    rows = target.forward([*PROMPT, *tokens]).logits[len(PROMPT) - 1 : -1].log_softmax(-1)
    return rows[range(len(tokens)), list(tokens)].tolist()


def every_text(stop: frozenset[int], length: int) -> set[tuple[int, ...]]:
    """All texts that end in their first stop token or have `length` tokens."""
    texts = set()
    for tokens in product(range(VOCAB), repeat=length):
        ends = [place for place, token in enumerate(tokens, start=1) if token in stop]
        texts.add(tokens[: min(ends, default=length)])
    return texts


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize(("min_length", "alpha"), [(5, 1.2), (0, 1.0), (5, 0.0), (0, 3.0)])
def test_with_room_for_all_texts_it_finds_the_best(stop: frozenset[int], min_length: int, alpha: float) -> None:
    pair, length = toy_pair(stop=stop), 3
    search = BeamSearch(VOCAB**length, VOCAB, min_length, alpha)
    scores = {
        text: search.score(sum(log_probs(pair.recomputing().target, text)), len(text))
        for text in every_text(stop, length)
    }
    best = result(run(search, pair, length)).hypotheses[0]
    assert best.tokens == max(scores, key=lambda text: scores[text])
    assert best.score == pytest.approx(scores[best.tokens], abs=1e-5)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("search", [BeamSearch(), BeamSearch(3, 2, 0, 0.5), BeamSearch(5, 6, 2, 0.0)])
def test_stopping_early_changes_no_answer(
    stop: frozenset[int], search: BeamSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = toy_pair(stop=stop)
    early = run(search, pair, 30)
    monkeypatch.setattr(BeamSearch, "decided", lambda *_: False)
    whole = run(search, pair, 30)
    assert result(early).hypotheses[0] == result(whole).hypotheses[0]
    assert len(early) <= len(whole)


def test_it_stops_as_soon_as_nothing_better_can_come() -> None:
    pair = toy_pair(stop=frozenset({2}))
    events = run(BeamSearch(4, 6, 0, 0.0), pair, 40)
    last = events[-2]
    assert isinstance(last, BeamRound) and last.number < 39 and not last.beams
    assert result(events).reason == "stop"


@pytest.mark.parametrize("stop", STOPS)
def test_hypotheses_have_their_own_probabilities_and_come_best_first(stop: frozenset[int]) -> None:
    pair, search = toy_pair(stop=stop), BeamSearch()
    found = result(run(search, pair, 20)).hypotheses
    assert 0 < len(found) <= 4
    assert [text.score for text in found] == sorted((text.score for text in found), reverse=True)
    for text in found:
        assert not stop & set(text.tokens[:-1])
        assert text.log_prob == pytest.approx(sum(log_probs(pair.recomputing().target, text.tokens)), abs=1e-4)
        assert text.score == search.score(text.log_prob, len(text.tokens))


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("search", [BeamSearch(), BeamSearch(8, 6)])
def test_the_rows_of_dead_beams_are_dropped_and_nothing_changes(stop: frozenset[int], search: BeamSearch) -> None:
    """The reference computes every text from its first token on, one after the other."""
    pair = toy_pair(stop=stop, window=80)
    cached, plain = run(search, pair, 60), run(search, pair.recomputing(), 60)
    assert [text.tokens for text in result(cached).hypotheses] == [text.tokens for text in result(plain).hypotheses]
    rounds = sum(isinstance(event, BeamRound) for event in cached)
    if not stop:
        assert rounds == 60 and pair.target.length < len(PROMPT) + search.num_beams * rounds * 2 // 3


def test_what_is_settled_is_never_taken_back() -> None:
    pair = toy_pair(stop=frozenset({2}), window=90)
    for prompt in (PROMPT, PROMPT[::-1], PROMPT[1:]):
        events = run(BeamSearch(), pair, 80, prompt)
        settled: tuple[int, ...] = ()
        for event in events:
            if isinstance(event, BeamRound):
                settled += event.emitted
                assert all(text.tokens[: len(settled)] == settled for text in (*event.beams, *event.found[:1]))
        finished = result(events)
        assert settled == finished.hypotheses[0].tokens and finished.new_tokens == len(settled)


def test_one_beam_is_greedy_and_a_single_candidate_is_too() -> None:
    pair = toy_pair()
    texts = {result(run(search, pair, 20)).hypotheses[0].tokens for search in (BeamSearch(1, 6), BeamSearch(4, 1))}
    target, tokens = pair.recomputing().target, list(PROMPT)
    for _ in range(20):
        target.crop(0)
        tokens.append(int(target.forward(tokens, rows=1).logits[0].argmax()))
    assert texts == {tuple(tokens[len(PROMPT) :])}


@pytest.mark.parametrize(("window", "length", "reason"), [(48, 1, "length"), (48, 7, "length"), (13, 100, "context")])
def test_length_and_context_window_end_the_text(window: int, length: int, reason: str) -> None:
    finished = result(run(BeamSearch(), toy_pair(window=window), length))
    assert finished.reason == reason
    assert all(len(text.tokens) == min(length, window - len(PROMPT)) for text in finished.hypotheses)


def test_a_prompt_of_one_token_and_one_that_fills_the_window() -> None:
    assert result(run(BeamSearch(), toy_pair(), 5, (3,))).new_tokens == 5
    with refused("prompt", len(PROMPT), "context window"):
        run(BeamSearch(), toy_pair(window=len(PROMPT)), 1)


def test_a_search_that_is_closed_early_leaves_nothing_behind() -> None:
    pair = toy_pair()
    stream = BeamSearch().decode(pair.target, (3, 3, 1, 5), max_new_tokens=20)
    for _ in range(6):
        next(stream)
    stream.close()
    assert result(run(BeamSearch(), pair, 20)) == result(run(BeamSearch(), toy_pair(), 20))


def test_those_that_end_leave_their_places_to_others() -> None:
    """Ranked: 1 goes on, 9 ends among the best two, 2 takes its place, the other 9 is too unlikely to count."""
    first, ended, second, late = (Candidate(0, token, -p) for token, p in ((1, 1.0), (9, 2.0), (2, 3.0), (9, 4.0)))
    chosen = BeamSearch(num_beams=2).choose([late, second, ended, first], stop={9})
    assert chosen == ([first, second], [ended])


def test_the_bound_is_that_of_the_longest_text() -> None:
    """min_length 0, alpha 1: -4 / 2 = -2 is found; a beam of ln p -6 may reach -6 / 4 = -1.5, but not with 3 tokens."""
    search = BeamSearch(min_length=0, alpha=1.0)
    found, beams = [Hypothesis((1, 9), -4.0, search.score(-4.0, 2))], [Hypothesis((1, 2), -6.0, -3.0)]
    assert not search.decided(found, beams, limit=4)
    assert search.decided(found, beams, limit=3)
    assert not search.decided([], beams, limit=3)


def test_the_score_by_hand() -> None:
    """len 10: penalty (15 / 6) ** 1.2."""
    assert BeamSearch().score(-3.0, 10) == pytest.approx(-3.0 / 2.5**1.2)
    assert BeamSearch(min_length=0, alpha=2.0).score(-3.0, 10) == pytest.approx(-3.0 / 100)


def test_what_texts_begin_with() -> None:
    assert common_start([(1, 2, 4, 5), (1, 2, 3), (1, 2, 9)]) == (1, 2)
    assert common_start([(1, 2), (1, 2, 3)]) == common_start([(1, 2)]) == (1, 2)
    assert common_start([(1,), (2,)]) == ()


def test_it_draws_nothing() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert run(BeamSearch(), toy_pair(), 9)[-1] == run(BeamSearch(), toy_pair(), 9)[-1]
    assert torch.equal(before, torch.get_rng_state())


def test_a_search_is_decided_where_the_best_text_has_the_bound_of_the_best_beam() -> None:
    """With alpha 0 a score is ln p: the best text, not the second, against the best beam, not another."""
    search = BeamSearch(2, 2, 0, 0.0)
    found = [Hypothesis((1,), -1.0, -1.0), Hypothesis((2,), -3.0, -3.0)]
    assert search.decided(found, [Hypothesis((), -1.0, 0.0), Hypothesis((), -0.5, 0.0)], 9)
    assert not search.decided(found, [Hypothesis((), -0.9, 0.0)], 9)
    assert not search.decided([], [Hypothesis((), -9.0, 0.0)], 9)
