"""Draws the README's two pictures: a real session, moving at its own pace, and a bar plot of recorded speedups.

uv run scripts/draw_readme.py docs
"""

import utils.device.threads  # noqa: F401

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from repl.answers import Answers
    from repl.session import Session

PROMPT = "Why do leaves change colour in autumn?"
RESULTS = Path(__file__).parent.parent / "docs" / "results" / "trained" / "results.csv"
BARS = {
    "auto max_cached_requests=0, survival_remember=off": "Auto",
    "suffix max_cached_requests=0": "Suffix decoding",
    "mtp gamma=3": "MTP head",
    "hydra gamma=2": "Hydra heads",
    "eagle gamma=2": "EAGLE head",
    "speculative gamma=1": "SD, distilled drafter",
    "control": "AR again: the noise",
}
"""Six methods and the control of the plan `trained`, by what the picture calls them."""
WIDTH, LINE, CHAR = 100, 24.4, 12.2
_LEFT_OUT = re.compile(r' (?:clip-path|textLength)="[^"]*"|<text [^>]*>\n</text>')
FRAME_S = 1 / 12
HOLD_S = 8.0


def main(
    folder: Annotated[Path, typer.Argument(help="where live-view.svg and speedups.png go")],
    prompt: Annotated[str, typer.Option(help="what is asked")] = PROMPT,
    length: Annotated[int, typer.Option(help="new tokens of each answer")] = 48,
    plot_only: Annotated[bool, typer.Option(help="draw the bars alone")] = False,
) -> None:
    """Run what a session begins with, every row exact, and draw it; then the bars of the run `trained`."""
    draw_bars(RESULTS, folder / "speedups.png")
    if plot_only:
        return
    from repl.loading import Loading
    from repl.session import Session
    from sampling.loading.pairs import load_pair

    session = Session(Loading(load_pair))
    session.assign("length", str(length))
    session.loading.start()
    recording = record(session, prompt)
    (folder / "live-view.svg").write_text(recording.svg(), encoding="utf-8")


@dataclass
class Piece:
    """A part of the screen: when it is seen, from which line on. until None: it stays."""

    text: "Text | str"
    line: int
    since: float
    until: float | None = None


class Recording:
    """A screen that grows downwards, as pieces with times in seconds."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.lines = 0

    def add(self, text: "Text", since: float) -> None:
        """Something that stays, below what is there."""
        self.pieces.append(Piece(text, self.lines, since))
        self.lines += _height(text)

    def frames(self, seen: list[tuple[float, "Text"]], end: float) -> None:
        """What changes below what is there, at most one picture each `FRAME_S`."""
        kept = seen[:1]
        for when, text in seen[1:]:
            if when - kept[-1][0] >= FRAME_S:
                kept.append((when, text))
        ends = [when for when, _ in kept[1:]] + [end]
        self.pieces += [Piece(text, self.lines, when, until) for (when, text), until in zip(kept, ends, strict=True)]

    def svg(self) -> str:
        """An animated picture without scripts; where nothing moves, its last state is seen."""
        whole = max(piece.since for piece in self.pieces) + HOLD_S
        drawn = [_group(number, piece, whole) for number, piece in enumerate(self.pieces)]
        styles = "\n".join(style for style, _ in drawn)
        groups = "\n".join(group for _, group in drawn)
        width, height = round(WIDTH * CHAR + 30), round(self.lines * LINE + 60)
        return f"""<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
text {{ font-family: "Fira Code", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 20px; }}
g.frame {{ visibility: hidden; }}
@media (prefers-reduced-motion: no-preference) {{
{styles}
}}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#181a1f"/>
<text x="15" y="30" fill="#8a919e">uv run infer.py</text>
<g transform="translate(15, 50)">
{groups}
</g>
</svg>
"""


def record(session: "Session", prompt: str) -> Recording:
    """Every run in turn, round by round, then the table and who won. Raises `ValueError` where a row is not exact."""
    from repl.screen import tables

    recording, begun = Recording(), time.perf_counter()
    warm, answers = (session.ask(prompt) for _ in range(2))
    for name in answers.runs:
        for _ in warm.run(name):
            pass
    session.engine.forget()
    begun = time.perf_counter()
    recording.add(Text.assemble(("> ", "bold"), prompt, "\n"), 0.0)
    for name in answers.runs:
        whole, seen = _watched(answers, name, session, begun)
        end = time.perf_counter() - begun
        recording.frames(seen, end)
        recording.add(whole, end)
    rows = tables.rows(answers.comparison, answers.finished(), answers.verdicts(), answers.runs)
    if wrong := [row.title for row in rows if row.divergence is not None and row.divergence.verdict != "exact"]:
        raise ValueError(f"not exact: {', '.join(wrong)}")
    console = Console(record=True, width=WIDTH, file=sys.stderr, force_terminal=True, highlight=False)
    console.print(tables.comparison_table(rows, console))
    for sentence in tables.outcome(rows):
        console.print(Text(sentence, "bold"))
    recording.add(Text.from_ansi(console.export_text(styles=True).rstrip("\n")), time.perf_counter() - begun)
    return recording


def _watched(
    answers: "Answers", name: str, session: "Session", begun: float
) -> tuple["Text", list[tuple[float, "Text"]]]:
    """The whole answer under its heading, and each round's picture with its time."""
    from repl.screen.live import coloured, numbers
    from sampling.measure.answer import Answer
    from sampling.measure.metrics import RunMetrics
    from utils.events import AnyRound

    answer, seen, account = Answer(session.engine.text), [], RunMetrics()
    for event, account in answers.run(name):
        if isinstance(event, AnyRound):
            answer.add(event)
            facts = " · ".join(numbers(account, event))
            title = answers.title(name)
            seen.append((time.perf_counter() - begun, _screen(coloured(answer), title, facts)))
    answer.finish()
    facts = " · ".join([f"{account.new_tokens} tokens", *numbers(account, None)])
    return _screen(coloured(answer), answers.title(name), facts), seen


def _screen(text: "Text", title: str, facts: str) -> "Text":
    heading = Text.assemble((title, "bold"), "  ", (facts, "dim"))
    heading.truncate(WIDTH)
    return Text.assemble(heading, "\n", Text(" ").join(text.split("\n")), "\n")


def _height(text: "Text") -> int:
    console = Console(width=WIDTH)
    return len(text.wrap(console, WIDTH))


def _group(number: int, piece: Piece, whole: float) -> tuple[str, str]:
    """The rule that shows a piece at its time, and its lines as SVG."""
    console = Console(record=True, width=WIDTH, file=open("/dev/null", "w"), force_terminal=True, highlight=False)  # noqa: PTH123, SIM115
    console.print(piece.text)
    parts = console.export_svg(code_format="{styles}\x00{backgrounds}{matrix}", unique_id=f"p{number}").split("\x00")
    colours, drawn = parts[0], _LEFT_OUT.sub("", parts[1])
    since, until = (100 * (when or 0) / whole for when in (piece.since, piece.until))
    shown = f"0%{{visibility:hidden}} {since:.2f}%{{visibility:visible}}"
    if piece.until is not None:
        shown += f" {until:.2f}%{{visibility:hidden}}"
    rule = f"@keyframes k{number}{{{shown}}} #g{number}{{animation:k{number} {whole:.2f}s step-end infinite}}"
    kind = ' class="frame"' if piece.until is not None else ""
    place = f'transform="translate(0, {piece.line * LINE:.1f})"'
    return rule, f'<g id="g{number}"{kind} {place}><style>{colours}</style>{drawn}</g>'


def draw_bars(results: Path, file: Path) -> None:
    """A bar a configuration of `BARS`: its median speedup over AR with the interval of that median."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from ablation.report.load import load_results
    from ablation.report.tables.summary import ALL, summarise

    table = summarise(load_results(results))
    table = table[table["task"] == ALL].set_index("configuration").loc[list(BARS)[::-1]]
    middle, low, high = (table[name] for name in ("speedup", "speedup_low", "speedup_high"))
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    colours = ["#1f6b51" if verdict == "faster" else "#73797f" for verdict in table["against_ar"]]
    axis.barh(list(BARS.values())[::-1], middle, color=colours, height=0.66)
    axis.errorbar(middle, range(len(BARS)), xerr=[middle - low, high - middle], fmt="none", ecolor="#333", capsize=3)
    for place, value in enumerate(middle):
        axis.text(0.04, place, f"{value:.2f}x", va="center", color="white", fontsize=9, fontweight="bold")
    axis.axvline(1.0, color="#333", linewidth=0.8, linestyle="--")
    prompts = int(table["prompts"].max())
    axis.set_xlabel(f"median speedup over plain decoding, {prompts} prompts, with its 95 % interval", fontsize=9)
    axis.set_title("SmolLM2-135M, greedy, two CPU cores. Green: faster by the corrected test", fontsize=10, loc="left")
    axis.tick_params(labelsize=9)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    figure.savefig(file, dpi=160)


if __name__ == "__main__":
    typer.run(main)
