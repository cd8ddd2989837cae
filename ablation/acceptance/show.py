"""Acceptance along texts as tables for people."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablation.acceptance.figures import TOPS, AcceptanceFigure, pick
from ablation.acceptance.found import Found
from sampling.measure.acceptance.places import KINDS
from utils.numbers.intervals import FEWEST
from utils.text import counted

_BY_DEPTH = ("conditional", "first draft there", "everywhere", "unconditional", "drafted")
_MEANING = (
    "conditional: of drafts whose predecessors were accepted. first draft there: how often a first draft is accepted "
    "at the same places, since survivors stand at easy ones. everywhere: at all places, behind the text's own tokens. "
    "unconditional: this draft and all before it, from any place. Intervals are 95 %, over texts."
)
_LENGTHS = (
    "from anywhere: a round begins at any place, whatever the draft length. in rounds: rounds of this length along the "
    "text, each where the last one failed. first draft: of these rounds."
)
_PLACES = {
    "output": "tokens of the answer before",
    "context": "tokens before, prompt included",
    "phase": "phase of the text",
    "turn": "turn of the conversation",
}


def show(found: Found, console: Console) -> None:
    """All tables, then what to distrust."""
    names = list(found.along.mets)
    console.print(_depths(found, names), Text(_MEANING, "dim"))
    console.print(_lengths(found, names), Text(_LENGTHS, "dim"))
    for table in (*_wider(found, names), *_by_place(found, names), *_pairs(found), *_engine(found), *_controls(found)):
        console.print(table)
    if found.texts < FEWEST:
        console.print(Text(f"{counted(found.texts, 'text')}: no interval of fewer than {FEWEST}", "dim"))


def _table(title: str, *heads: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="dim")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place == 0 else "right")
    return table


def _cell(found: Sequence[AcceptanceFigure], digits: int = 3, ends: bool = True) -> str:
    """A figure with its interval, or a dash."""
    if not found or found[0].value is None:
        return "-"
    one = found[0]
    told = f" [{one.low:.{digits}f}, {one.high:.{digits}f}]" if ends and one.low is not None else ""
    return f"{one.value:.{digits}f}{told}"


def _depths(found: Found, names: Sequence[str]) -> Table:
    places = int(sum(len(places) for places in found.along.places))
    title = f"Acceptance by depth, {counted(found.texts, 'text')}, {places:,} places"
    table = _table(title, "drafter", "depth", *_BY_DEPTH)
    for name in names:
        for depth in range(1, found.along.depth + 1):
            cells = [
                _cell(
                    pick(found.figures, figure, drafter=name, depth=depth),
                    ends=figure in ("conditional", "unconditional"),
                )
                for figure in _BY_DEPTH
            ]
            if cells[0] != "-":
                table.add_row(Text(name if depth == 1 else ""), str(depth), *cells)
    return table


def _lengths(found: Found, names: Sequence[str]) -> Table:
    table = _table("Tokens a round, by draft length", "drafter", "", *map(str, range(1, found.along.depth + 1)))
    kinds = {
        "from anywhere": "tokens from anywhere",
        "in rounds": "tokens in rounds",
        "first draft": "first draft in rounds",
    }
    for name in names:
        for line, figure in kinds.items():
            cells = [
                _cell(pick(found.figures, figure, drafter=name, gamma=gamma), 2, ends=False)
                for gamma in range(1, found.along.depth + 1)
            ]
            table.add_row(Text(name if line == "from anywhere" else ""), line, *cells)
    return table


def _wider(found: Found, names: Sequence[str]) -> Iterator[Table]:
    """Coverage by depth, and the tree."""
    table = _table(
        "Coverage: the target's token among the k likeliest of the drafter",
        "drafter",
        "depth",
        *(f"k={top}" for top in TOPS),
    )
    for name in names:
        for depth in range(1, found.along.depth + 1):
            cells = [
                _cell(pick(found.figures, "coverage", drafter=name, depth=depth, top=top), ends=False) for top in TOPS
            ]
            if cells[0] != "-":
                table.add_row(Text(name if depth == 1 else ""), str(depth), *cells)
    if table.row_count:
        yield table
    trees = pick(found.figures, "tokens with the tree")
    if trees:
        table = _table("Tokens a round with the tree, from anywhere", "drafter", "depth", "tokens")
        for one in trees:
            table.add_row(Text(one.drafter), str(one.depth), _cell([one], 2))
        yield table


def _by_place(found: Found, names: Sequence[str]) -> Iterator[Table]:
    """A table a kind that has several groups."""
    for kind in KINDS:
        groups = list(dict.fromkeys(one.group for one in found.figures if one.kind == kind))
        if len(groups) < 2:
            continue
        title = f"By {_PLACES[kind]}: acceptance of a first draft / tokens a round from there, gamma {found.gamma}"
        table = _table(title, kind, "places", *names)
        for group in groups:
            cells = [
                " / ".join(
                    _cell(pick(found.figures, figure, kind, group=group, drafter=name), digits, ends=False)
                    for figure, digits in (("conditional", 3), ("tokens from anywhere", 2))
                )
                for name in names
            ]
            whole = pick(found.figures, "tokens from anywhere", kind, group=group)
            table.add_row(group, f"{whole[0].places:,.0f}", *cells)
        yield table


def _pairs(found: Found) -> Iterator[Table]:
    if not found.pairs:
        return
    table = _table(
        f"Tokens a round of one over the other, gamma {found.gamma}, median over {counted(found.texts, 'text')}",
        "pair",
        "ratio",
        "p, Holm",
        "verdict",
    )
    for pair in found.pairs:
        ends = "" if pair.low != pair.low else f" [{pair.low:.3f}, {pair.high:.3f}]"
        known = "-" if pair.p_holm != pair.p_holm else f"{pair.p_holm:.4f}"
        table.add_row(Text(f"{pair.one} / {pair.other}"), f"{pair.ratio:.3f}{ends}", known, Text(pair.verdict))
    yield table


def _engine(found: Found) -> Iterator[Table | Text]:
    if not found.engine:
        return
    first = next(iter(found.along.mets))
    title = f"Conditional acceptance in rounds of {len(found.engine)} drafts: {first} and the engine"
    table = _table(title, "position", "here", "engine", "p, Holm")
    for each in found.engine:
        ends = "" if each.ours.low != each.ours.low else f" [{each.ours.low:.3f}, {each.ours.high:.3f}]"
        known = "-" if each.p_holm != each.p_holm else f"{each.p_holm:.4f}"
        table.add_row(str(each.position), f"{each.ours.value:.3f}{ends}", f"{each.theirs:.3f}", known)
    yield table
    yield Text(found.verdict, "bold")


def _controls(found: Found) -> Iterator[Table]:
    if not found.controls:
        return
    table = _table("Controls: acceptance of first drafts", "control", "found", "expected", "")
    for control in found.controls:
        expected = f"{'at most' if control.most else 'at least'} {control.bound:g}"
        held = Text("as expected", "green") if control.held else Text("NOT as expected", "bold red")
        table.add_row(Text(control.name), f"{control.found.value:.4f}", expected, held)
    yield table
