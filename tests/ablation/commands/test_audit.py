"""The command `audit` on a server of a tiny pair: what it prints and writes, and how it ends."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from ablation.commands.cli import audit
from sampling.pair.pair import Pair
from serve.limits import ServerLimits
from tests.serve.running import running
from utils.interrupt import Interrupt

QUICK = ("--prompt", "ababab", "--processors", "topk 0.5 4,multinomial 0.5 typical_p=0.9", "--draws", "60")


@pytest.fixture
def ask(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr("ablation.commands.audit.command.load_chosen", lambda *options: pair)
    app = typer.Typer()
    app.command()(audit)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_objects_and_a_file_of_tests(ask: Callable[..., Result], pair: Pair, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    with running(pair, ServerLimits(size=8)) as served:
        told = ask(served.url, *QUICK, "--json", "--output", out)
    assert told.exit_code == 0, told.output
    objects = [json.loads(line) for line in told.stdout.splitlines()]
    assert {one["kind"] for one in objects} == {"verdict", "law", "greedy", "logprobs", "draws"}
    verdicts = {(one["processor"], one["method"]): one["verdict"] for one in objects if one["kind"] == "verdict"}
    assert verdicts["greedy", "target"] == "agrees"
    assert verdicts["multinomial 0.5 typical_p=0.9", "target"] == "not asked"
    laws = [one for one in objects if one["kind"] == "law"]
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["p"] for row in rows] == [str(one["p"]) for one in laws] and len(rows) >= 3
    assert sum(times for one in objects if one["kind"] == "draws" for _, times in one["counts"]) == 120
    assert ask("http://127.0.0.1:9", *QUICK, "--output", out).exit_code == 2


def test_a_table_for_people_and_a_fault(
    ask: Callable[..., Result], pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.requests.body._seed", lambda fields: 7)
    with running(pair, ServerLimits(size=8)) as served:
        told = ask(served.url, *QUICK)
    assert told.exit_code == 1 and "DIFFERS" in told.stdout and "typical_p" in told.stdout


def test_stopped_it_judges_what_was_drawn(
    ask: Callable[..., Result], pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Interrupt, "asked", property(lambda self: True, lambda self, value: None), raising=False)
    with running(pair, ServerLimits(size=8)) as served:
        told = ask(served.url, *QUICK)
    assert told.exit_code == 130 and "greedy" in told.stdout and "stopped" in told.stderr


def test_a_server_that_answers_nothing_is_an_error(ask: Callable[..., Result], pair: Pair) -> None:
    with running(pair, ServerLimits(size=8, longest=1)) as served:
        told = ask(served.url, *QUICK)
    assert (told.exit_code == 2 and "longest" in told.stderr) or "max_tokens" in told.stderr
