"""Reports whose plots are made and not drawn, which takes most of a report's time."""

from pathlib import Path

import pytest

from ablation.report.plots.figure import Plot

KINDS = ("png", "svg", "pdf")


def leave_undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots are laid out and have files with nothing in them: tests/ablation/report/test_report_files.py draws."""

    def save(self: Plot, folder: Path) -> None:
        for kind in KINDS:
            (folder / f"{self.stem}.{kind}").write_bytes(b"not drawn")

    monkeypatch.setattr(Plot, "save", save)
