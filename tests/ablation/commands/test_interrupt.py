import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import pytest
import typer

from ablation.commands.cli import run
from sampling.pair.pair import Pair
from tests.waiting import PATIENCE_S


def _run(arguments: list[str], out: int, errors: int) -> None:
    """The command with streams of its own, and with ears for Ctrl-C wherever the tests were started."""
    os.dup2(out, 1)
    os.dup2(errors, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    app = typer.Typer()
    app.command()(run)
    app(arguments)


def test_ctrl_c_leaves_whole_lines_and_130(pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a fork, which has the pair and imports nothing anew."""
    monkeypatch.setattr("ablation.commands.run.load_chosen", lambda *options: pair)
    arguments = ["--prompt", "Hello", "--length", "20", "--repeat", "100000", "--json"]
    read, write = os.pipe()
    with (tmp_path / "errors").open("w+") as errors:
        process = multiprocessing.get_context("fork").Process(target=_run, args=(arguments, write, errors.fileno()))
        process.start()
        os.close(write)
        with os.fdopen(read) as out:
            first = [out.readline() for _ in range(3)]
            os.kill(process.pid or 0, signal.SIGINT)
            rest = out.readlines()
        process.join(PATIENCE_S)
        errors.seek(0)
        told = errors.read()
    assert process.exitcode == 130
    assert "Traceback" not in told and told.rstrip().endswith("stopped")
    records = [json.loads(line) for line in [*first, *rest]]
    assert all(record["finish_reason"] for record in records)
