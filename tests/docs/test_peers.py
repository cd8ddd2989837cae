"""scripts/benchmark.py --peer: the other process, the matches against it, and what a call asks for."""

from utils.threads import SPIN_COUNT

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sampling.pair import Pair
from sampling.pair_engine import PairEngine
from scripts import benchmark
from scripts.benchmarks import contest, llama
from scripts.benchmarks.asked import Asked, read_asked
from scripts.benchmarks.contest import Contest, Match, MatchOutcome, Side, agreement
from scripts.benchmarks.llama import LlamaReport, against_llama, context_for, peer_settings
from scripts.benchmarks.record import PAGE, UNMEASURED, between, write
from scripts.peers import process
from scripts.peers.process import Answer, Peer, PeerError, environment, find_python
from tests.docs.test_commands import _app
from tests.tiny import tiny_pair
from utils.errors import UserError

FAKE = Path(__file__).with_name("fake_peer.py")
PYTHON = Path(sys.executable)
FakePeer = partial(Peer, worker=FAKE)


@pytest.fixture
def peer() -> Iterator[Peer]:
    with FakePeer(PYTHON, Path("any.gguf"), 2, 256) as started:
        yield started


def _said(ids: list[int], tokens_per_s: float = 1.0, inside: float = 1.0) -> Answer:
    seconds = len(ids) / tokens_per_s
    return Answer(ids, 0.0, seconds, inside * seconds)


# The other process.


def test_a_request_is_a_line_there_and_a_line_back(peer: Peer) -> None:
    assert peer.described["version"] == "fake 1"
    assert peer.ask([5, 6, 7, 8], 3, 0, 3, {9}) == Answer([5, 6, 7], 0.5, 0.03, 0.0225)
    answer = peer.ask([5, 6, 7, 8], 4, 10, 3, {7})
    assert answer.ids == [5, 6, 7], "the stop token is the last one"
    assert answer.tokens_per_s == pytest.approx(200)
    assert peer.cpu_s() > 0


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("mute", "llama.cpp ended with status 1: no such file"),
        ("threads", "llama.cpp runs with threads 3; expected 2"),
        ("gpu", "llama.cpp runs with gpu True; expected False"),
    ],
)
def test_a_peer_that_does_not_start_as_asked_is_refused(
    wish: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PEER", wish)
    with pytest.raises(PeerError, match=message):
        FakePeer(PYTHON, Path("any.gguf"), 2, 256)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("0", "ended with status 1: out of memory"),
        ("nonsense", "said 'nonsense'; expected a JSON object"),
        ("other", "expected an answer"),
    ],
)
def test_what_is_no_answer_is_told(wish: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PEER", wish)
    with FakePeer(PYTHON, Path("any.gguf"), 2, 256) as started, pytest.raises(PeerError, match=message):
        started.ask([1], 1, 0, 3, ())


def test_a_peer_that_is_gone_is_told_before_a_word_is_sent(peer: Peer) -> None:
    peer._process.kill()
    peer._process.wait()
    with pytest.raises(PeerError, match="it gave no reason"):
        peer.ask([1], 1, 0, 3, ())


def test_its_threads_wait_as_libgomp_and_the_user_want(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", SPIN_COUNT)
    assert "GOMP_SPINCOUNT" not in environment()
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert environment()["GOMP_SPINCOUNT"] == "7"


def test_an_interpreter_without_the_binding_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ROOT", tmp_path)
    assert find_python(None) is None
    for given in (str(tmp_path / "none"), sys.executable):
        with pytest.raises(UserError, match=r"--peer-python: .* given; expected an interpreter .* uv pip install"):
            find_python(given)
    monkeypatch.setattr(process, "_INSTALLED", "")
    assert find_python(sys.executable) == PYTHON


def test_the_worker_imports_nothing_of_the_project() -> None:
    """Its interpreter has none of it: it comes as far as the binding, which is not installed here."""
    words = [sys.executable, "-S", str(process.WORKER), "any.gguf", "1", "256"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'llama_cpp'"


# Matches and their arithmetic.


def test_texts_agree_up_to_their_first_difference() -> None:
    assert agreement([5, 6, 7], [5, 6, 8, 9]) == 2
    assert agreement([5], [5]) == 1
    assert agreement([1], [2]) == 0


def test_a_match_compares_tokens_a_second_and_texts() -> None:
    ours, theirs = (Side(name, "full", lambda ids: _said(ids)) for name in ("AR", "their AR"))
    match = Match(ours, theirs)
    match.add(0, {ours: _said([1, 2, 3, 4], 20.0), theirs: _said([1, 2], 10.0, inside=0.75)})
    match.add(0, {ours: _said([1, 2], 30.0), theirs: _said([1, 2], 10.0, inside=0.5)})
    match.add(1, {ours: _said([1, 2, 3], 10.0), theirs: _said([1, 2, 4], 10.0)})
    match.add(2, {ours: _said([1])})
    found = match.outcome()
    assert (found.ratio, found.ours_tps, found.theirs_tps) == (2.0, 20.0, 10.0)
    assert found.their_other == pytest.approx(0.25)
    assert (found.low, found.high) == (1.0, 3.0)
    assert (found.prompts, found.runs, found.equal, found.agreed) == (2, 3, 1, 2)


def test_matches_with_equal_texts_have_nothing_to_say_of_differences() -> None:
    side = Side("AR", "full", lambda ids: _said(ids))
    match = Match(side, side)
    match.add(0, {side: _said([1])})
    assert match.outcome().agreed is None


class _Plays:
    """Two sides that write down who was asked for what, and two matches between them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.fails_at: int | None = None
        plain, copying, theirs = (self._side(*one) for one in (("a", ()), ("b", ("code",)), ("t", ())))
        self.matches = [Match(plain, theirs), Match(copying, theirs)]

    def _side(self, name: str, tasks: tuple[str, ...]) -> Side:
        def ask(ids: list[int]) -> Answer:
            if len(self.asked) == self.fails_at:
                raise PeerError("it is gone")
            self.asked.append((name, ids[0]))
            return _said(ids)

        return Side(name, "full", ask, tasks)


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> _Plays:
    monkeypatch.setattr(contest, "SETTLE_S", 0.0)
    return _Plays()


def test_sides_take_turns_and_answer_what_they_are_for(plays: _Plays) -> None:
    played = Contest(plays.matches, lambda: 0.0)
    assert played.play([("code", [1]), ("dialogue", [2])], 2, [0]) is None
    by_turn = "".join(name for name, _ in plays.asked)
    assert by_turn == "tab" + "tab" + "at" + "bta" + "at", "a warm-up, then another one begins"
    assert [match.outcome().runs for match in plays.matches] == [4, 2]
    assert len(played.waiting) == 10


def test_rounds_before_a_failure_count(plays: _Plays) -> None:
    plays.fails_at = 7
    played = Contest(plays.matches, lambda: 0.0)
    assert played.play([("code", [1]), ("code", [2])], 5, [0]) == "it is gone"
    assert [match.outcome().runs for match in plays.matches] == [1, 1]


def test_a_failure_before_the_first_round_leaves_nothing_to_tell(plays: _Plays) -> None:
    plays.fails_at = 4
    played = Contest(plays.matches, lambda: 0.0)
    assert played.play([("code", [1])], 1, [0]) == "it is gone"
    assert played.outcomes() == ()


def test_the_time_of_the_waiting_side_is_watched(plays: _Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs uses 1 s of a processor in each answer that takes 2 s, whoever answers."""
    clock, used = iter(range(0, 1000, 2)), iter(range(1000))
    monkeypatch.setattr(contest.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(contest.time, "process_time", lambda: 0.0)

    class Busy:
        other_cores = 0.75

        def __enter__(self) -> "Busy":
            return self

        def __exit__(self, *exc: object) -> None:
            pass

    monkeypatch.setattr(contest, "Machine", Busy)
    played = Contest(plays.matches[:1], lambda: float(next(used)))
    played.play([("code", [1])], 1, [0])
    assert played.waiting == [0.0, 0.5], "theirs answered first: ours slept meanwhile, and theirs did not"
    assert played.others == [0.25, 0.25]


# On a pair.


def _engines() -> dict[str, PairEngine]:
    return {"full": PairEngine(tiny_pair())}


def test_ours_meets_what_the_peer_has_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "Peer", FakePeer)
    runs = read_asked("llama.cpp", "AR,Prompt lookup,ngram gamma=2", "full").runs
    settings = peer_settings(length=4, gamma=3, drafts=5)
    report = against_llama(PYTHON, _engines(), runs, [("code", [9, 8, 7, 6, 5])], settings, 2)
    pairs = [(one.ours, one.against, one.theirs_tps) for one in report.matches]
    assert pairs == [
        ("AR", "AR", pytest.approx(100)),
        ("prompt lookup", "prompt lookup", pytest.approx(200)),
        ("ngram gamma=2", "AR", pytest.approx(100)),
        ("ngram gamma=2", "prompt lookup", pytest.approx(200)),
    ]
    assert {(one.weights, one.runs, one.prompts) for one in report.matches} == {("full", 2, 1)}
    assert report.matches[0].their_other == pytest.approx(0.25)
    assert (report.ended, report.drafts, report.dtypes) == (None, 5, {"full": "float32"})


def test_ours_copies_as_the_binding_does() -> None:
    settings = peer_settings(length=4, gamma=3, drafts=5)
    names = ("lookup_occurrence", "max_ngram_size", "min_ngram_size", "num_speculative_tokens", "gamma")
    assert [settings[name] for name in names] == ["first", 3, 1, 5, 3]


def test_its_cache_holds_the_longest_prompt_and_its_answer() -> None:
    assert context_for([(None, [0] * 100), (None, [0] * 3)], 128, 10) == 256
    assert context_for([(None, [0] * 118)], 128, 10) == 512


def _report(**changes: object) -> LlamaReport:
    outcome = MatchOutcome("AR", "int4", "AR", 0.9, 0.85, 0.95, 90.0, 100.0, 0.02, 8, 24, 20, 17.5)
    peer = {"version": "fake 1", "batch": 512, "flash_attention": True, "cache": ["float16", "float16"]}
    report = LlamaReport(
        *("uv run it", "a CPU", 2, "2.8", 128, 10, 3, {"int4": "float32"}, peer, (outcome,), 0.004, 0.1, None)
    )
    return replace(report, **changes)


def test_a_report_is_written_and_read_back(tmp_path: Path) -> None:
    page, record, report = tmp_path / "page.md", tmp_path / "results" / "record.json", _report()
    page.write_text("before\n<!-- llama.cpp table -->\nold\n<!-- end of llama.cpp table -->\nafter\n", encoding="utf-8")
    write(report, llama.MARK, page, record)
    assert LlamaReport.read(record) == report
    assert between(page, llama.MARK) == report.markdown()
    assert page.read_text(encoding="utf-8").startswith("before\n") and "old" not in page.read_text(encoding="utf-8")
    lines = report.markdown().splitlines()
    assert lines[-1] == ("| AR | int4 | AR | 0.90 | 0.85 to 0.95 | 90.0 | 100.0 | 8 | 24 | 20 | 17.5 | 2.0 % |")
    assert lines[-2] == "|" + "---|" * 12
    assert "kept 0.00 cores busy on average, other programs 0.10 at most" in lines[0]


def test_a_report_says_that_it_ended_early() -> None:
    assert "ended before all was played: it is gone." in _report(ended="it is gone").markdown()
    assert "how busy other programs were is unknown" in _report(others=None).markdown()


def test_the_page_says_what_the_record_says() -> None:
    """After a change: uv run scripts/benchmark.py --peer llama.cpp --write"""
    recorded = LlamaReport.read(llama.RECORD).markdown() if llama.RECORD.exists() else UNMEASURED
    assert between(PAGE, llama.MARK) == recorded


# What a call asks for.


def _names(asked: Asked) -> tuple[object, ...]:
    return asked.duels, tuple(run.name for run in asked.runs), asked.growth, asked.loaded


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (
            ("transformers", None, "full,int4"),
            (("AR", "SD", "NASD", "Prompt lookup", "Suffix", "again"), (), False, ("full",)),
        ),
        (("llama.cpp", None, "int8,int4"), ((), ("target", "prompt_lookup"), True, ("int8", "int4"))),
        (("transformers", "growth", "int4"), ((), (), True, ("int4",))),
        (
            ("transformers,llama.cpp", "AR, mtp gamma=2, SD", "int4"),
            (("AR", "SD"), ("target", "mtp gamma=2"), False, ("full", "int4")),
        ),
    ],
)
def test_what_is_asked_for(given: tuple[str, str | None, str], found: tuple[object, ...]) -> None:
    assert _names(read_asked(*given)) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("vllm", None, "full"), "unknown peer 'vllm'; expected one of transformers, llama.cpp"),
        (("llama.cpp", None, "int2"), "unknown format 'int2'"),
        (("llama.cpp", "SD", "full"), "--only SD given with --peer llama.cpp; it needs --peer transformers"),
        (("transformers", "mtp", "full"), "--only mtp given with --peer transformers; it needs --peer llama.cpp"),
        (("transformers", "Sufix", "full"), "unknown comparison 'Sufix'.*Did you mean 'Suffix'"),
        (("llama.cpp", "mtpp", "full"), "unknown method 'mtpp'"),
        (("llama.cpp", " ", "full"), "nothing to compare given"),
    ],
)
def test_what_nobody_can_mean_is_refused(given: tuple[str, str | None, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_asked(*given)


# The command.


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """The command on a tiny pair, a fake peer and a page of its own."""
    page = tmp_path / "page.md"
    page.write_text(
        "".join(
            f"<!-- {mark} table -->\nold {mark}\n<!-- end of {mark} table -->\n" for mark in ("llama.cpp", "growth")
        ),
        encoding="utf-8",
    )
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a", "task": "code"}\n{"prompt": "b", "task": "code"}\n', encoding="utf-8")
    monkeypatch.setattr(benchmark, "PAGE", page)
    monkeypatch.setattr(benchmark.llama, "RECORD", tmp_path / "llama.cpp.json")
    monkeypatch.setattr(benchmark.growth, "RECORD", tmp_path / "growth.json")
    monkeypatch.setattr(llama, "Peer", FakePeer)
    monkeypatch.setattr(benchmark, "find_python", lambda given: PYTHON)
    monkeypatch.setattr(contest, "SETTLE_S", 0.0)

    def load(options: object) -> Pair:
        return tiny_pair()

    monkeypatch.setattr(benchmark, "load_pair", load)

    def run(*words: str) -> tuple[int, str]:
        given = ["--peer", "llama.cpp", "--weights", "full", "--length", "4", "--repeats", "1", "--write"]
        ended = CliRunner().invoke(_app(benchmark), [*given, "--prompts", str(prompts), *words])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended.exit_code, ended.output

    return run


def test_both_tables_are_written(call: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    status, said = call()
    assert status == 0, said
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "old" not in text and "| prompt lookup | full | prompt lookup |" in text and "| 32 |" in text
    assert {match.runs for match in LlamaReport.read(tmp_path / "llama.cpp.json").matches} == {2}


def test_without_the_peer_the_rest_goes_on(
    call: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "find_python", lambda given: None)
    status, said = call()
    assert status == 0 and "llama.cpp is not installed" in said and "uv pip install" in said
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "old llama.cpp" in text and "old growth" not in text
    status, said = call("--only", "AR")
    assert status == 0 and "is not installed" in said, "nothing is left to measure"


def test_what_was_played_before_the_peer_died_is_kept(
    call: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two answers to warm up, two of the first prompt, one of the second."""
    monkeypatch.setenv("FAKE_PEER", "5")
    status, said = call()
    assert status == 1 and "error: llama.cpp ended with status 1: out of memory" in said
    report = LlamaReport.read(tmp_path / "llama.cpp.json")
    assert {match.runs for match in report.matches} == {1} and report.ended
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert report.ended in text and "old growth" not in text, "the rest went on"


@pytest.mark.parametrize("wish", ["0", "mute"])
def test_a_peer_that_never_answered_changes_no_table(
    wish: str, call: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PEER", wish)
    status, said = call()
    assert status == 1 and "error: llama.cpp ended with status 1" in said
    assert not (tmp_path / "llama.cpp.json").exists()
    assert "old llama.cpp" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_an_interpreter_for_nobody_is_refused(call: Callable[..., tuple[int, str]]) -> None:
    status, said = call("--only", "growth", "--peer-python", sys.executable)
    assert status == 2 and "nothing is compared with llama.cpp" in said
