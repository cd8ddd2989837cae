"""Draws the figures of the book: theory from the formulas, practice from the recorded runs in docs/results.

uv run scripts/draw_book.py
"""

import utils.device.threads  # noqa: F401

import matplotlib

from ablation.book_figures import practice, theory
from utils.provenance import ROOT

OUT = ROOT / "docs" / "book" / "figures"

FIGURES = {
    "forward_cost": theory.draw_forward_cost,
    "overlap": theory.draw_overlap,
    "expected_tokens": theory.draw_expected_tokens,
    "speedup": theory.draw_speedup,
    "best_gamma": theory.draw_best_gamma,
    "tree": theory.draw_tree,
    "positions": practice.draw_positions,
    "egag": practice.draw_egag,
    "predicted": practice.draw_predicted,
    "tokens_and_speed": practice.draw_tokens_and_speed,
}


def main() -> None:
    """Write every figure as SVG; the same inputs give the same files."""
    matplotlib.rcParams.update({"svg.hashsalt": "book", "font.size": 9.5, "savefig.facecolor": "white"})
    OUT.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        draw().savefig(OUT / f"{name}.svg", metadata={"Date": None})
        print(f"figures/{name}.svg")


if __name__ == "__main__":
    main()
