"""What a report leaves on the disk, and what it refuses."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console
from typer.testing import CliRunner

from ablation.report.load import load_results
from ablation.report.plots.speedup import speedup_figure
from ablation.report.plots.trace import trace_figure
from ablation.report.spec_bench import spec_bench_table, write_spec_bench
from ablation.report.terminal import print_summary
from ablation.report.write import Report, write_report
from ablation.results.manifest import manifest_path
from ablation.results.record import Record
from ablation.results.table import kinds
from ablation.results.traces.trace import trace_path
from tests.ablation.conftest import objects
from tests.ablation.synthetic import GREEDY, PLAIN, four, invented, record, thirty, write_results, write_trace
from tests.refusals import refused


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of a small grid with a trace and a manifest."""
    results = tmp_path_factory.mktemp("report") / "grid.csv"
    write_results(results, invented(four(), prompts=8, processors=(GREEDY,)))
    write_trace(trace_path(results), four())
    fixed = {"grid": {"prompts": {"1": ["a secret prompt", 10]}}, "machine": {"cpu": "<b>fast & hot</b>"}}
    manifest_path(results).write_text(json.dumps({"commit": "abc", "fixed": fixed, "runs": []}), encoding="utf-8")
    return write_report(results)


def test_every_file_is_there(written: Report) -> None:
    names = {path.name for path in written.folder.iterdir()}
    plots = {f"{stem}.{kind}" for stem in ("speedup_greedy", "positions_greedy", "accepted_greedy", "answer")
             for kind in ("png", "svg", "pdf")}  # fmt: skip
    assert written.folder.name == "grid.report"
    assert names == {"report.md", "index.html", "summary.csv", "pairs.csv", "summary.tex", "pairs.tex"} | plots
    assert all((written.folder / name).stat().st_size > 100 for name in names)
    assert (written.folder / "answer.png").read_bytes().startswith(b"\x89PNG")
    pdf = (written.folder / "speedup_greedy.pdf").read_bytes()
    assert pdf.startswith(b"%PDF") and b"/CIDFontType2" in pdf and b"/Type3" not in pdf  # text, in embedded fonts


def test_the_page_needs_nothing_but_itself(written: Report) -> None:
    page = (written.folder / "index.html").read_text(encoding="utf-8")
    sources = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", page)
    assert len(sources) == 4 and all(source.startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r"https?://|@import|url\(", page)
    assert "&lt;b&gt;fast &amp; hot" in page and "<b>fast" not in page  # the manifest is in it, escaped
    assert "secret prompt" not in page
    assert "No two configurations differ in gamma alone" in page


def test_markdown_says_the_same(written: Report) -> None:
    text = (written.folder / "report.md").read_text(encoding="utf-8")
    links = re.findall(r"!\[[^]]*\]\(([^)]*)\)", text)
    assert len(links) == 4 and all((written.folder / link).exists() for link in links)
    assert "unit of replication is the prompt" in text and "control: AR again (noise)" in text
    assert "ngram top\\_k\\_filler=3 is slower than speculative gamma=4 by" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {10, 12, 7}


def test_the_tables_are_the_summary(written: Report) -> None:
    summary = pd.read_csv(written.folder / "summary.csv", keep_default_na=False, na_values=[""])
    assert list(summary.columns) == list(written.summary.columns) and len(summary) == 4 * 3
    assert list(summary["configuration"][:4]) == ["target", "control", "speculative gamma=4", "ngram top_k_filler=3"]
    pairs = pd.read_csv(written.folder / "pairs.csv")
    assert len(pairs) == 3 and (pairs["a"] != "control").all()


def test_a_second_report_replaces_the_first(written: Report, tmp_path: Path) -> None:
    results = written.folder.with_name("grid.csv")
    before = (written.folder / "report.md").read_bytes()
    assert (write_report(results, tmp_path / "new" / "place").folder / "report.md").read_bytes() == before


@pytest.mark.parametrize("width", [40, 80, 100, 140])
def test_the_terminal_table_fits(tmp_path: Path, width: int) -> None:
    from ablation.report.tables.summary import summarise

    results = write_results(tmp_path / "r.csv", invented(thirty(), prompts=6, processors=(GREEDY,)))
    summary = summarise(load_results(results))
    summary.loc[2, ["bug", "lossless"]] = [3, "LOSSY"]
    with (tmp_path / "out.txt").open("w+", encoding="utf-8") as file:
        print_summary(Console(width=width, file=file), summary, ("BUG: something",))
        file.seek(0)
        text = file.read()
    assert max(map(len, text.splitlines())) <= width
    for needed in ("BUG 3", "LOSSY", "! BUG: something"):
        assert needed in text
    assert text.count("top_k_filler") == 9  # no name is cut


def test_one_prompt_is_enough(tmp_path: Path) -> None:
    report = write_report(write_results(tmp_path / "one.csv", invented(four(), prompts=1, processors=(GREEDY,))))
    assert any("Only 1 prompt:" in warning for warning in report.warnings)
    assert "too few prompts to show any" in (report.folder / "report.md").read_text(encoding="utf-8")


def test_nothing_but_errors_is_still_a_report(tmp_path: Path) -> None:
    report = write_report(write_results(tmp_path / "bad.csv", [record(PLAIN, error="<boom> |")]))
    assert list(report.summary["runs"]) == [0, 0] and list(report.summary["failed"]) == [1, 1]
    assert "&lt;boom&gt;" in (report.folder / "index.html").read_text(encoding="utf-8")


def test_other_files_are_refused(tmp_path: Path) -> None:
    good = write_results(tmp_path / "good.csv", [record(PLAIN), record(PLAIN, id="p2")]).read_text(encoding="utf-8")
    header, first, second = good.splitlines(keepends=True)
    for content, quoted in (
        ("", "CSV"),
        ("\n\n", "CSV"),
        ("name,price\nhat,3\n", "column id"),
        ("\x00\xff\x00\n", "column id"),
        (header, "row"),
        (header + first + second[:-1], "--resume"),
        (header + first.replace(",1,code,", ",one,code,"), "'one'"),
        (header + first + first, '"id": "p1"'),
        (header + first + second.replace(",8,", ",,"), "record 3"),
        (header + first + second.replace(",1.0,", ",-1,"), "record 3: decode_s: -1"),
    ):
        path = tmp_path / "given.csv"
        path.write_text(content, encoding="utf-8")
        with refused(path, quoted):
            write_report(path)
    assert not (tmp_path / "given.report").exists()
    with refused(tmp_path / "none.csv", "No such file or directory"):
        write_report(tmp_path / "none.csv")


def test_a_report_never_replaces_its_input_or_a_page_of_the_users(tmp_path: Path) -> None:
    results = write_results(tmp_path / "summary.csv", [record(PLAIN)])
    before = results.read_bytes()
    with refused(results, "summary.csv", "--out"):
        write_report(results, tmp_path)
    own = tmp_path / "own" / "report.md"
    own.parent.mkdir()
    own.write_text("my thesis")
    with refused(own, "--out"):
        write_report(results, own.parent)
    assert results.read_bytes() == before and own.read_text() == "my thesis"


def test_names_stay_as_they_are(tmp_path: Path) -> None:
    frame = load_results(
        write_results(tmp_path / "r.csv", [record(PLAIN, id=id, task="NA") for id in ("007", 7, "true")])
    )
    assert list(frame["id"]) == ["007", "7", "true"] and list(frame["lossless"]) == ["true"] * 3
    assert list(frame["task"]) == ["NA"] * 3


def test_columns_have_the_types_that_the_record_and_the_settings_declare(tmp_path: Path) -> None:
    known = kinds()
    for kind, names in {
        "whole": ("turn", "repeat", "seed", "length"),
        "number": ("new_tokens", "decode_s", "c", "score", "prompt_tokens"),
        "text": ("id", "task", "lossless", "error", "gamma", "processor", "chat"),
        "list": ("accept_hist", "tested_at", "tokens_by_round"),
    }.items():
        assert {known[name] for name in names} == {kind}
    frame = load_results(write_results(tmp_path / "r.csv", [record(PLAIN, accept_hist=[3])]))
    named = {"turn": "int64", "seed": "int64", "rounds": "float64", "id": "category", "error": "category"}
    assert {name: str(frame[name].dtype) for name in named} == named
    assert frame["accept_hist"].iloc[0] == "3"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    results = write_results(tmp_path / "r.csv", [record(PLAIN)])
    with refused(results / "inside", "Not a directory"):
        write_report(results, results / "inside")


def test_every_gamma_of_an_answer_is_inside_its_axes(tmp_path: Path) -> None:
    drawn = trace_figure(write_trace(tmp_path / "r.trace.jsonl", four()[2:]))
    assert not isinstance(drawn, str)
    for axis in drawn[0].axes:
        values = [float(y) for line in axis.lines for y in line.get_ydata()]
        assert all(axis.get_ylim()[0] <= value <= axis.get_ylim()[1] for value in values)


@pytest.mark.parametrize("name", ["short", "a method with=some, more=settings, than=fit", "a_long_name=1, " * 6])
def test_no_name_meets_the_next(name: str) -> None:
    names = [f"{number} {name}" for number in range(4)]
    known = {"method": "m", "task": "all", "prompts": 3, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
    rows = [{"configuration": one, **known} for one in names]
    figure = speedup_figure(pd.DataFrame(rows), "greedy")
    assert not isinstance(figure, str)
    FigureCanvasAgg(figure).draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert all(low.y1 < high.y0 for low, high in pairwise(boxes))


def test_a_lossy_answer_is_stamped_in_its_figure(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "r.trace.jsonl", four()[2:])
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("\n".join(json.dumps(line | {"lossless": False}) for line in lines), encoding="utf-8")
    drawn = trace_figure(path)
    assert not isinstance(drawn, str)
    titles = [title for axis in drawn[0].axes if (title := axis.get_title(loc="left"))]
    assert titles and all(title.endswith(" LOSSY") for title in titles)


def test_a_torn_trace_ends_where_it_is_torn(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "r.trace.jsonl", four()[2:])
    assert not isinstance(trace_figure(path), str)
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: len(text) // 4], encoding="utf-8")
    assert not isinstance(trace_figure(path), str)
    path.write_text("{", encoding="utf-8")
    assert "does not begin with an answer" in str(trace_figure(path))


def test_spec_bench_answers(tmp_path: Path) -> None:
    about = {"id": 81, "task": "writing", "new_tokens": 3, "rounds": 2, "wall_s": 1.5, "tokens_by_round": [1, 2]}
    about["started"] = "1970-01-01T00:00:01.500+00:00"

    def turn(number: int, seed: int, **more: object) -> Record:
        return record(PLAIN, **about | {"turn": number, "seed": seed, "text": f'"{number}",'} | more)

    records = [turn(number, seed) for seed in (1, 2) for number in (1, 2)] + [turn(1, 3), turn(2, 3, error="lost")]
    folder = write_spec_bench(write_results(tmp_path / "r.csv", records), tmp_path / "out", ("AR varies.",))
    (answer,) = objects((folder / "answers" / "target.jsonl").read_text(encoding="utf-8"))
    assert (answer["question_id"], answer["category"], answer["tstamp"]) == (81, "writing", 1.5)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]  # the broken conversation is no answer
    assert answer["choices"][0] == {
        "index": 0,
        "turns": ['"1",', '"2",'],
        "decoding_steps": [2, 2],
        "new_tokens": [3, 3],
        "wall_time": [1.5, 1.5],
        "accept_lengths": [1, 2, 1, 2],
    }
    page = (folder / "spec_bench.md").read_text(encoding="utf-8")
    assert "- **AR varies.**" in page and "**2 of 6 rows are left out here" in page


def test_spec_bench_table_by_hand(tmp_path: Path) -> None:
    sd = four()[2]
    records = []
    for id, task, seconds in ((1, "writing", 4.0), (2, "qa", 8.0)):
        records.append(record(PLAIN, id=id, task=task, new_tokens=80, rounds=80, wall_s=10.0))
        records.append(record(sd, id=id, task=task, new_tokens=80, rounds=20, wall_s=seconds))
    table = spec_bench_table(load_results(write_results(tmp_path / "r.csv", records)))
    found = table[table["configuration"] == sd.name].set_index("task")
    assert list(found.index) == ["mt_bench", "qa", "overall"]
    assert list(found["speedup"]) == pytest.approx([2.5, 1.25, (20 + 10) / 2 / 8])
    assert found["mean_accepted_tokens"]["overall"] == pytest.approx(4.0)


def test_the_script_reports_and_refuses(tmp_path: Path) -> None:
    import typer

    from scripts.report_ablation import main

    app = typer.Typer()
    app.command()(main)
    results = write_results(tmp_path / "r.csv", [record(PLAIN)])
    wrong = CliRunner().invoke(app, [str(tmp_path / "none.csv")])
    assert wrong.exit_code == 2 and "expected" in wrong.output
    right = CliRunner().invoke(app, [str(results), "--out", str(tmp_path / "o"), "--spec-bench", str(tmp_path / "s")])
    assert "Only 1 prompt" in (tmp_path / "s" / "spec_bench.md").read_text(encoding="utf-8")
    assert right.exit_code == 0 and (tmp_path / "o" / "index.html").exists() and (tmp_path / "s" / "answers").is_dir()


def test_no_torch_is_loaded() -> None:
    check = "import sys, ablation.report.write, ablation.report.spec_bench; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
