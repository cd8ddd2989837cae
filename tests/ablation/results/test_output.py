"""The files that a run may write into, and those that it leaves alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ablation.results.manifest import differences_of
from ablation.results.store import Store, count_rows, read_finished
from ablation.results.table import columns
from ablation.run.results_file import Files, check_output
from tests.ablation.mock_engine import mock_plan
from tests.ablation.playing import play, results_file, rows
from tests.refusals import refused


def test_another_plan_may_not_add_rows(whole: Path) -> None:
    before = whole.read_bytes()
    for other, quoted in (
        (replace(mock_plan(), seeds=(1, 3)), ("grid.seeds", [1, 2], [1, 3])),
        (mock_plan(prompts=3), ("grid.prompts.p2", "null")),
        (
            replace(mock_plan(), values={**mock_plan().values, "length": 7}),
            ("grid.configurations.target.length", 100, 7),
        ),
    ):
        with refused("--resume", "--out", *quoted):
            play(whole, other, resume=True)
        assert whole.read_bytes() == before


def test_a_second_runner_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    with Store(out, columns()), refused(out, "--out"):
        play(out)
    play(out)


def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    for content in ("name,age\nann,3\n", "a sentence", 'an "open quote\nand more\n'):
        out = tmp_path / "thesis.csv"
        out.write_text(content)
        for options in ({"resume": True}, {}):
            with refused(out, "--out"):
                play(out, **options)
        assert out.read_text() == content


def test_rows_without_a_manifest_or_twice_are_refused(whole: Path) -> None:
    lines = whole.read_text().splitlines(keepends=True)
    whole.write_text("".join([*lines, *lines[1:3]]))
    with refused(whole, 1, "twice"):
        play(whole, resume=True)
    whole.write_text("".join(lines))
    Files(whole).manifest.unlink()
    with refused(whole, "manifest"):
        play(whole, resume=True)


@pytest.mark.parametrize("cells", [2, 4])
def test_a_row_of_too_few_or_too_many_cells_is_refused_by_its_number(tmp_path: Path, cells: int) -> None:
    path = tmp_path / "r.csv"
    path.write_text("a,b,c\n1,2,3\n" + ",".join("4567"[:cells]) + "\n", encoding="utf-8")
    with refused(path, 3, cells):
        read_finished(path, ("a", "b", "c"))


def test_overwrite_starts_anew(whole: Path) -> None:
    play(whole, mock_plan(prompts=1))
    assert len(rows(whole)) == mock_plan(prompts=1).generations
    assert len(json.loads(Files(whole).manifest.read_text())["runs"]) == 1


@pytest.mark.parametrize(
    ("name", "flags", "quoted"),
    [
        ("there.csv", (False, False), ("there.csv", "--resume", "--overwrite")),
        ("there.csv", (True, True), ("--resume", "--overwrite")),
        ("mine.csv", (False, True), ("mine.csv", "results file")),
        ("new.txt", (False, False), ("new.txt", ".csv")),
        ("no/such/folder.csv", (False, False), ("no/such", "folder")),
        ("", (False, False), ("--out", "folder")),
    ],
)
def test_bad_outputs_are_refused_early(
    tmp_path: Path, name: str, flags: tuple[bool, bool], quoted: tuple[str, ...]
) -> None:
    (tmp_path / "there.csv").write_text(",".join(columns()) + "\n")
    (tmp_path / "mine.csv").write_text("name,age\n")
    with refused(*quoted):
        check_output(tmp_path / name if name else tmp_path, *flags)


def test_a_full_disk_keeps_the_rows_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing fails half-way through the third row."""
    out = tmp_path / "r.csv"
    store = Store(out, ("a", "b"))
    with store:
        store.append({"a": "1", "b": "x\ny"})
        before = out.read_bytes()
        assert store._file is not None
        file = store._file

        class Full:
            def write(self, data: bytes) -> int:
                file.write(data[:2])
                raise OSError(28, "No space left on device")

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

        monkeypatch.setattr(store, "_file", Full())
        with refused(out, "No space left on device", "--resume"):
            store.append({"a": "2", "b": "long enough"})
        assert out.read_bytes() == before
        monkeypatch.setattr(store, "_file", file)
        store.append({"a": "3", "b": "z"})
    with Store(out, ("a", "b")) as again:
        assert again.rows == [{"a": "1", "b": "x\ny"}, {"a": "3", "b": "z"}]


def test_a_link_is_the_file_it_leads_to(whole: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.csv"
    link.symlink_to(whole)
    with Store(whole, columns()), refused(whole, "--out"):
        play(link, resume=True)
    assert play(link, resume=True).rows == 0


def test_overwriting_loses_nothing_before_the_first_row(whole: Path) -> None:
    before = whole.read_bytes()
    with results_file(whole):
        pass
    assert whole.read_bytes() == before


def test_a_run_that_made_nothing_leaves_nothing(tmp_path: Path) -> None:
    with results_file(tmp_path / "new.csv"):
        pass
    assert not (tmp_path / "new.csv").exists()


def test_foreign_neighbours_are_left_alone(tmp_path: Path) -> None:
    for name, kind in (("r.manifest.json", "manifest"), ("r.trace.jsonl", "trace")):
        own = tmp_path / name
        own.write_text('{"mine": 2}\n')
        with refused(own, kind):
            play(tmp_path / "r.csv", trace=True)
        assert own.read_text() == '{"mine": 2}\n' and not (tmp_path / "r.csv").exists()
        own.unlink()


def test_a_new_run_drops_the_trace_of_the_old_one(whole: Path) -> None:
    assert Files(whole).trace.exists()
    play(whole)
    assert not Files(whole).trace.exists()


@pytest.mark.parametrize("text", ["a\rb", "\r", "a\r\nb", '"\r"', "a\nb"])
def test_any_line_end_in_an_answer_comes_back(tmp_path: Path, text: str) -> None:
    names = ("id", "text")
    with Store(tmp_path / "r.csv", names) as store:
        store.append({"id": "1", "text": text})
        store.append({"id": "2", "text": "after"})
    with Store(tmp_path / "r.csv", names) as store:
        assert [row["text"] for row in store.rows] == [text, "after"]
    assert count_rows(tmp_path / "r.csv") == 2
    read = pd.read_csv(tmp_path / "r.csv", dtype=str)
    assert list(read["text"]) == [text, "after"]


def test_what_differs_far_behind_is_shown() -> None:
    said = "Good morning! How would you describe your perfect Sunday, from the morning until the night?"
    (line,) = differences_of({"a": [said, 8]}, {"a": [said, 16]})
    assert line == 'a: ...l the night?", 8] then, ...l the night?", 16] now'
    (line,) = differences_of({"a": "x" * 100}, {"a": "y" * 100})
    assert line == f'a: "{"x" * 56}... then, "{"y" * 56}... now'
