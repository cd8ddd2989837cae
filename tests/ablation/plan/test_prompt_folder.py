"""Folders of prompt files, in the layouts of benchmarks: what is read, under which names, and what is refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ablation.plan.file import read_experiment
from ablation.plan.overrides import Overrides
from ablation.plan.prompts.file import parse_prompt
from ablation.plan.prompts.folder import read_folder
from ablation.plan.prompts.sets import FOLDER, gather, set_names
from tests.ablation.conftest import Invoke, objects, write_lines
from tests.ablation.plan_files import SPECULATIVE, Write, ids, refusal
from tests.refusals import lacking
from utils.errors import UserError


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


# By layout: the lines of each file.
LAYOUTS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "DeepSpec": {
        "gsm8k.jsonl": [{"turns": ["How many?"]}, {"turns": ["How much?"]}],
        "mt-bench.jsonl": [{"turns": ["Write.", "Shorten."]}],
    },
    "SPEED-Bench": {
        "qualitative.jsonl": [
            {"question_id": "ab12", "category": "coding", "sub_category": "c", "src_id": "7", "messages": [said("a")]},
            {"question_id": "cd34", "category": "writing", "messages": [said("b"), said("c")]},
        ],
        "throughput_1k.jsonl": [{"question_id": "ab12", "category": "low_entropy", "messages": [said("d")]}],
    },
    "PARD": {"gsm8k.jsonl": [{"data": "How many?"}], "humaneval.jsonl": [{"data": "def f():"}, {"data": "def g():"}]},
    "Spec-Bench": {
        "question.jsonl": [
            {"question_id": 81, "category": "writing", "turns": ["a", "b"], "reference": ["r"]},
            {"question_id": 161, "category": "translation", "turns": ["c"]},
        ]
    },
    "EAGLE": {
        "gsm8k/question.jsonl": [{"question_id": 0, "category": "math", "turns": ["a"], "reference": ["b"]}],
        "mt_bench/question.jsonl": [{"question_id": 81, "category": "math", "turns": ["a", "b"]}],
    },
}
EXPECTED = {
    "DeepSpec": ["gsm8k:1", "mt-bench:1", "gsm8k:2"],
    "SPEED-Bench": ["qualitative:ab12", "throughput_1k:ab12", "qualitative:cd34"],
    "PARD": ["gsm8k:1", "humaneval:1", "humaneval:2"],
    "Spec-Bench": ["bench:81", "bench:161"],
    "EAGLE": ["gsm8k:0", "mt_bench:81"],
}


def laid_out(folder: Path, layout: str) -> Path:
    """A folder `bench` in one of the layouts."""
    for name, lines in LAYOUTS[layout].items():
        (folder / "bench" / name).parent.mkdir(parents=True, exist_ok=True)
        write_lines(folder / "bench" / name, *lines)
    return folder / "bench"


def told(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_folder(str(folder))
    return str(caught.value)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_file_is_a_set_by_its_name(tmp_path: Path, layout: str) -> None:
    prompts = read_folder(str(laid_out(tmp_path, layout)))
    assert [prompt.id for prompt in prompts] == EXPECTED[layout]
    assert [prompt.task for prompt in prompts] == [name.split(":")[0] for name in EXPECTED[layout]]
    written = [json.dumps(line) for lines in LAYOUTS[layout].values() for line in lines]
    assert {prompt.turns for prompt in prompts} == {parse_prompt(line, 1).turns for line in written}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_neither_the_disk_s_order_nor_another_set_changes_a_prompt(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = laid_out(tmp_path, layout)
    first = read_folder(str(folder))
    listed = Path.iterdir

    def backwards(self: Path) -> list[Path]:
        return sorted(listed(self), reverse=True)

    monkeypatch.setattr(Path, "iterdir", backwards)
    assert read_folder(str(folder)) == first
    more = "zz/question.jsonl" if layout == "EAGLE" else "zz.jsonl"
    (folder / more).parent.mkdir(exist_ok=True)
    write_lines(folder / more, {"turns": ["z"], "question_id": 81})
    found = read_folder(str(folder))
    assert [prompt for prompt in found if prompt.task != "zz"] == list(first) and "zz:81" in {one.id for one in found}


def test_what_is_no_prompt_file_is_left_alone(tmp_path: Path) -> None:
    folder = laid_out(tmp_path, "Spec-Bench")
    first = read_folder(str(folder))
    (folder / "model_answer").mkdir()
    for name in ("._question.jsonl", "README.md", "model_answer/vicuna.jsonl"):
        (folder / name).write_text("no prompts")
    assert read_folder(str(folder)) == first


def test_a_folder_is_named_where_it_is_given_as_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(laid_out(tmp_path, "Spec-Bench"))
    assert {prompt.task for prompt in read_folder(".")} == {"bench"}


def test_the_built_in_sets_are_such_a_folder() -> None:
    built_in = gather([FOLDER / f"{name}.jsonl" for name in set_names()])
    found = read_folder(str(FOLDER))
    assert [prompt.turns for prompt in found] == [prompt.turns for prompt in built_in]
    assert {prompt.task for prompt in found} == set(set_names())


def test_the_file_and_the_line_of_every_fault_are_told(tmp_path: Path) -> None:
    folder = laid_out(tmp_path, "DeepSpec")
    with (folder / "gsm8k.jsonl").open("a") as file:
        file.write('{"turns": "a"}\n{"turns": ["a"], "id": 2}\n{"turns": ["a"], "id": "1"}\n')
    (folder / "mt-bench.jsonl").write_bytes(b'{"turns": ["\xe4"]}\n')
    message = told(folder)
    assert not lacking(message, folder / "gsm8k.jsonl", "line 3: turns: 'a'", "line 4: id 2")
    assert not lacking(message, folder / "mt-bench.jsonl", "0xe4")


def test_an_id_as_a_number_and_as_a_text_is_one(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", {"prompt": "a", "id": 1}, {"prompt": "b", "id": "1"})
    assert not lacking(told(tmp_path), tmp_path / "a.jsonl", "id 1")


def test_a_placeholder_is_refused(tmp_path: Path) -> None:
    words = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH\n\n{article}"
    write_lines(tmp_path / "qualitative.jsonl", {"question_id": "a", "messages": [said("b")]}, {"turns": [words]})
    assert not lacking(told(tmp_path), "line 2", "SPEED-Bench")


def test_other_layouts_are_refused_by_what_is_there(tmp_path: Path) -> None:
    assert not lacking(told(tmp_path), tmp_path, "NAME.jsonl")
    (tmp_path / "gsm8k.json").write_text("[]")
    (tmp_path / "gsm8k").mkdir()
    assert not lacking(told(tmp_path), "'gsm8k'", "'gsm8k.json'", "NAME.jsonl")
    write_lines(tmp_path / "gsm8k" / "question.jsonl", {"turns": ["a"]})
    assert len(read_folder(str(tmp_path))) == 1
    write_lines(tmp_path / "mbpp.jsonl", {"turns": ["a"]})
    assert not lacking(told(tmp_path), "'mbpp.jsonl'", "'gsm8k/question.jsonl'", "NAME.jsonl")
    assert not lacking(told(tmp_path / "mbpp.jsonl"), tmp_path / "mbpp.jsonl", "Not a directory")
    assert not lacking(told(tmp_path / "none"), tmp_path / "none", "No such file or directory")


def test_two_files_of_one_set_and_a_file_that_is_gone_are_refused(tmp_path: Path) -> None:
    folder = laid_out(tmp_path, "Spec-Bench")
    (folder / "a.jsonl").symlink_to("nowhere")
    assert not lacking(told(folder), folder / "a.jsonl", "No such file or directory")
    (folder / "a.jsonl").rename(folder / "bench.jsonl")
    assert not lacking(told(folder), "'bench'")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser reads everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    folder = laid_out(tmp_path, "PARD")
    (folder / "gsm8k.jsonl").chmod(0)
    assert not lacking(told(folder), folder / "gsm8k.jsonl", "Permission denied")


def test_a_plan_takes_a_folder_beside_it_and_shares_its_limit(write: Write, tmp_path: Path) -> None:
    laid_out(tmp_path, "DeepSpec")
    plan = write("limit = 2", SPECULATIVE, prompts='prompts_dir = "bench"')
    assert ids(read_experiment(plan)) == ["gsm8k:1", "mt-bench:1"]
    assert ids(read_experiment(plan, Overrides(prompts=("code",), limit=1))) == ["code-01"]
    both = write(SPECULATIVE, prompts='prompts = ["code"]\nprompts_dir = "bench"')
    assert not lacking(refusal(both), "line 2: prompts", "prompts_dir")
    empty = refusal(write(SPECULATIVE, prompts='prompts_dir = ""'))
    assert not lacking(empty, "line 1: prompts_dir: ''")
    assert "prompt folder" in refusal(write(SPECULATIVE, prompts='prompts_dir = "none"'))


def test_the_command_line_of_an_ablation_takes_a_folder(tmp_path: Path) -> None:
    folder = str(laid_out(tmp_path, "EAGLE"))
    assert ids(read_experiment("quick", Overrides(prompts_dir=folder))) == EXPECTED["EAGLE"]
    for other in (Overrides(prompts_dir=folder, prompt="a"), Overrides(prompts_dir=folder, prompts=("code",))):
        assert not lacking(refusal("quick", other), "--prompts-dir")


def test_a_run_reports_by_set(invoke: Invoke, tmp_path: Path) -> None:
    folder = laid_out(tmp_path, "DeepSpec")
    result = invoke("run", "--prompts-dir", folder, "--methods", "target", "--length", 3, "--json")
    assert result.exit_code == 0, result.stderr
    assert [(one["task"], one["id"], one["turn"]) for one in objects(result.stdout)] == [
        ("gsm8k", "gsm8k:1", 1),
        ("mt-bench", "mt-bench:1", 1),
        ("mt-bench", "mt-bench:1", 2),
        ("gsm8k", "gsm8k:2", 1),
    ]
    refused = invoke("run", "--prompts-dir", folder, "--prompts", "code")
    assert refused.exit_code == 2 and "--prompts and --prompts-dir: expected one of them" in refused.stderr


def test_an_ablation_goes_on_with_its_rows(call: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = laid_out(tmp_path, "PARD"), tmp_path / "r.csv"
    given = ("--prompts-dir", folder, "--methods", "suffix", "--length", 4, "--out", out)
    first = call(*given)
    assert first.exit_code == 0, first.output
    rows = out.read_text()
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: sorted(listed(self), reverse=True))
    again = call(*given, "--resume")
    assert again.exit_code == 0 and out.read_text() == rows, again.output
    report = (tmp_path / "r.report" / "report.md").read_text()
    assert "gsm8k" in report and "humaneval" in report
