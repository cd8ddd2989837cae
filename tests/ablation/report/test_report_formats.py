"""Several formats of the target's weights in one file: each against its own AR, and beside each other with quality."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ablation.commands.show import show
from ablation.plan.grid import CONTROL, Configuration
from ablation.report.load import load_results
from ablation.report.plots.trace import trace_figure
from ablation.report.spec_bench import write_spec_bench
from ablation.report.tables.formats import formats_section
from ablation.report.tables.summary import summarise
from ablation.report.write import Report, write_report
from ablation.results.manifest import add_quality, manifest_path
from ablation.results.record import Record
from sampling.measure.quality import Quality
from tests.ablation.frames import CLEAN, NGRAM, SD, cautions, pairs_of, ran
from tests.ablation.synthetic import AGAIN, PLAIN, write_results, write_trace

QUALITY = {
    "int8": Quality(9, 900, 0.947, 0.94, 0.953, 0.0055, 0.005, 0.006, 2.51, 2.4, 2.6, 2.45, 2.3, 2.6, 249, 651),
    "int4": Quality(9, 900, 0.969, 0.96, 0.975, 0.0016, 0.0011, 0.0021, 2.46, 2.3, 2.6, 2.45, 2.3, 2.6, 208, 651),
}
# Seconds of AR for 100 tokens, and how much faster SD and NGRAM are than it: in int4 NGRAM is slower than AR.
PACE = {"full": (10.0, 1.2, 1.5), "int8": (5.0, 1.25, 1.1), "int4": (4.0, 1.3, 0.8)}


def runs(*formats: str, prompts: int = 8) -> Iterator[Record]:
    """A little more of everything on each prompt, so that nothing ties."""
    for place in range(prompts):
        for name in formats:
            plain, *ratios = PACE[name]
            ar_s = plain * (1 + place / 100)
            about: dict[str, Any] = {"ar_s": ar_s, "target_weights": name}
            yield ran(PLAIN, f"p{place}", ar_s, **about)
            yield ran(AGAIN, f"p{place}", ar_s, **about)
            for one, ratio in zip((SD, NGRAM), ratios, strict=True):
                yield ran(one, f"p{place}", ar_s / (ratio + place / 1000), **about)


def manifest(*formats: str, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {**CLEAN, **more}
    for name in formats:
        add_quality(made, name, QUALITY[name])
    return made


def reported(folder: Path, known: dict[str, Any], *formats: str) -> Report:
    results = write_results(folder / "r.csv", runs(*formats))
    manifest_path(results).write_text(json.dumps(known), encoding="utf-8")
    return write_report(results)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return reported(tmp_path_factory.mktemp("whole"), manifest("int8", "int4"), "full", "int8", "int4")


def test_a_speedup_is_over_ar_of_the_same_weights(whole: Report) -> None:
    rows = whole.summary[whole.summary["task"] == "all"].set_index(["target_weights", "configuration"])
    for name, (plain, speculative, ngram) in PACE.items():
        assert rows.loc[(name, "target"), "speedup"] == 1.0
        assert rows.loc[(name, "target"), "tokens_per_s_mean"] == pytest.approx(100 / plain, rel=0.05)
        assert rows.loc[(name, SD.name), "speedup"] == pytest.approx(speculative, abs=0.01)
        assert rows.loc[(name, NGRAM.name), "ratio_of_sums"] == pytest.approx(ngram, abs=0.01)
        assert rows.loc[(name, SD.name), "processor"] == f"greedy, {name} weights"
        assert rows.loc[(name, SD.name), "break_even"] > 0 or rows.loc[(name, SD.name), "prompts"] == 8


def test_tests_and_choices_stay_within_a_format(tmp_path: Path) -> None:
    frame = load_results(write_results(tmp_path / "r.csv", runs(*PACE)))
    pairs = pairs_of(frame)
    assert set(pairs["processor"]) == {f"greedy, {name} weights" for name in PACE}
    assert len(pairs) == 3 * 3  # of each format: two against AR, and against each other
    by_format = pairs[pairs["b"] == SD.name].set_index("processor")["ratio"]
    for name, (_, speculative, ngram) in PACE.items():
        assert by_format[f"greedy, {name} weights"] == pytest.approx(ngram / speculative, abs=0.02)


def test_what_was_asked_to_be_compared_is_answered_for_each_format(tmp_path: Path) -> None:
    found = reported(tmp_path, manifest(compare=[["ngram", "speculative"]]), *PACE)
    *asked, matrix = [one.split(":")[0] for one in found.answers]
    assert asked == [f"greedy, {name} weights" for name in PACE] and matrix == "6 cells of the matrix"
    assert "slower" in found.answers[2] and "faster" in found.answers[0]


def cells(report: Report) -> dict[str, list[str]]:
    """The rows of the only table of formats."""
    (table,) = report.formats
    return {row[0]: list(row[1:]) for row in table.rows}


def test_the_table_has_quality_and_speed_of_each_format_together(whole: Report) -> None:
    found = cells(whole)
    assert list(found) == ["full", "int8", "int4"]
    assert found["full"][:3] == ["the reference", "–", "2.450 [2.300, 2.600]"] and found["full"][5] == "1.00"
    assert found["int8"][:4] == [
        "94.7 [94.0, 95.3]",
        "0.0055 [0.0050, 0.0060]",
        "2.510 [2.400, 2.600]",
        "0 (38%)",
    ]
    speeds = {name: float(row[4]) for name, row in found.items()}
    assert speeds == pytest.approx({"full": 9.67, "int8": 19.3, "int4": 24.2}, abs=0.05)
    assert found["int8"][5].startswith("2.00") and found["int4"][5].startswith("2.50")


def test_the_best_of_a_format_is_chosen_on_the_other_prompts_of_that_format(whole: Report) -> None:
    best = {"full": NGRAM, "int8": SD, "int4": SD}
    said = "; ".join(f"{name}: {one.name} on 8" for name, one in best.items())
    assert whole.formats[0].notes[0] == f"Best of each format, by the number of prompts: {said}."
    against = [float(row[7].split()[0]) for row in cells(whole).values()]
    assert against == pytest.approx([1.5, 2.0 * 1.25, 2.5 * 1.3], abs=0.02)


def test_every_form_has_the_same_table(whole: Report, tmp_path: Path) -> None:
    screen = io.StringIO()
    whole.print(Console(file=screen, width=220))
    forms = {name: (whole.folder / name).read_text() for name in ("report.md", "index.html", "summary.tex")}
    write_spec_bench(whole.folder.parent / "r.csv", tmp_path, whole.warnings, whole.formats)
    forms |= {"terminal": screen.getvalue(), "spec_bench": (tmp_path / "spec_bench.md").read_text()}
    for name, text in forms.items():
        plain = re.sub(r"[\\{}]", "", text)
        for cell in ("Formats under greedy", "same token, %", "94.7 [94.0, 95.3]", "2.00 [2.00, 2.00]", "AR tokens/s"):
            assert cell in plain, (name, cell)
    assert not [warning for warning in whole.warnings if "quality" in warning]
    told = next(csv.DictReader((whole.folder / "summary.csv").open()))
    assert told["target_weights"] == "full"


def test_a_format_without_its_quality_stands_beside_no_other(tmp_path: Path) -> None:
    found = reported(tmp_path, manifest("int4"), *PACE)
    assert list(cells(found)) == ["full", "int4"]
    (said,) = [warning for warning in found.warnings if "quality" in warning]
    assert "int8 weights" in said and "int4" not in said and "`uv run infer.py quality --formats int8`" in said


def test_without_any_quality_there_is_no_table_and_a_sentence_in_every_form(tmp_path: Path) -> None:
    found = reported(tmp_path, manifest(), *PACE)
    assert found.formats == ()
    screen = io.StringIO()
    found.print(Console(file=screen, width=300))
    forms = [(found.folder / name).read_text() for name in ("report.md", "index.html", "summary.tex")]
    for text in (screen.getvalue(), *forms):
        assert "uv run infer.py quality" in text and "--formats int8,int4" in text.replace("{}", "")
        assert "Formats under" not in text


def test_rounded_formats_alone_have_no_ratio_to_what_is_not_there(tmp_path: Path) -> None:
    found = cells(reported(tmp_path, manifest("int8", "int4"), "int8", "int4"))
    assert list(found) == ["int8", "int4"]
    assert [row[5] for row in found.values()] == [row[7] for row in found.values()] == ["–", "–"]


def test_one_format_is_reported_as_ever(tmp_path: Path) -> None:
    stored = manifest(fixed={"machine": {"cpu": "x"}, "target": {"name": "m", "dtype": "float32", "stored": "int8"}})
    found = reported(tmp_path, stored, "int8")
    assert set(found.summary["processor"]) == {"greedy"} and not found.formats
    assert not [warning for warning in found.warnings if "quality" in warning]
    assert "target m (float32, int8 weights)" in (found.folder / "report.md").read_text()


def test_older_files_without_the_column_are_of_full_weights(tmp_path: Path) -> None:
    path = write_results(tmp_path / "r.csv", runs("full"))
    rows = list(csv.DictReader(path.open()))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [name for name in rows[0] if name != "target_weights"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    assert set(summarise(load_results(path))["target_weights"]) == {"full"}


def test_a_format_without_ar_has_no_speedup_and_says_so(tmp_path: Path) -> None:
    records = [one for one in runs("full", "int8") if one.target_weights == "full" or one.method != "target"]
    records = [one if one.target_weights == "full" else replace(one, speedup=None) for one in records]
    frame = load_results(write_results(tmp_path / "r.csv", records))
    summary = summarise(frame)
    lone = summary[(summary["target_weights"] == "int8") & (summary["configuration"] == SD.name)]
    assert lone["speedup"].isna().all() and lone["ratio_of_sums"].isna().all()
    assert any("No row of 'target' in int8" in said for said in cautions(frame))
    assert formats_section(frame, manifest("int8")) is not None


def test_lossy_runs_and_the_control_are_never_the_best(tmp_path: Path) -> None:
    lossy = Configuration("medusa")
    records = [*runs("full", "int8")]
    records += [
        ran(lossy, f"p{place}", 0.1, lossless=False, target_weights=name)
        for place in range(8)
        for name in ("full", "int8")
    ]
    section = formats_section(load_results(write_results(tmp_path / "r.csv", records)), manifest("int8"))
    assert section is not None
    best = section.tables[0].notes[0]
    assert NGRAM.name in best and "medusa" not in best and CONTROL not in best


def test_one_answer_is_drawn_in_one_format(tmp_path: Path) -> None:
    """Whose lines those of the others stand between."""
    path = write_trace(tmp_path / "r.trace.jsonl", [SD])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    both = [line | {"target_weights": name} for line in lines for name in ("full", "int8")]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in both))
    drawn = trace_figure(path)
    assert not isinstance(drawn, str)
    assert {len(line.get_xdata()) for line in drawn[0].axes[0].lines} == {20, 0}  # the entropy's is on the right


@pytest.mark.parametrize("weights", ["full", "int8", None])
def test_records_of_rounded_weights_say_where_their_quality_is_told(weights: str | None) -> None:
    screen = io.StringIO()
    show(Console(file=screen, width=200), [ran(PLAIN, "p1", 10.0, target_weights=weights)])
    assert ("uv run infer.py quality --formats int8" in screen.getvalue()) == (weights == "int8")


def test_each_load_has_a_table_of_its_own(tmp_path: Path) -> None:
    once = list(runs("full", "int8"))
    many = [replace(one, batch=4, tokens_per_s=2 * (one.tokens_per_s or 0)) for one in once[:-2]]
    frame = load_results(write_results(tmp_path / "r.csv", [*once, *many]))
    section = formats_section(frame, manifest("int8"))
    assert section is not None
    titles = [table.title for table in section.tables]
    assert titles == ["Formats under greedy, 1 at a time", "Formats under greedy, 4 at a time"]
    alone, together = ({row[0]: row for row in table.rows} for table in section.tables)
    for name in ("full", "int8"):
        assert float(together[name][5]) == pytest.approx(2 * float(alone[name][5]), rel=0.02)
