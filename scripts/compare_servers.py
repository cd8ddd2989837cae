"""Servers in turns under a load generator that others wrote, GuideLLM: tokens a second, waits, and ratios by round.

uv run scripts/compare_servers.py PROMPTS.jsonl --guidellm PROGRAM --tokenizer FOLDER --server "NAME=COMMAND" ...

All servers are started first and stay up; one at a time is asked. A round asks each of them once at each number of
streams, and the order turns from round to round. {port} in a command stands for a free port. Every answer has
`--length` tokens (`ignore_eos`), so that all do equal work, and is greedy (temperature 0).
"""

import csv
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ablation.commands.shared.options import exit_statuses
from ablation.plan.prompts.sets import find_sources, gather
from engines.dialects.vllm import Vllm
from engines.server.launch import Launcher
from utils.errors import UserError

WARM_UP = 8
SURROUNDINGS = {"HF_HUB_OFFLINE": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "1"}  # the servers need the cores

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Server(NamedTuple):
    """name: as the tables say it. url: where it listens."""

    name: str
    url: str


class Load(NamedTuple):
    """What a server was asked, and how it went. answered: requests without an error, to which all figures belong.

    tokens_per_s: over all streams, from the first request to the last answer. ttft_ms, tpot_ms: medians over the
    requests, as a client sees them.
    """

    round: int
    streams: int
    server: str
    answered: int
    tokens_per_s: float
    ttft_ms: float
    tpot_ms: float


class Generator(NamedTuple):
    """GuideLLM, the folder of the served model's tokenizer, and the questions, one JSON object a line."""

    program: Path
    tokenizer: Path
    questions: Path

    def run(self, server: Server, streams: Sequence[int], count: int) -> list[list[dict[str, Any]]]:
        """Its figures of each request, for each number of streams. Raises `UserError` where none was answered."""
        asked = {
            "kind": "openai_http",
            "target": server.url,
            "request_format": "/v1/chat/completions",
            "extras": {"body": {"temperature": 0}},
        }
        with tempfile.TemporaryDirectory() as scratch:
            report = Path(scratch) / "report.json"
            words = [
                str(self.program),
                "run",
                f"--backend={json.dumps(asked)}",
                f"--profile={json.dumps({'kind': 'concurrent', 'streams': [*streams]})}",
                f"--constraint=kind=max_requests,count={count}",
                f"--data=kind=json_file,path={self.questions}",
                f"--data-loader=kind=pytorch,samples={count}",
                f"--tokenizer=kind=huggingface_auto,model={self.tokenizer}",
                f"--output=kind=json,path={report}",
                "--disable-console",
            ]
            ran = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **SURROUNDINGS})
            if ran.returncode:
                raise UserError(f"{self.program} ended with status {ran.returncode}: {ran.stderr[-500:]}")
            found = json.loads(report.read_text(encoding="utf-8"))["benchmarks"]
        answered: list[list[dict[str, Any]]] = [one["requests"]["successful"] for one in found]
        if not all(answered):
            raise UserError(f"{server.name} answered no request")
        return answered


def load_of(requests: Sequence[Mapping[str, Any]], server: Server, streams: int, turn: int) -> Load:
    """One server under all questions, so many at a time."""
    begin = min(one["request_start_time"] for one in requests)
    end = max(one["request_end_time"] for one in requests)
    return Load(
        turn,
        streams,
        server.name,
        len(requests),
        sum(one["output_tokens"] for one in requests) / (end - begin),
        median(one["time_to_first_token_ms"] for one in requests),
        median(one["inter_token_latency_ms"] for one in requests),
    )


def read_command(text: str) -> tuple[str, str]:
    """A server's name and its command. Raises `UserError`."""
    name, _, command = text.partition("=")
    if not name.strip() or "{port}" not in command:
        raise UserError(f'--server "{text}"; expected NAME=COMMAND, and {{port}} in the command')
    return name.strip(), command


def read_streams(text: str) -> list[int]:
    """Numbers of streams. Raises `UserError`."""
    numbers = [int(one) for one in text.split(",") if one.strip().isdecimal()]
    if len(numbers) != len(text.split(",")) or 0 in numbers:
        raise UserError(f"--streams {text}; expected whole numbers above 0, such as 1,8,32")
    return numbers


def turns(servers: Sequence[Server], rounds: int) -> list[tuple[int, Server]]:
    """Which server is asked when: each once a round, and another one first in each."""
    return [(n, servers[(n + at) % len(servers)]) for n in range(rounds) for at in range(len(servers))]


def table(loads: Sequence[Load], names: Sequence[str]) -> Table:
    """Medians over the rounds; the ratio to the first server, taken within a round, with the least and the greatest."""
    shown = Table("streams", "server", "tokens/s", "TTFT ms", "ms between tokens", f"of {names[0]}")
    for streams in sorted({load.streams for load in loads}):
        for name in names:
            mine, first = (
                {load.round: load for load in loads if (load.streams, load.server) == (streams, who)}
                for who in (name, names[0])
            )
            ratios = [mine[n].tokens_per_s / first[n].tokens_per_s for n in mine]
            shown.add_row(
                str(streams),
                name,
                f"{median(load.tokens_per_s for load in mine.values()):.1f}",
                f"{median(load.ttft_ms for load in mine.values()):.0f}",
                f"{median(load.tpot_ms for load in mine.values()):.1f}",
                f"{median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})",
            )
    return shown


def save(out: Path | None, loads: Sequence[Load]) -> None:
    """All loads so far, so that a run that is stopped keeps them."""
    if out is not None:
        with out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([Load._fields, *loads])


def write_questions(path: Path, prompts: Sequence[str], length: int) -> None:
    """As GuideLLM reads them."""
    rows = (json.dumps({"prompt": prompt, "output_tokens_count": length}) for prompt in prompts)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


@app.command()
def compare(
    prompts: Annotated[list[str], typer.Argument(metavar="PROMPTS", help="Sets or prompt files.")],
    guidellm: Annotated[Path, typer.Option(metavar="PROGRAM", help="The program of GuideLLM.", exists=True)],
    tokenizer: Annotated[Path, typer.Option(metavar="FOLDER", help="The served model's tokenizer.", exists=True)],
    server: Annotated[list[str], typer.Option(metavar="NAME=COMMAND", help="The first is what ratios are against.")],
    streams: Annotated[str, typer.Option(help="How many at a time, such as 1,8,32.")] = "1,8,32",
    rounds: Annotated[int, typer.Option(help="How often each is asked.", min=1)] = 3,
    length: Annotated[int, typer.Option(help="Tokens of an answer.", min=2)] = 32,
    limit: Annotated[int, typer.Option(help="Most prompts in all.", min=1)] = 32,
    out: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="A row for each load.")] = None,
) -> None:
    """Compare servers in turns."""
    with exit_statuses():
        tools, sizes = (guidellm, tokenizer), (rounds, length, limit)
        _compare(prompts, tools, [read_command(one) for one in server], read_streams(streams), sizes, out)


def _compare(
    prompts: Sequence[str],
    tools: tuple[Path, Path],
    commands: Sequence[tuple[str, str]],
    streams: Sequence[int],
    sizes: tuple[int, int, int],
    out: Path | None,
) -> None:
    rounds, length, limit = sizes
    loads: list[Load] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        texts = [prompt.turns[0] for prompt in gather(find_sources(prompts, Path()))[:limit]]
        write_questions(folder / "questions.jsonl", texts, length)
        generator = Generator(*tools, folder / "questions.jsonl")
        servers = []
        for name, command in commands:
            api = stack.enter_context(Launcher(command, Vllm(), str(tools[1]))).api_of({"method": "naive"})
            servers.append(Server(name, api.url))
            generator.run(servers[-1], [WARM_UP], WARM_UP)
        for n, one in track(turns(servers, rounds), "asking", console=Console(stderr=True)):
            found = generator.run(one, streams, len(texts))
            loads += [load_of(requests, one, size, n) for requests, size in zip(found, streams, strict=True)]
            save(out, loads)
        Console().print(table(loads, [one.name for one in servers]))


if __name__ == "__main__":
    app()
