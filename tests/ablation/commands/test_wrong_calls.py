import io
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablation.commands.request import choose_prompts
from ablation.plan.prompts.file import read_prompts
from engines.speculative_config import parse_speculative_config
from infer import app
from sampling.pair.pair import Pair
from tests.ablation.conftest import Invoke, objects, write_lines
from tests.refusals import lacking, refused
from utils.errors import UserError


@pytest.mark.parametrize(
    ("arguments", "quoted"),
    [
        ((), "--prompts"),
        (("--prompt", "a", "--prompts", "b.jsonl"), "--prompts"),
        (("--prompt", ""), "--prompt: ''"),
        (("--prompt", "a", "--set", "gama=4"), "'gamma'"),
        (("--prompt", "a", "--set", "gamma"), "gamma=VALUE"),
        (("--prompt", "a", "--set", "gamma=-1"), "gamma: '-1'"),
        (("--prompt", "a", "--set", "egag_gamma_min=9"), "egag_gamma_max 6"),
        (("--prompt", "a", "--processor", "nucleus 0.8"), "top_p"),
        (("--prompt", "a", "--length", "0"), "length: '0'"),
        (("--prompt", "a", "--methods", "target,specultive"), "'speculative'"),
        (("--prompt", "a", "--methods", ","), "no method to run"),
        (("--prompt", "a", "--prompts-file", "b"), "No such option"),
        (("--prompt", "a", "--repeat", "0"), "Invalid value"),
        (("--prompts", "missing.jsonl"), "missing.jsonl"),
        (("--prompts", "dialoge"), "dialogue"),
        (("--prompt", "a", "--trace", "no/such/folder/t.jsonl"), "no/such/folder/t.jsonl"),
        (("--prompt", "a", "--speculative-config", "{"), "JSON"),
        (("--prompt", "a", "--speculative-config", '{"method": "naive"}', "--methods", "target"), "--methods"),
        (
            ("--prompt", "a", "--speculative-config", '{"method": "draft_model", "model": "x"}', "--drafter", "y"),
            "--drafter 'y'",
        ),
    ],
)
def test_a_wrong_call_ends_with_2_before_anything_is_loaded(
    invoke: Invoke, nothing_loads: None, arguments: tuple[str, ...], quoted: str
) -> None:
    result = invoke("run", *arguments, "--json")
    assert result.exit_code == 2 and not result.stdout
    assert not lacking(result.stderr, quoted)


@pytest.mark.parametrize(
    ("arguments", "quoted"),
    [
        (("--length", "0"), "length: '0'"),
        (("--processor", "nucleus 0.8"), "top_p"),
        (("--methods", "target,specultive"), "'speculative'"),
        (("--length", "24", "run", "--prompt", "a"), "--length given before run"),
    ],
)
def test_a_session_refuses_what_it_cannot_set_before_anything_is_loaded(
    nothing_loads: None, arguments: tuple[str, ...], quoted: str
) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and not lacking(result.stderr, quoted)


def test_a_prompt_comes_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines\n"))
    assert [prompt.turns for prompt in choose_prompts("-", None)] == [("two\nlines",)]
    with refused("--prompt", ""):
        choose_prompts("-", None)


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert CliRunner().invoke(app, ["--version"]).stdout.split() == [project["name"], project["version"]]


def test_every_bad_line_is_named(tmp_path: Path) -> None:
    file = write_lines(
        tmp_path / "p.jsonl",
        {"prompt": "good"},
        "{not json",
        "",
        ["a list"],
        {"id": 3},
        {"prompt": ""},
        {"prompt": "x", "max_new_tokens": 0},
        {"prompt": "x", "max_new_tokns": 5},
        {"turns": []},
        {"turns": ["a", 2]},
        {"prompt": "x", "id": 1},
        {"prompt": "x", "id": [1]},
        {"prompt": "x", "task": 1},
        {"prompt": "x", "id": "y" * 201},
        {"prompt": "half \ud800"},
    )
    with pytest.raises(UserError) as error:
        read_prompts(file)
    said = str(error.value).splitlines()
    assert [line.split(":")[0].strip() for line in said[1:-1]] == [
        f"line {i}" for i in (2, 4, 5, 6, 7, 8, 9, 10, 11, 12)
    ]
    assert "not JSON" in said[1] and "'max_new_tokens'?" in said[6] and "every id once" in said[9]
    assert said[-1].strip() == "and 3 more bad lines"


def test_good_lines_of_both_kinds(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(
        '\ufeff{"prompt": "é", "id": "x", "task": "t", "max_new_tokens": 7}\r\n\r\n'
        '{"question_id": 5, "category": "c", "turns": ["a", "b"], "reference": null}\n{"prompt": "a\u2028b"}'.encode()
    )
    first, question, last = read_prompts(file)
    assert (first.id, first.turns, first.task, first.max_new_tokens) == ("x", ("é",), "t", 7)
    assert (question.id, question.turns, question.task) == (5, ("a", "b"), "c")
    assert (last.id, last.turns) == (4, ("a\u2028b",))


def test_an_empty_file_holds_no_prompt(tmp_path: Path) -> None:
    with refused(tmp_path / "p.jsonl", "prompt"):
        read_prompts(write_lines(tmp_path / "p.jsonl", ""))


def test_a_server_configuration_chooses_method_gamma_and_drafter(invoke: Invoke) -> None:
    config = parse_speculative_config('{"method": "draft_model", "num_speculative_tokens": 2, "model": "d"}')
    assert (config.methods, config.assignments, config.models) == (
        ("target", "speculative"),
        (("gamma", "2"),),
        {"drafter": "d"},
    )
    text = '{"method": "draft_model", "num_speculative_tokens": 2}'
    reference, record = objects(invoke("run", "--prompt", "a", "--speculative-config", text, "--json").stdout)
    assert reference["method"] == "target" and record["settings"]["gamma"] == 2
    (naive,) = objects(invoke("run", "--prompt", "a", "--speculative-config", '{"method": "naive"}', "--json").stdout)
    assert naive["method"] == "target" and naive["drafted"] == 0


def test_without_a_drafter_the_default_methods_shrink_and_a_named_one_is_refused(invoke: Invoke, pair: Pair) -> None:
    object.__setattr__(pair, "drafter", None)
    result = invoke("run", "--prompt", "a", "--length", 2, "--json")
    assert [record["method"] for record in objects(result.stdout)] == ["target", "ngram"]
    assert "speculative left out" in result.stderr
    refused = invoke("run", "--prompt", "a", "--methods", "speculative", "--json")
    assert refused.exit_code == 2 and "no drafter model" in refused.stderr
