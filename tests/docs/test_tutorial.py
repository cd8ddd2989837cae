"""The tutorial runs from top to bottom in a kernel of its own, on the embedded pair, and shows what it says."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.docs.pages import ROOT

TUTORIAL = ROOT / "docs" / "tutorial.ipynb"
MEASURE, CONTROL = "AR (target)", "AR again (control)"
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_P_VALUE = re.compile(r"^(.+): smallest p-value (\S+), (rejected|not rejected)$", flags=re.MULTILINE)


def _read() -> NotebookNode:
    return nbformat.read(TUTORIAL, as_version=4)


@pytest.fixture(scope="module")
def cells() -> list[NotebookNode]:
    """The code cells with what they showed; a cell that raises ends it."""
    notebook = _read()
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": TUTORIAL.parent}}).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _shown(cells: list[NotebookNode], kind: str) -> list[str]:
    """What cells showed of a kind, such as `text/html`."""
    return [output.data[kind] for cell in cells for output in cell.outputs if kind in output.get("data", {})]


def _printed(cells: list[NotebookNode]) -> str:
    outputs = (output for cell in cells for output in cell.outputs)
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")


def _tables(cells: list[NotebookNode]) -> list[dict[str, list[str]]]:
    """Each table that names the measure: a method's cells by its name."""
    rows = [re.findall(r"<tr>(.*?)</tr>", html, flags=re.DOTALL) for html in _shown(cells, "text/html")]
    tables = [[re.findall(r"<td>(.*?)</td>", row) for row in table] for table in rows]
    by_name = [{cells[0]: cells[1:] for cells in table if cells} for table in tables]
    return [table for table in by_name if MEASURE in table]


def test_each_comparison_says_exact_of_every_method_and_against_what(cells: list[NotebookNode]) -> None:
    tables = _tables(cells)
    assert [len(table) for table in tables] == [5, 4]
    for table in tables:
        assert ([*table][:1], [*table][-1:]) == ([MEASURE], [CONTROL])
        assert float(table[MEASURE][1]) == 1.0
        assert {figures[-1] for name, figures in table.items() if name != MEASURE} == {"exact"}
    verdicts = next(ast.literal_eval(text) for text in _shown(cells, "text/plain") if text.startswith("{"))
    assert set(verdicts) == set(tables[0]) - {MEASURE} and set(verdicts.values()) == {"exact"}


def test_the_readers_own_method_is_compared_and_drafts(cells: list[NotebookNode]) -> None:
    kept = float(_tables(cells)[1]["As before"][3])
    assert 0.0 < kept < 1.0


def test_laws_are_kept_and_each_planted_fault_is_seen(cells: list[NotebookNode]) -> None:
    told = _P_VALUE.findall(_printed(cells))
    assert [(name, verdict) for name, _, verdict in told] == [
        ("ngram", "not rejected"),
        ("planted fault", "rejected"),
        ("as_before", "not rejected"),
        ("planted fault", "rejected"),
    ]
    assert all((float(p) < 1e-6) == (verdict == "rejected") for _, p, verdict in told)


def test_rounds_are_coloured_and_plots_are_drawn(cells: list[NotebookNode]) -> None:
    coloured = [html for html in _shown(cells, "text/html") if "<span" in html]
    assert len(coloured) == 2 and all("color: green" in html and "line-through" in html for html in coloured)
    assert "accepted" in _shown(cells, "text/plain")[0] and "rejected" in _shown(cells, "text/plain")[0]
    assert len(_shown(cells, "image/png")) == 1


def test_it_is_stored_without_outputs() -> None:
    code = [cell for cell in _read().cells if cell.cell_type == "code"]
    assert code and not any(cell.outputs or cell.execution_count for cell in code)


def test_its_links_lead_somewhere() -> None:
    text = [cell.source for cell in _read().cells if cell.cell_type == "markdown"]
    links = [link.partition("#")[0] for source in text for link in _LINK.findall(source)]
    assert links and not [link for link in links if not Path(TUTORIAL.parent, link).exists()]
