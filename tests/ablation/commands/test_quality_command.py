"""`infer.py quality` on a tiny checkpoint: what it prints, what it writes, and what it refuses."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import infer
from ablation.commands import quality as command
from ablation.plan.prompts.file import Prompt
from ablation.run.formats import FormatComparison, FormatLine
from sampling.forward.kernels import int4, int8
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.measure.quality import Quality
from sampling.measure.rounded import greedy_run
from sampling.pair.pair_engine import PairEngine
from tests.ablation.conftest import objects, write_lines
from tests.tiny import gpt2, llama, save_checkpoint

has_products = pytest.mark.skipif(not (int8.runs() and int4.runs()), reason="this CPU or torch lacks the products")
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "max_position_embeddings": 96}
KEYS = {"format", "dtype", "tokens_per_s", "speed_ratio", "speed_ratio_low", "speed_ratio_high"}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("target"), llama(**SIZES))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    lines: list[Any] = [{"prompt": text, "max_new_tokens": 9} for text in ("ab ab", "xyz", "1 2 3")]
    return write_lines(tmp_path / "p.jsonl", *lines)


def call(*words: object) -> Any:
    return CliRunner().invoke(infer.app, ["quality", *map(str, words)])


@has_products
def test_an_object_a_format_on_stdout_and_in_the_file(target: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.jsonl"
    result = call("--target", target, "--prompts", prompts, "--device", "cpu", "--json", "--output", out)
    assert result.exit_code == 0, result.output
    found = objects(result.stdout)
    assert found == objects(out.read_text())
    assert [one["format"] for one in found] == ["full", "int8", "int4"]
    full, *rounded = found
    assert all(set(one) == KEYS | set(Quality.__dataclass_fields__) for one in found)
    assert (full["same"], full["kl"], full["perplexity"]) == (1.0, 0.0, full["full_perplexity"])
    assert full["speed_ratio"] == 1.0
    for one in rounded:
        assert one["prompts"] == 3 and one["tokens"] == full["tokens"] > 0
        assert one["kl"] > 0
        of_too_few = ("kl_low", "kl_high", "perplexity_low", "speed_ratio_low", "speed_ratio_high")
        assert [one[name] for name in of_too_few] == [None] * len(of_too_few)
        assert one["weight_bytes"] < one["full_weight_bytes"] == full["weight_bytes"]
        assert one["tokens_per_s"] > 0 and one["speed_ratio"] > 0


@has_products
def test_a_table_for_people_with_quality_beside_every_speed(target: Path, prompts: Path) -> None:
    result = call("--target", target, "--prompts", prompts, "--device", "cpu", "--formats", "int4", "--limit", "1")
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("│")]
    assert [line.split("│")[1].strip() for line in lines] == ["full", "int4"]
    assert "the reference" in lines[0] and "(100%)" in lines[0] and "%)" in lines[1]
    assert "[" not in lines[1]  # a single prompt has no interval
    assert "1 prompt, " in result.stdout and "full is float32" in result.stdout


@has_products
def test_later_turns_hear_what_the_full_weights_said(target: Path) -> None:
    """And a prompt counts as a whole."""
    options = LoadOptions(str(target), device="cpu", dtype="float32")
    engines = {"full": PairEngine(load_pair(options)), "int8": PairEngine(load_pair(options))}
    heard: list[list[str]] = []
    own = engines["full"].tokenise
    engines["full"].tokenise = lambda turns, *how: (heard.append(list(turns)), own(turns, *how))[1]  # type: ignore
    comparison = FormatComparison(engines)
    comparison.play(Prompt(1, ("a", "b"), given=((), ("c", "d"))), 5)
    said = greedy_run(engines["full"], own(["a"], True), 5).output_ids
    assert heard == [["a"], ["a", engines["full"].text(said), "c", "d", "b"]]
    found = comparison.lines()[1].quality
    assert found.prompts == 1 and found.tokens in range(2, 11)


@has_products
def test_a_prompt_that_does_not_fit_is_left_out_with_its_reason(target: Path, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "p.jsonl", {"prompt": "ab", "id": "short"}, {"prompt": "x" * 200, "id": "long"})
    result = call(
        "--target", target, "--prompts", file, "--device", "cpu", "--formats", "int8", "--length", 5, "--json"
    )
    assert result.exit_code == 1
    assert [one["prompts"] for one in objects(result.stdout)] == [1, 1]
    assert "long is left out" in result.stderr


@has_products
def test_ctrl_c_shows_what_is_finished_and_one_line(
    target: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = FormatComparison.play

    def interrupted(self: FormatComparison, *arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        play(self, *arguments)

    monkeypatch.setattr(FormatComparison, "play", interrupted)
    result = call("--target", target, "--prompts", prompts, "--device", "cpu", "--formats", "int8", "--json")
    assert result.exit_code == 130
    assert [one["prompts"] for one in objects(result.stdout)] == [1, 1]
    assert result.stderr.splitlines()[-2:] == ["after 1 of 3 prompts:", "stopped"]


@has_products
def test_a_model_without_a_lean_forward_is_refused(tmp_path: Path, prompts: Path) -> None:
    folder = save_checkpoint(tmp_path / "gpt2", gpt2())
    result = call("--target", folder, "--prompts", prompts, "--device", "cpu")
    assert result.exit_code == 2 and "target_weights int8 given" in result.stderr and "lean forward" in result.stderr


def test_a_file_that_is_there_is_left_alone_before_anything_loads(
    tmp_path: Path, prompts: Path, nothing_loads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*options: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("ablation.commands.quality.load_chosen", load)
    result = call("--prompts", prompts, "--output", prompts)
    assert result.exit_code == 2 and "exists; it was left alone" in result.stderr
    assert "ab ab" in prompts.read_text()


def shown(monkeypatch: pytest.MonkeyPatch, width: int, prompts: int = 20, tokens: int = 2000) -> str:
    """The table of a format whose figures are long."""
    console = Console(width=width, record=True)
    monkeypatch.setattr(command, "out_console", lambda: console)
    found = Quality(
        *(prompts, tokens, 0.982, 0.974, 0.989, 0.0123, 0.0101, 0.0145, 12.345, 11.234, 13.456, 12.3, 11.2, 13.4),
        *(123_456_789, 538_000_000),
    )
    full = FormatLine("full", "float32", found, 55.7, 1.0, 1.0, 1.0)
    command._show([full, FormatLine("int8", "float32", found, 115.0, 2.06, 2.01, 2.11)])
    return console.export_text()


@pytest.mark.parametrize("width", [120, 200])
def test_an_interval_is_never_broken(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    lines = shown(monkeypatch, width).splitlines()
    table = [line for line in lines if "│" in line]
    ends = re.findall(r"\[[\d.]+, [\d.]+\]", "\n".join(table))
    assert len(ends) == 5 and all(line.count("[") == line.count("]") for line in table)
    assert any("98.2 [97.4, 98.9]" in line for line in table) == (width == 200), "below the figure where it is narrow"


def test_few_tokens_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Only" not in shown(monkeypatch, 200)
    warning = "were compared: of so few, figures and intervals say little; expected 6 prompts and 1,000 tokens or more"
    for prompts, tokens, said in ((5, 2000, "Only 5 prompts, 2,000 tokens"), (20, 90, "Only 20 prompts, 90 tokens")):
        assert f"{said} {warning}" in " ".join(shown(monkeypatch, 200, prompts, tokens).split())
