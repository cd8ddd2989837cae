"""The comparison of servers in turns: who is asked when, what is counted, and what is kept where something fails."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scripts.compare_servers import Load, Server, app, load_of, read_command, read_streams, table, turns
from utils.errors import UserError

SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Ready(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *said):
        pass
HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready).serve_forever()
"""
GENERATOR = """
import json, pathlib, sys
given = dict(word[2:].split("=", 1) for word in sys.argv[2:] if "=" in word)
calls = pathlib.Path(__file__).with_suffix(".calls")
calls.write_text((calls.read_text() if calls.exists() else "") + "x")
if len(calls.read_text()) > LAST:
    sys.exit("no more")
file = pathlib.Path(given["data"].split("path=")[1])
rows = [json.loads(line) for line in file.read_text().splitlines()]
made = [
    {"requests": {"successful": [
        {"request_start_time": 0.0, "request_end_time": len(rows) / streams,
         "output_tokens": row["output_tokens_count"], "time_to_first_token_ms": 7.0, "inter_token_latency_ms": 3.0}
        for row in rows
    ]}}
    for streams in json.loads(given["profile"])["streams"]
]
pathlib.Path(given["output"].split("path=")[1]).write_text(json.dumps({"benchmarks": made}))
"""


def request(start: float, end: float, tokens: int) -> dict[str, Any]:
    """One request of a report."""
    return {
        "request_start_time": start,
        "request_end_time": end,
        "output_tokens": tokens,
        "time_to_first_token_ms": start * 10,
        "inter_token_latency_ms": end,
    }


def test_tokens_a_second_are_those_of_all_streams() -> None:
    load = load_of([request(1, 3, 30), request(2, 6, 20), request(3, 4, 50)], Server("a", "http://x"), 2, 0)
    assert (load.answered, load.tokens_per_s, load.ttft_ms, load.tpot_ms) == (3, 100 / 5, 20, 4)


def test_each_server_is_asked_once_a_round_and_another_one_first() -> None:
    servers = [Server(name, "") for name in "abc"]
    asked = turns(servers, 3)
    assert "".join(server.name for _, server in asked) == "abcbcacab"
    assert [turn for turn, _ in asked] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_ratio_is_taken_within_its_round() -> None:
    speeds = [("a", 10.0), ("b", 20.0)], [("a", 40.0), ("b", 40.0)]
    loads = [Load(turn, 1, name, 2, speed, 5, 5) for turn, both in enumerate(speeds) for name, speed in both]
    shown = table(loads, ["a", "b"])
    assert list(shown.columns[-1].cells) == ["1.00 (1.00 - 1.00)", "1.50 (1.00 - 2.00)"]


@pytest.mark.parametrize("text", ["ours", "ours=serve", "=serve {port}"])
def test_a_server_without_a_name_or_a_port_is_an_error(text: str) -> None:
    with pytest.raises(UserError, match="expected NAME=COMMAND"):
        read_command(text)


@pytest.mark.parametrize("text", ["", "0", "1,x", "1,,2", "-1"])
def test_streams_are_whole_numbers(text: str) -> None:
    with pytest.raises(UserError, match="expected whole numbers"):
        read_streams(text)


@pytest.mark.parametrize(("last", "kept"), [(9, 8), (5, 6)])
def test_rows_are_kept_where_a_later_run_fails(tmp_path: Path, last: int, kept: int) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    generator = tmp_path / "generator"
    generator.write_text(f"#!{sys.executable}\n" + GENERATOR.replace("LAST", str(last)))
    generator.chmod(0o755)
    (tmp_path / "two.jsonl").write_text("".join(json.dumps({"id": n, "prompt": "Hi"}) + "\n" for n in range(2)))
    command = f"{sys.executable} {tmp_path / 'server.py'} {{port}}"
    out = tmp_path / "loads.csv"
    options = ["--guidellm", str(generator), "--tokenizer", str(tmp_path), "--out", str(out), "--rounds", "2"]
    servers = ["--server", f"a={command}", "--server", f"b={command}", "--streams", "1,2", "--length", "5"]
    ran = CliRunner().invoke(app, [str(tmp_path / "two.jsonl"), *options, *servers])
    assert (ran.exit_code == 0) == (last == 9), ran.output
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == kept
    assert {(row["streams"], row["tokens_per_s"]) for row in rows} == {("1", "5.0"), ("2", "10.0")}
