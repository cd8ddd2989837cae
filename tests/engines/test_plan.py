"""Other engines in a plan: what is read, what is refused before anything starts, and rows beside our own."""

import csv
import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest

from ablation.plan.engines import parse_engine, parse_engines
from ablation.plan.file import read_experiment
from ablation.plan.grid import Plan
from ablation.report.load import load_results
from ablation.results.manifest import read
from ablation.run.conduct import conduct_into
from ablation.run.job import abreast
from engines.fleet import ready
from engines.server.api import Api
from engines.server.served import ServedEngine
from engines.spec import EngineSpec
from sampling.forward.referee import refereed
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from serve.app import ServerLimits
from tests.ablation.conftest import write_lines
from tests.refusals import refused
from tests.serve.running import Running, running
from tests.tiny import llama, save_checkpoint, tiny_pair
from utils.errors import UserError
from utils.events import WholeAnswer

OWN = EngineSpec("o", "openai", "workbench", model="target")
METHODS = (
    "[[methods]]",
    'method = "prompt_lookup"',
    "num_speculative_tokens = 4",
    "[[methods]]",
    'method = "speculative"',
)
PROMPTS = [{"prompt": f"say {word}"} for word in ("ab ab ab", "a", "bb b")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_lines(tmp_path / "mine.jsonl", *PROMPTS)
    return tmp_path


def plan(place: Path, *lines: str, top: Sequence[str] = ()) -> str:
    first = ('prompts = ["mine.jsonl"]', "length = 12", "control = false", *top)
    return str(write_lines(place / "plan.toml", *first, *METHODS, *lines))


def table(**entries: str) -> list[str]:
    return ["[[engines]]", *(f"{name} = {value}" for name, value in entries.items())]


def test_engines_are_read_and_play_what_they_have(place: Path) -> None:
    lines = [
        *table(name='"hf"', kind='"transformers"'),
        *table(name='"v"', kind='"openai"', dialect='"vllm"', launch='"vllm serve {model} --port {port} {options}"'),
        *table(
            name='"l"',
            kind='"openai"',
            dialect='"llamacpp"',
            url='{target = "http://h:1", prompt_lookup = "http://h:2"}',
            weights='"Q8_0"',
        ),
    ]
    made: Plan = read_experiment(plan(place, *lines)).plan
    assert [side.spec.name for side in made.sides] == ["hf", "v", "l"]
    assert [one.method for one in made.sides[2].configurations] == ["target", "prompt_lookup"]
    assert made.sides[2].spec.urls == (("target", "http://h:1"), ("prompt_lookup", "http://h:2"))
    assert made.own_generations == 9 and made.generations == 9 + 9 + 9 + 6


@pytest.mark.parametrize(
    ("entries", "quoted"),
    [
        ({"kind": '"transformers"'}, ["name"]),
        ({"name": '"x"'}, ["kind"]),
        ({"name": '"x"', "kind": '"magic"'}, ["'magic'", "openai"]),
        ({"name": '"workbench"', "kind": '"transformers"'}, ["workbench"]),
        ({"name": '"x"', "kind": '"transformers"', "url": '"http://h"'}, ["url", "transformers"]),
        ({"name": '"x"', "kind": '"openai"'}, ["dialect", "''", "workbench, vllm"]),
        ({"name": '"x"', "kind": '"openai"', "dialect": '"vllm"'}, ["url", "launch"]),
        ({"name": '"x"', "kind": '"openai"', "dialect": '"vllm"', "launch": '"vllm serve"'}, ["{port}"]),
        ({"name": '"x"', "kind": '"openai"', "dialect": '"vllm"', "url": '"http://h:1"'}, ["url"]),
        ({"name": '"x"', "kind": '"openai"', "dialect": '"workbench"', "url": '"h:1"'}, ["http://HOST:PORT"]),
        ({"name": '"x"', "kind": '"openai"', "dialect": '"workbench"', "url": '"http://h:abc"'}, ["http://HOST:PORT"]),
        ({"name": '"x"', "kind": '"openai"', "dialect": '"workbench"', "url": '"http://[::1"'}, ["http://HOST:PORT"]),
        ({"name": '"x"', "kind": '"openai"', "dialect": '"workbench"', "url": '"http://a b:1"'}, ["http://HOST:PORT"]),
        ({"name": '"x"', "kind": '"vllm"'}, ["python", "''"]),
        ({"name": '"x"', "kind": '"vllm"', "python": '"p"', "arguments": "\"'\""}, ["arguments", "\"'\""]),
        ({"name": '"x"', "kind": '"vllm"', "url": '"http://h:1"'}, ["url", "vllm"]),
        ({"name": '"x"', "kind": '"openai"', "python": '"p"'}, ["python", "openai"]),
        ({"name": '"x"', "kind": '"openvino"'}, ["python", "''", "openvino"]),
        ({"name": '"x"', "kind": '"openvino"', "python": '"p"'}, ["engine x", "speculative", "drafter"]),
        (
            {
                "name": '"x"',
                "kind": '"openai"',
                "dialect": '"llamacpp"',
                "launch": '"s {port} {options}"',
                "model": '"g"',
            },
            ["engine x", "speculative", "drafter"],
        ),
        (
            {"name": '"x"', "kind": '"openai"', "dialect": '"sglang"', "launch": '"s {port} {prt}"'},
            ["launch", "{prt}", "model, port, options"],
        ),
        (
            {"name": '"x"', "kind": '"openai"', "dialect": '"sglang"', "launch": '"s {port}"'},
            ["{options}", "prompt_lookup"],
        ),
        ({"name": '"x"', "kind": '"transformers"', "speed": "1"}, ["'speed'"]),
        (
            {"name": '"x"', "kind": '"openai"', "dialect": '"trtllm"', "launch": '"s {port}"'},
            ["engine x", "trtllm", "prompt_lookup"],
        ),
        ({"name": '"x"', "kind": '"transformers"', "methods": '["prompt_lookup"]'}, ["methods", "target"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_engine_is_told_before_anything_starts(
    place: Path, entries: dict[str, str], quoted: list[str]
) -> None:
    with refused(*quoted):
        read_experiment(plan(place, *table(**entries)))


def test_a_method_that_an_engine_lacks_is_refused_by_name(place: Path) -> None:
    lines = ["[[methods]]", 'method = "suffix"', *table(name='"hf"', kind='"transformers"')]
    with refused("engine hf", "suffix", "target, speculative, prompt_lookup"):
        read_experiment(plan(place, *lines))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("transformers", EngineSpec("transformers", "transformers")),
        ("workbench=http://h:1", EngineSpec("workbench server", "openai", "workbench", "http://h:1")),
        ("vllm target=http://h:1 suffix=http://h:2", EngineSpec(
            "vllm", "openai", "vllm", urls=(("target", "http://h:1"), ("suffix", "http://h:2")))),
    ],
)  # fmt: skip
def test_an_engine_of_a_command_line(text: str, expected: EngineSpec) -> None:
    assert parse_engine(text) == expected


@pytest.mark.parametrize("text", ["vllm", "magic=http://h", "openai", "vllm magic=http://h:1", "vllm=http://h:1"])
def test_an_engine_of_a_command_line_that_is_none(text: str) -> None:
    with pytest.raises(UserError):
        parse_engine(text)


def test_an_engine_is_named_once_on_a_command_line() -> None:
    with refused("--engine", "transformers", "twice"):
        parse_engines(["transformers", "workbench=http://h:1", "transformers"])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    target = save_checkpoint(folder / "target", llama(max_position_embeddings=256))
    drafter = save_checkpoint(folder / "drafter", llama(max_position_embeddings=256), noise=0.02)
    return load_pair(LoadOptions(target=str(target), drafter=str(drafter), dtype="float32"))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def run(
    place: Path, pair: Pair, lines: Sequence[str], resume: bool = False, top: Sequence[str] = (), report: bool = False
) -> Path:
    """The results file; its report costs seconds, and is written where it is read."""
    from rich.console import Console

    experiment, out = read_experiment(plan(place, *lines, top=top)), place / "r.csv"
    console = Console(file=(place / "said.txt").open("a"), width=140)
    with nullcontext() if report else mock.patch("ablation.run.conduct.conclude"):
        conduct_into(out, experiment, PairEngine(pair), command="test", out=console, err=console, resume=resume)
    return out


def report_of(out: Path) -> str:
    return (out.with_suffix(".report") / "report.md").read_text(encoding="utf-8")


def test_one_file_and_one_report_for_all_engines(place: Path, pair: Pair) -> None:
    served: Running
    with running(pair) as served:
        lines = [
            *table(name='"hf"', kind='"transformers"'),
            *table(name='"ours"', kind='"openai"', dialect='"workbench"', url=f'"{served.url}"'),
        ]
        out = run(place, pair, lines, report=True)
        found = rows(out)
        assert len(found) == 27 and {row["engine"] for row in found} == {"workbench", "hf", "ours"}
        assert not [row["error"] for row in found if row["error"]]
        texts = {(row["id"], row["text"]) for row in found}
        assert len(texts) == 3, "greedy: every engine says the same"
        others = [row for row in found if row["engine"] != "workbench"]
        assert {row["referee"] for row in others} == {"consistent"}
        assert {row["concurrency"] for row in others} == {"1"}
        assert all(row["speedup"] and row["rounds"] and not row["verify_ms"] for row in others)
        assert {row["divergence_verdict"] for row in found if row["configuration"] != "target"} == {"exact"}
        frame: pd.DataFrame = load_results(out)
        assert frame["block"].nunique() == 9 and frame["processor"].nunique() == 3
        text = report_of(out)
        assert "blocks lack" not in text and "## Engines" in text
        assert text.count("| 3 of 3 consistent |") == 6
        assert [one["name"] for one in read(out.with_name("r.manifest.json"))["fixed"]["grid"]["engines"]] == [
            "hf",
            "ours",
        ]
        out.write_text("".join(out.read_text(encoding="utf-8").splitlines(keepends=True)[:1]), encoding="utf-8")
        run(place, pair, lines, resume=True)
        assert len(rows(out)) == 27


def test_engines_take_turns_on_each_prompt(place: Path, pair: Pair) -> None:
    with running(pair) as served:
        url = f'"{served.url}"'
        lines = [
            *table(name='"hf"', kind='"transformers"', methods='["target"]'),
            *table(name='"ours"', kind='"openai"', dialect='"workbench"', url=url),
        ]
        out = run(place, pair, lines, top=("interleave_engines = true",))
        whole = out.read_text(encoding="utf-8").splitlines(keepends=True)
        found = rows(out)
        assert [row["id"] for row in found] == [row for number in range(3) for row in [found[7 * number]["id"]] * 7]
        assert not [row["error"] for row in found if row["error"]]
        out.write_text("".join(whole[:10]), encoding="utf-8")
        run(place, pair, lines, resume=True, top=("interleave_engines = true",))
        keys = [(row["id"], row["engine"], row["configuration"]) for row in rows(out)]
        assert len(set(keys)) == len(keys) == 21
        with refused("grid.interleave_engines"):
            run(place, pair, lines, resume=True)


def test_a_part_of_each_in_turn() -> None:
    assert [*abreast([(iter("ab"), 2), (iter("cdef"), 4)], 2)] == [*"acdbef"]
    assert [*abreast([(iter("abcd"), 4), (iter("efgh"), 4)], 2)] == [*"abefcdgh"]
    assert [*abreast([(iter(""), 0), (iter("ab"), 1), (iter("c"), 2)], 1)] == [*"acb"], "more or fewer than was said"


def test_a_server_that_fails_in_the_middle_leaves_errors_and_the_rest(place: Path, pair: Pair) -> None:
    launch = shlex.join([sys.executable, "-c", "raise SystemExit('no weights')", "{port}"])
    lines = table(name='"v"', kind='"openai"', dialect='"vllm"', launch=f"'''{launch}'''", methods='["target"]')
    found = rows(run(place, pair, lines))
    assert [bool(row["error"]) for row in found] == [False] * 9 + [True] * 3
    assert "no weights" in found[-1]["error"] and found[-1]["engine"] == "v"


def test_a_server_that_does_not_run_is_told_at_once(place: Path, pair: Pair) -> None:
    lines = table(name='"o"', kind='"openai"', dialect='"workbench"', url='"http://127.0.0.1:9"')
    with refused("engine o", "http://127.0.0.1:9/health"):
        run(place, pair, lines)
    assert not (place / "r.csv").exists()


def test_many_requests_are_under_way_at_a_time(pair: Pair) -> None:
    from sampling.engine import Text

    with running(pair) as served:
        api = Api(served.url)
        engine = ServedEngine(PairEngine(pair), OWN, lambda config: api)
        values: dict[str, Any] = {**Settings(), "length": 10}
        texts = [Text(number, [5 + number, 6, 7], 10) for number in range(6)]
        found = dict(engine.stream_many("suffix", values, texts, 3))
        assert sorted(found) == [*range(6)]
        for number, answer in found.items():
            assert isinstance(answer, WholeAnswer)
            metrics = RunMetrics()
            for event in PairEngine(pair).stream("target", values, texts[number].prompt):
                metrics.add(event)
            assert list(answer.output_ids) == metrics.output_ids


def test_prompts_arrive_at_a_server_when_they_should(pair: Pair) -> None:
    from sampling.engine import Text

    with running(pair) as served:
        api = Api(served.url)
        engine = ServedEngine(PairEngine(pair), OWN, lambda config: api)
        values: dict[str, Any] = {**Settings(), "length": 10}
        for size in (1, 4):
            texts = [Text(number, [5, 6, 7], 10, arrives_s) for number, arrives_s in enumerate((0.0, 0.0, 2.0))]
            begun = time.perf_counter()
            found = dict(engine.stream_many("target", values, texts, size))
            assert time.perf_counter() - begun > 2.0 and sorted(found) == [0, 1, 2]
            queued = [found[number].queued_s for number in range(3)]
            assert queued[0] < 1.5 and queued[2] < 1.5, "from when it arrives"
            assert queued[1] > found[0].wall_s / 2 if size == 1 else queued[1] < found[0].wall_s


def test_a_load_of_all_engines_is_a_table_of_each(place: Path, pair: Pair) -> None:
    with running(pair) as served:
        lines = table(name='"o"', kind='"openai"', dialect='"workbench"', url=f'"{served.url}"')
        out = run(place, pair, lines, top=("batch = 2", "rate = 20", 'slo = "ttft:5000"'), report=True)
    found = rows(out)
    assert {(row["engine"], row["rate"]) for row in found} == {("workbench", "20.0"), ("o", "20.0")}
    assert all(row["goodput_rps"] and row["e2e_throughput_tps"] and row["queued_s"] for row in found)
    text = report_of(out)
    assert "Prompts that arrive, under greedy, o" in text and "Prompts that arrive, under greedy, workbench" in text


@pytest.mark.parametrize(
    ("dialect", "status"),
    [("vllm", 404), ("workbench", None)],
)
def test_a_server_is_asked_before_anything_is_played(pair: Pair, dialect: str, status: int | None) -> None:
    with running(pair, ServerLimits(dialect="sglang") if status else None) as served:
        url = {"url": f"{served.url}/v1"} if dialect == "workbench" else {"urls": (("target", served.url),)}
        spec = EngineSpec("x", "openai", dialect, **url)
        refusal = refused(f"{served.url}/v1/completions", status)
        with nullcontext() if status is None else refusal, ready([spec], PairEngine(pair)):
            assert status is None


def test_a_server_without_its_key_is_told_where_the_key_is_from(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(pair, ServerLimits(key="secret")) as served:
        spec = EngineSpec("x", "openai", "workbench", served.url)
        with refused(401, "WORKBENCH_ENGINE_KEY"), ready([spec], PairEngine(pair)):
            pass
        monkeypatch.setenv("WORKBENCH_ENGINE_KEY", "secret")
        with ready([spec], PairEngine(pair)) as engines:
            assert engines["x"].version


def test_a_program_that_is_not_there_is_refused_before_anything_is_played(pair: Pair) -> None:
    spec = EngineSpec("x", "openai", "vllm", launch="no-such-program {port} {options}")
    with (
        refused("engine x", "'no-such-program'"),
        ready([spec], PairEngine(pair)),
    ):
        pass


def test_an_engine_that_fails_has_dashes_and_no_bug(place: Path, pair: Pair) -> None:
    dies = shlex.join([sys.executable, "-c", "raise SystemExit('no weights')", "{port}", "{options}"])
    lines = table(
        name='"o"', kind='"openai"', dialect='"vllm"', launch=json.dumps(dies), methods='["target", "prompt_lookup"]'
    )
    out = run(place, pair, lines, report=True)
    assert {row["error"] != "" for row in rows(out) if row["engine"] == "o"} == {True}
    text = report_of(out)
    assert "BUG n" not in text and "nan" not in text.partition("## How it was computed")[0]


def test_the_referee_finds_the_first_token_that_is_not_the_targets() -> None:
    tiny = tiny_pair()
    metrics, prompt = RunMetrics(), [5, 6, 7]
    for event in PairEngine(tiny).stream("target", {**Settings(), "length": 80}, prompt):
        metrics.add(event)
    whole = metrics.output_ids
    honest = refereed(tiny.target, prompt, whole)
    assert honest.place is None and honest.behind <= honest.noise * 2 + 1e-5
    for place in (0, len(whole) // 2, len(whole) - 1):
        wrong = [*whole]
        wrong[place] = (wrong[place] + 1) % 100
        found = refereed(tiny.target, prompt, wrong)
        assert found.place == place and found.behind > 1e-3
