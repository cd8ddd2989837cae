"""Names that would be commands: in Markdown, in HTML, in LaTeX, in a plot and on a terminal."""

import json
import re
import warnings
from pathlib import Path

import pytest

from ablation.plan.grid import Configuration
from ablation.report.latex import escaped
from ablation.report.origin import measured_on
from ablation.report.write import write_report
from ablation.results.manifest import manifest_path
from tests.ablation.synthetic import AGAIN, GREEDY, PLAIN, invented, write_results
from utils.text import shown

HOSTILE = r"[a|b] *x* $y_1$ 5%~^ {&#} \end{table} <b>"
STEERING = "\x1b[2J\u202e\x07"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report whose task and configuration have such names."""
    results = tmp_path_factory.mktemp("texts") / "grid.csv"
    odd = Configuration("speculative", (("gamma", 4),), HOSTILE + STEERING)
    write_results(results, invented((PLAIN, AGAIN, odd), 7, (f"t 中文 {HOSTILE}{STEERING}", "code"), (GREEDY,)))
    fixed = {
        "grid": {},
        "machine": {"cpu": f"A_B {STEERING}", "threads": 2},
        "target": {"name": "T", "dtype": "float32"},
    }
    manifest_path(results).write_text(
        json.dumps({"fixed": fixed, "runs": [], "plan": "night", "uncommitted_changes": True}, ensure_ascii=False),
        encoding="utf-8",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return write_report(results).folder


@pytest.mark.parametrize("name", ["report.md", "index.html", "summary.tex", "pairs.tex"])
def test_no_control_character_is_left(folder: Path, name: str) -> None:
    text = (folder / name).read_text(encoding="utf-8")
    assert text == shown(text, lines=True)
    assert "x1b" in text and "u202e" in text


def test_markdown_keeps_its_columns(folder: Path) -> None:
    lines = (folder / "report.md").read_text(encoding="utf-8").splitlines()
    rows = [re.sub(r"\\.", "", line) for line in lines if line.startswith("|")]
    assert rows and {row.count("|") for row in rows} == {7, 10, 12}
    assert not any("$" in row or "<" in row or "*" in row for row in rows)


@pytest.mark.parametrize("name", ["report.md", "index.html"])
def test_what_holds_for_all_tasks_comes_first(folder: Path, name: str) -> None:
    text = (folder / name).read_text(encoding="utf-8")
    order = ["Ablation report: night", "over those of AR"]
    first = ["Warnings", "Speed, all tasks"]
    order += first[::-1] if name == "index.html" else first
    order += ["Drafts and output, all tasks"]
    order += ["1 pair, all tasks", "Dot: the median", "Speed, code", "How it was computed"]
    places = [text.index(said) for said in order]
    assert places == sorted(places)


def test_html_shows_a_name_as_text(folder: Path) -> None:
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;" in page and "<b>" not in page


@pytest.mark.parametrize("name", ["summary.tex", "pairs.tex"])
def test_the_latex_is_well_formed(folder: Path, name: str) -> None:
    text = (folder / name).read_text(encoding="utf-8")
    begun = re.findall(r"\\(begin|end)\{(\w+)\}", text)
    tables = text.count(r"\begin{table}")
    assert begun == [("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table")] * tables and tables
    for part in text.split(r"\begin{tabular}")[1:]:
        columns, body = part.split("\n", 1)
        count = len(re.sub(r"p\{[^}]*\}", "p", columns.strip("{}")))
        rows = [line for line in body.split(r"\end{tabular}")[0].splitlines() if line.endswith(r" \tabularnewline")]
        assert rows and {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {count}
        assert body.index(r"\toprule") < body.index(r"\midrule") < body.index(r"\bottomrule")
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    plain = re.sub(r"\\.", "", "\n".join(lines))
    assert plain.count("{") == plain.count("}")
    assert not re.search(r"[%#$~^_]", plain)
    assert text.count(r"\caption{") == text.count(r"\label{") == tables
    captions = re.findall(r"\\caption\{(.*)\}", text)
    for said in ("7 prompts", r"A\_B", "2 threads", "over those of AR", "95 \\% intervals between two prompts"):
        assert all(said in caption for caption in captions)
    told = re.findall(r"\\parbox\{\\linewidth\}\{\\raggedright (.*)\}", text)
    assert len(told) == tables and all("The code had uncommitted changes" in notes for notes in told)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a_b 5 %", r"a\_b 5 \%"),
        ("\\{}", r"\textbackslash{}\{\}"),
        ("~^|<>", r"\textasciitilde{}\textasciicircum{}\textbar{}\textless{}\textgreater{}"),
        ("[*", "{[}{*}"),
        ("a--b –", "a-{}-b --"),
    ],
)
def test_latex_sets_a_text_as_it_is(given: str, expected: str) -> None:
    assert escaped(given) == expected


def test_the_machine_and_the_models_are_told() -> None:
    target = {"name": "T", "device": "cpu", "dtype": "float32"}
    fixed = {"machine": {"cpu": "EPYC", "threads": 2}, "target": target, "drafter": None}
    assert measured_on({"fixed": fixed}) == "Measured on EPYC, 2 threads; target T (cpu, float32)."
    alike = {**fixed, "target": {**target, "batch_invariant": True}}
    assert measured_on({"fixed": alike}).endswith("target T (cpu, float32, batch-invariant).")
    assert measured_on(None) == measured_on({"fixed": {}}) == measured_on({"fixed": {"machine": "a toaster"}}) == ""
