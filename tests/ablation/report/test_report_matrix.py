"""The matrix of a report on planted cells: what pays, what does not, and what cannot be told."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import Patch

from ablation.plan.grid import CONTROL, Configuration
from ablation.report.matrix.cells import Matrix, mark_of, matrix_of
from ablation.report.matrix.picture import matrix_plot
from ablation.report.matrix.section import matrix_report
from ablation.report.plots.heat import SHADES
from ablation.report.tables.paired import judge
from ablation.report.write import Report, write_report
from ablation.results.manifest import manifest_path
from ablation.results.record import Record
from tests.ablation.frames import CLEAN, NGRAM, SD, ran, table
from tests.ablation.synthetic import AGAIN, GREEDY, NUCLEUS, PLAIN, write_results

LOSSY_RULE = Configuration("speculative", (("gamma", 2),))
# How much faster each is than plain decoding, by its setting and the kind of text; 12 prompts of each kind.
PACE = {
    (SD, "full", 1, "code"): 1.5,
    (SD, "full", 1, "chat"): 0.8,
    (SD, "full", 8, "code"): 1.02,
    (SD, "full", 8, "chat"): 1.0,
    (NGRAM, "full", 1, "code"): 2.0,
    (NGRAM, "full", 1, "chat"): 1.0,
    (NGRAM, "full", 8, "code"): 1.3,
    (NGRAM, "full", 8, "chat"): 0.9,
}
# Of a prompt, around its cell's figure: they stand alike on both sides of 1, with sizes of their own.
NARROW = [1 + sign * (step + 0.5) / 1000 for step in range(6) for sign in (1, -1)]
WIDE = [1 + sign * (step + 0.5) / 10 for step in range(6) for sign in (1, -1)]


def runs(prompts: int = 12) -> Iterator[Record]:
    """Plain decoding, its control and two methods, on two kinds of text, one and eight at a time."""
    for batch in (1, 8):
        for kind in ("code", "chat"):
            for place in range(prompts):
                # Plain decoding is as fast as its setting: nothing may be compared across settings.
                plain_s = 10.0 * batch
                about: dict[str, Any] = {"batch": batch, "task": kind, "ar_s": plain_s, "processor": GREEDY}
                exact = {"divergence_verdict": "exact"}
                name = f"{kind}-{place:02}"
                start = {"started": f"2026-01-02T03:{batch:02}:00+00:00"}
                later = {"started": f"2026-01-02T03:{batch + 4:02}:00+00:00"}
                yield ran(PLAIN, name, plain_s, **about, **start)
                yield ran(AGAIN, name, plain_s / NARROW[place % 12], **about, **later, **exact)
                for method in (SD, NGRAM):
                    pace = PACE[method, "full", batch, kind]
                    spread = WIDE if (method, batch, kind) == (NGRAM, 1, "chat") else NARROW
                    bug = (method, batch, kind, place) == (NGRAM, 8, "code", 3)
                    verdict = {"divergence_verdict": "BUG" if bug else "tie" if place == 5 else "exact"}
                    yield ran(method, name, plain_s / pace / spread[place % 12], **about, **later, **verdict)


@pytest.fixture
def matrix(tmp_path: Path) -> Matrix:
    found = matrix_of(table(tmp_path, *runs()))
    assert found is not None
    return found


def marks(matrix: Matrix) -> dict[tuple[str, int, str], str]:
    return {(cell.configuration, cell.batch, cell.task): cell.mark for cell in matrix.cells}


def test_planted_cells_are_called_what_they_are(matrix: Matrix) -> None:
    assert marks(matrix) == {
        (SD.name, 1, "code"): "pays",
        (SD.name, 1, "chat"): "slower",
        (SD.name, 8, "code"): "pays",
        (SD.name, 8, "chat"): "keeps pace",
        (NGRAM.name, 1, "code"): "pays",
        (NGRAM.name, 1, "chat"): "open",
        (NGRAM.name, 8, "code"): "LOSSY",
        (NGRAM.name, 8, "chat"): "slower",
        **{(CONTROL, batch, kind): "noise" for batch in (1, 8) for kind in ("code", "chat")},
    }


def test_each_cell_is_over_the_control_of_its_own_setting(matrix: Matrix) -> None:
    found = {(cell.configuration, cell.batch, cell.task): cell for cell in matrix.cells}
    for (method, _, batch, kind), pace in PACE.items():
        cell = found[method.name, batch, kind]
        assert cell.speedup == pytest.approx(pace, rel=0.01) and cell.prompts == 12
        assert cell.low < cell.speedup < cell.high


def test_all_cells_are_one_family(matrix: Matrix) -> None:
    """8 questions of 12 prompts: if all agree, p is 2 / 2^12, and the smallest is corrected eightfold."""
    assert matrix.asked == 8 and matrix.needed == 9
    found = next(cell for cell in matrix.cells if cell.mark == "pays")
    assert found.p == pytest.approx(2 / 2**12) and found.p_holm == pytest.approx(8 * 2 / 2**12)
    control = next(cell for cell in matrix.cells if cell.configuration == CONTROL)
    assert control.p_holm == control.p, "plain decoding once more is no question of the family"


def test_settings_stand_in_order_however_turns_rotated(tmp_path: Path) -> None:
    played = [
        (8, "full", NUCLEUS),
        (8, "int8", NUCLEUS),
        (1, "int8", GREEDY),
        (1, "full", GREEDY),
        (1, "full", NUCLEUS),
    ]
    records = [
        ran(one, f"p{place}", 10.0, batch=batch, target_weights=weights, processor=processor)
        for batch, weights, processor in played
        for one in (PLAIN, SD)
        for place in range(2)
    ]
    found = matrix_of(table(tmp_path, *records))
    assert found is not None
    order = dict.fromkeys((cell.processor, cell.batch, cell.target_weights) for cell in found.cells)
    nucleus = found.cells[0].processor
    assert list(order) == [
        (nucleus, 8, "full"),
        (nucleus, 8, "int8"),
        (nucleus, 1, "full"),
        ("greedy", 1, "full"),
        ("greedy", 1, "int8"),
    ]


def test_too_few_prompts_say_so(tmp_path: Path) -> None:
    report = matrix_report(table(tmp_path, *runs(8)))
    assert report is not None and report.matrix.needed == 9
    named = {cell.mark for cell in report.matrix.cells}
    assert named == {"too few", "LOSSY", "noise"}
    (shown,) = report.section.tables
    assert "too few (8 prompts)" in shown.rows[0][1] and "[" in shown.rows[0][1]


def test_the_floor_is_of_the_interval_and_not_of_the_median() -> None:
    """The test may say faster where some prompts lose much: such a cell does not pay."""
    logs = [0.5 + step / 100 for step in range(12)] + [-0.06 - step / 1000 for step in range(9)]
    (found,) = judge([np.array(logs)])
    assert found.verdict == "faster" and found.low < 0.95 < found.ratio
    assert mark_of(found, 9) == "open" and mark_of(found, 22) == "too few"


def test_a_table_says_the_texts_and_how_far_apart_runs_were(tmp_path: Path) -> None:
    report = matrix_report(table(tmp_path, *runs()))
    assert report is not None
    (shown,) = report.section.tables
    assert shown.headers == ("method and setting", "code", "chat", "text")
    rows = {row[0]: row for row in shown.rows}
    assert len(rows) == 3 * 2
    assert rows[f"SD ({SD.name.split()[0]}) gamma=4: full weights, greedy, 1 at a time"][-1] == "22 exact, 2 tie"
    (wrong,) = [row for row in shown.rows if "LOSSY" in row[1]]
    assert wrong[-1] == "21 exact, 2 tie, 1 LOSSY" and "pays" not in wrong[1]
    assert report.said == "8 cells of the matrix: 3 pays, 1 keeps pace, 2 slower, 1 open, 1 LOSSY."
    assert any("4.0 minutes apart (median), 4.0 at most" in note for note in shown.notes)


def test_sampled_cells_say_by_which_test(tmp_path: Path) -> None:
    rows = [
        ran(one, f"p{place}", seconds, task="code", processor=processor, lossless=one != LOSSY_RULE)
        for processor in (GREEDY, NUCLEUS)
        for place in range(9)
        for one, seconds in ((PLAIN, 10.0), (SD, 5.0 - place / 100), (LOSSY_RULE, 4.0 - place / 100))
    ]
    report = matrix_report(table(tmp_path, *rows))
    assert report is not None
    (shown,) = report.section.tables
    assert [row[-1] for row in shown.rows] == [
        "LOSSY: its accept rule", "9 not compared", "LOSSY: its accept rule", "law",
    ]  # fmt: skip
    assert [cell.mark for cell in report.matrix.cells] == ["LOSSY", "pays", "LOSSY", "pays"]
    assert any("selftest" in note for note in shown.notes)


def test_one_setting_is_no_matrix(tmp_path: Path) -> None:
    assert matrix_report(table(tmp_path, ran(PLAIN, "p0", 10.0), ran(SD, "p0", 5.0))) is None
    plain_alone = [ran(PLAIN, "p0", 10.0, processor=processor) for processor in (GREEDY, NUCLEUS)]
    assert matrix_report(table(tmp_path, *plain_alone)) is None


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Report:
    results = write_results(tmp_path_factory.mktemp("matrix") / "r.csv", runs())
    manifest_path(results).write_text(json.dumps(CLEAN), encoding="utf-8")
    return write_report(results)


def test_a_report_has_one_table_one_picture_and_a_file(written: Report) -> None:
    text = (written.folder / "report.md").read_text(encoding="utf-8")
    assert text.index("## Matrix") < text.index("## Under ")
    assert "](matrix.png)" in text
    assert all((written.folder / f"matrix.{ending}").stat().st_size for ending in ("png", "svg", "pdf"))
    cells = pd.read_csv(written.folder / "matrix.csv")
    assert len(cells) == 12 and set(cells["mark"]) >= {"pays", "slower", "open", "LOSSY", "noise"}
    assert written.answers[-1].startswith("8 cells of the matrix: 3 pays")


def test_a_sign_stands_beside_each_figure_so_that_no_colour_has_to_be_told_apart(matrix: Matrix) -> None:
    (axis,) = matrix_plot(matrix).figure.axes
    assert [text.get_text() for text in axis.texts] == [
        "full weights",
        *("1.50 ✓", "0.80 ▼", "1.02 ✓", "1.00 ="),
        *("2.00 ✓", "1.00 ?", "1.30 ✗", "0.90 ▼"),
        *("1.00", "1.00", "1.00", "1.00"),
    ]
    coloured = {text.get_text() for text, face in zip(axis.texts[1:], axis.patches, strict=True) if shaded(face)}
    assert coloured == {"1.50 ✓", "0.80 ▼", "1.02 ✓", "1.00 =", "2.00 ✓", "0.90 ▼"}
    assert [label.get_text() for label in axis.get_xticklabels()] == ["code", "chat"] * 2


def shaded(face: Patch) -> bool:
    """Whether a cell is painted, however faintly."""
    return tuple(face.get_facecolor()) != SHADES(0.5)


def test_many_columns_take_several_panels(tmp_path: Path) -> None:
    kinds = [f"kind {place:02}" for place in range(13)]
    rows = [
        ran(one, f"{kind}-{place}", seconds, task=kind, batch=batch, processor=GREEDY)
        for batch in (1, 8)
        for kind in kinds
        for place in range(2)
        for one, seconds in ((PLAIN, 10.0), (SD, 5.0 - place / 100))
    ]
    found = matrix_of(table(tmp_path, *rows))
    assert found is not None
    axes = matrix_plot(found).figure.axes
    assert [len(axis.get_xticklabels()) for axis in axes] == [12, 1, 12, 1]
