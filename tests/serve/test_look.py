"""What the page is told: figures of now and over all, who drafts, and texts token by token."""

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from ablation.plan.grid import Configuration
from sampling.measure.answer import Answer, Span
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import METHODS
from serve.counters import Counters
from serve.limits import ServerLimits
from serve.page.drafting import Drafting, drafting_of
from serve.page.look import LOOKS_S, Looks, prefix_hits
from serve.page.recent import Brought, RecentCounts
from serve.page.texts import MOST_TEXTS, FollowedText, spans
from tests.serve.running import Running
from tests.serve.stepping import stepped
from tests.serve.test_leaving import begin
from tests.waiting import until
from utils.events import Round


class Clock:
    """Seconds that a test sets."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def judged(number: int, drafts: str, path: int, next_token: str) -> Round:
    """A round of a chain, whose tokens are letters; the first `path` drafts were accepted."""
    tokens = tuple(map(ord, drafts))
    chances = (1.0,) * len(tokens)
    return Round(number, 0, 4, tokens, None, chances, chances, tuple(range(path)), ord(next_token), None, 99)


def letters(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def test_now_is_the_last_five_seconds_and_the_one_under_way() -> None:
    clock = Clock(100.5)
    counts = RecentCounts(clock)
    counts.add(1, 2, 1)
    clock.now_s = 101.5
    counts.add(4, 4, 3)
    assert counts.now() == (1.0, Brought(5, 6, 4)), "no longer than it has run"
    clock.now_s = 106.25
    assert counts.now() == (5.25, Brought(4, 4, 3)), "the second 100 has gone by"
    clock.now_s = 107.0
    assert counts.now() == (5.0, Brought()), "nothing is known of now"


def test_the_last_minute_has_every_whole_second() -> None:
    clock = Clock(10.0)
    counts = RecentCounts(clock)
    counts.add(3, 2, 1)
    clock.now_s = 12.5
    counts.add(7, 0, 0)
    assert counts.history() == [(3, 2, 1), (0, 0, 0)]
    clock.now_s = 13.0
    assert counts.history() == [(3, 2, 1), (0, 0, 0), (7, 0, 0)]
    for second in range(13, 200):
        clock.now_s = float(second)
        counts.add(second, 0, 0)
    assert counts.history() == [(second, 0, 0) for second in range(139, 199)]


def test_the_counters_of_a_server_know_what_was_brought_now() -> None:
    counters = Counters(recent=RecentCounts(Clock(8.0)))
    counters.add(judged(0, "abc", 2, "x"))
    counters.add(judged(1, "", 0, "y"))
    assert counters.recent.now() == (0.0, Brought(4, 3, 2))


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("target", {}, Drafting("AR (target)")),
        ("speculative", {}, Drafting("SD (speculative)", "model small", "fixed, gamma 4", "rejection")),
        (
            "speculative",
            {"gamma": 2, "verify_strategy": "typical"},
            Drafting(
                "SD (speculative)", "model small", "fixed, gamma 2", "typical", "gamma=2, verify_strategy=typical"
            ),
        ),
        (
            "egag",
            {},
            Drafting("SD EGAG (egag)", "model small", "egag, egag_gamma_min 1, egag_gamma_max 6", "rejection"),
        ),
        (
            "extended",
            {"hybrid_copy": "suffix"},
            Drafting(
                *("Model + copies (extended)", "extended: model small, suffix"),
                *("budget, num_speculative_tokens 10", "rejection", "hybrid_copy=suffix"),
            ),
        ),
        (
            "mtp",
            {"accept_policy": "accept_all", "draft_rule": "heuristic"},
            Drafting(
                *("MTP", "mtp", "heuristic, heuristic_gamma 5", "accept_all"),
                "accept_policy=accept_all, draft_rule=heuristic",
            ),
        ),
        ("auto", {}, Drafting("Auto", "auto", "survival, survival_gamma_max 16", "rejection")),
    ],
)
def test_who_drafts_is_told_by_its_parts(name: str, given: dict[str, Any], told: Drafting) -> None:
    assert set(given) <= set(PARAMETERS)
    assert drafting_of(Configuration(name, tuple(given.items())), "small") == told


def test_every_method_says_who_drafts() -> None:
    for name, method in METHODS.items():
        told = drafting_of(Configuration(name), "")
        assert (
            told.method == method.label and bool(told.drafter) is bool(told.rule) is bool(told.judge) is method.drafts
        )


def test_a_text_is_followed_as_the_terminal_shows_it_and_decoded_once() -> None:
    rounds = [judged(0, "abc", 1, "x"), judged(1, "", 0, "y"), judged(2, "de", 2, "z"), judged(3, "fg", 1, "w")]
    calls: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        calls.append(len(ids))
        return letters(ids)

    text, whole = FollowedText(0, Answer(decode)), Answer(letters)
    for end in (1, 2, 4):
        text.follow(rounds[:end])
    for each in rounds:
        whole.add(each)
    assert not text.cut and (text.answer.old, text.answer.last) == (whole.old, whole.last)
    assert spans(whole.last) == [("accepted", "f"), ("rejected", "g"), ("target", "w")]
    assert spans(whole.old) == [("accepted", "a"), ("target", "xy"), ("accepted", "de"), ("target", "z")]
    before = len(calls)
    text.follow(rounds)
    assert len(calls) == before


def test_rounds_that_went_by_unseen_leave_a_gap_at_the_beginning() -> None:
    text = FollowedText(0, Answer(letters))
    text.follow([judged(0, "", 0, "a")])
    text.follow([judged(number, "", 0, letter) for number, letter in ((2, "c"), (3, "d"))])
    assert text.cut and text.answer.text == "cd"


def test_what_a_page_has_no_room_for_is_let_go_of() -> None:
    text = FollowedText(0, Answer(letters))
    for number in range(1000):
        text.follow([judged(number, "", 0, "a")])
    assert text.cut and 500 < len(text.answer.text) < 700


def test_characters_that_turn_or_steer_are_told_as_their_escapes() -> None:
    assert spans([Span("a\n\x1b[2J\u202e", "target")]) == [("target", "a\n\\x1b[2J\\u202e")]


@contextmanager
def events_of(found: Running) -> Iterator[Iterator[dict[str, Any]]]:
    """The looks as a browser reads them."""
    connection = http.client.HTTPConnection(urlsplit(found.url).netloc, timeout=60)
    connection.request("GET", "/live")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    yield (json.loads(line.removeprefix(b"data: ")) for line in answer if line.strip())
    connection.close()


def test_a_look_has_what_a_person_looks_for() -> None:
    with stepped(ServerLimits(size=2)) as steps:
        found, driver = steps.found, steps.driver
        open_texts = [begin(found, speculative={"method": "speculative", "gamma": 3})]
        steps.begun(1)
        open_texts.append(begin(found))
        open_texts.append(begin(found))

        def enough() -> bool:
            jobs, counters = driver.under_way(), driver.counters
            return len(jobs) == 2 and all(job.recent for job in jobs) and 3 < counters.accepted < counters.drafted

        while not enough():
            before = driver.counters.rounds
            steps.play(1)
            until(lambda: driver.counters.rounds > before)  # noqa: B023
        until(lambda: driver.waiting == 1)
        with events_of(found) as events:
            first, second = next(events), next(events)
            about = first.pop("about")
            assert "about" not in second and first.keys() == second.keys()
            assert (about["model"], about["drafter"], about["size"]) == ("tiny", "tiny, 2 of 3 layers", 2)
            assert about["default"] == "target" and about["most_waiting"] == 64
            assert {method["name"] for method in about["methods"]} == set(found.server.model.methods)
            assert (first["running"], first["waiting"]) == (2, 1) and first["waited_s"] > 0
            assert first["prefix"] == prefix_hits(driver.counters)
            assert first["memory"]["process_mb"] > 50 and first["memory"]["device_mb"] is None
            assert 0 < first["whole"]["accepted"] < first["whole"]["drafted"]
            assert first["now"]["drafted"] >= first["now"]["accepted"] >= 0 and first["now"]["seconds"] > 0
            assert set(first["whole"]["finished"]) == {"stop", "length", "abort", "error"}
            texts = {text["method"]: text for text in first["texts"]}
            assert list(texts) == ["AR (target)", "SD (speculative)"], "the newest first"
            plain, drafted = texts.values()
            assert plain["drafter"] == "" and plain["drafted"] == 0 < plain["new_tokens"] and plain["lossless"] is True
            assert drafted["rule"] == "fixed, gamma 3" and drafted["length"] == 400
            assert drafted["now"]["rounds"] <= 24 and drafted["now"]["tokens_per_s"] > 0
            kinds = {kind for kind, _ in (*drafted["old"], *drafted["last"])}
            assert "accepted" in kinds and {kind for kind, _ in plain["last"]} <= {"target"}
            # A text holds a row of each of its tokens but the last.
            tokens = sum(text["prompt_tokens"] + text["new_tokens"] for text in first["texts"])
            assert first["memory"]["rows"] == second["memory"]["rows"] == tokens - 2
            named = {"SD (speculative) gamma=3": 1, "AR (target)": 1}
            assert {group["name"]: group["texts"] for group in first["groups"]} == named
        for connection in open_texts:
            connection.close()


def test_no_text_holds_no_rows() -> None:
    with stepped(ServerLimits(size=1)) as steps:
        connection = begin(steps.found, prompt="abc", max_tokens=20)
        steps.begun(1)
        assert steps.driver.rows > 0
        steps.play()
        connection.getresponse().read()
        steps.begun(0)
        assert steps.driver.rows == 0


def test_the_newest_texts_are_told_and_the_others_counted() -> None:
    with stepped(ServerLimits(size=40)) as steps:
        connection = begin(steps.found, prompt=["a"] * 40)
        steps.begun(40)
        look = Looks(steps.driver, steps.found.server.model).look()
        assert look["running"] == 40 and len(look["texts"]) == MOST_TEXTS
        assert look["groups"] == [{"name": "AR (target)", "texts": 40, "drafted": 0, "accepted": 0}]
        connection.close()


def test_one_look_is_told_to_all_who_ask() -> None:
    with stepped() as steps:
        clock = Clock(0.0)
        looks = Looks(steps.driver, steps.found.server.model, clock)
        first = looks.look()
        clock.now_s = LOOKS_S / 2
        assert looks.look() is first
        clock.now_s = LOOKS_S
        assert looks.look() is not first


def test_prefix_hits_are_told_where_they_are_counted() -> None:
    assert prefix_hits(Counters()) is None
    told = prefix_hits(Counters(prefix_queries=30, prefix_hits=12))
    assert told == {"tokens": 30, "hits": 12}
