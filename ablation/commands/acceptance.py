"""The command `acceptance`: every drafter along given texts. What is slow to import waits for a right call."""

import json as json_module
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.commands.quality import refuse_to_replace
from ablation.commands.run import Assignments, Processor, Runs, Seed
from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import Json, exit_statuses, load_chosen, out_console
from sampling.loading.options import LoadOptions, load_options
from sampling.methods.chat_template import TemplateOptions, TemplateVariables
from utils.device.torchrun import refuse_under_torchrun
from utils.errors import UserError
from utils.parameter import Values

if TYPE_CHECKING:
    from ablation.acceptance.found import Found
    from ablation.acceptance.measure import AcceptanceRequest
    from ablation.plan.grid import Configuration
    from ablation.plan.prompts.file import Prompt
    from sampling.measure.acceptance.reading import GivenText
    from sampling.pair.pair_engine import PairEngine

EXAMPLES = """Examples:\n
\b
infer.py acceptance --prompts dialogue --methods mtp,speculative
infer.py acceptance --prompts mine.jsonl --methods mtp --controls --processor "nucleus 0.8 0.9"
infer.py acceptance --text book.txt --methods eagle --tree 4,2,1 --json
infer.py acceptance --prompts dialogue --methods mtp --checkpoint heads/mtp-new
infer.py acceptance --prompts dialogue --methods mtp --engine-row metrics.txt
"""

_DEEPEST = 16

Texts = Annotated[
    list[Path] | None,
    typer.Option("--text", metavar="FILE", help="A text, or .jsonl lines with text, or prompt and answer; repeatable."),
]
Prompts = Annotated[
    list[str] | None, typer.Option(metavar="SET|FILE", help="Prompts that the target answers first; repeatable.")
]
Trace = Annotated[Path | None, typer.Option(metavar="FILE.jsonl", help="The answers in a trace of run --full-trace.")]
Depth = Annotated[int, typer.Option(min=1, max=_DEEPEST, help="Drafts behind each place.")]
Tree = Annotated[str | None, typer.Option(metavar="WIDTHS|PATHS", help='Such as 4,2,1, or "[[0], [0, 0], [1]]".')]
Checkpoint = Annotated[
    list[Path] | None, typer.Option(metavar="DIR", help="Another checkpoint of a method's head; repeatable.")
]
Row = Annotated[
    str | None,
    typer.Option(metavar="FILE|RATES", help="An engine's acceptance by position: a file, or 0.7,0.5,0.3."),
]
Before = Annotated[Path | None, typer.Option(metavar="FILE", help="An earlier page of metrics, to be taken off.")]
Controls = Annotated[bool, typer.Option("--controls", help="Run the controls as well: what must fail, must fail.")]
Csv = Annotated[Path | None, typer.Option(metavar="FILE.csv", help="Write the figures to this file as well.")]
PlotFile = Annotated[Path | None, typer.Option(metavar="FILE.png|FILE.svg", help="Draw acceptance by place.")]


@dataclass(frozen=True, slots=True)
class _Sources:
    """Where texts come from: one of the three."""

    files: Sequence[Path]
    prompts: "Sequence[Prompt]"
    trace: Path | None


@opened(models=LoadOptions, told=TemplateOptions)
def acceptance(
    *,
    text: Texts = None,
    prompts: Prompts = None,
    trace: Trace = None,
    methods: Runs = None,
    depth: Depth = 8,
    tree: Tree = None,
    checkpoint: Checkpoint = None,
    engine_row: Row = None,
    engine_row_before: Before = None,
    controls: Controls = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of prompts or texts.")] = 20,
    length: Annotated[int, typer.Option(min=1, help="Maximum number of tokens of an answer or text.")] = 100,
    processor: Processor = None,
    seed: Seed = None,
    assignments: Assignments = None,
    told: Values,
    models: Values,
    json: Json = False,
    csv: Csv = None,
    plot: PlotFile = None,
) -> None:
    """Acceptance of drafters at every place of given texts, which no draft length changes.

    Conditional and unconditional by depth, tokens a round for any gamma and a tree, coverage, and by place: output
    position, context length, phase of the text, turn. Two drafters, two checkpoints and an engine's row are compared.

    Exit status: 0 done; 1 a control did not hold or the output could not be written; 2 the call is wrong; 130
    stopped by Ctrl-C: the text under way ends first (a second Ctrl-C stops it too), and the whole texts are told.
    """
    from ablation.acceptance.engine_row import read_row
    from ablation.acceptance.measure import AcceptanceRequest
    from ablation.commands.request import choose_settings
    from sampling.measure.acceptance.trees import RankTree

    with exit_statuses():
        refuse_under_torchrun("acceptance", "one process")
        sources = _sources(text, prompts, trace, limit)
        named = [("length", length), ("processor", processor), ("seed", seed), *told.items()]
        settings = choose_settings(assignments or (), named)
        shape = None if tree is None else RankTree.parse(tree)
        row = None if engine_row is None else read_row(engine_row, engine_row_before)
        for file in (csv, plot):
            refuse_to_replace(file)
        load_options(models)
        runs = _chosen(methods, settings)
        deepest = max(depth, shape.depth if shape else 0, len(row.joint) if row else 0)
        pair = load_chosen(models, runs, settings)
        from sampling.pair.pair_engine import PairEngine

        engine = PairEngine(pair)
        runs = runs or _of_pair(engine, settings)
        asked = AcceptanceRequest(runs, settings, deepest, checkpoint or ())
        found, stopped = _found(engine, sources, asked, TemplateVariables.read(told), limit, controls)
        found.finish(settings["gamma"], shape, row)
        _tell(found, json, csv, plot)
        if stopped:
            raise KeyboardInterrupt
    raise typer.Exit(1 if any(not control.held for control in found.controls) else 0)


def _sources(text: Sequence[Path] | None, prompts: Sequence[str] | None, trace: Path | None, limit: int) -> _Sources:
    from ablation.plan.prompts.sets import find_sources, gather

    given = [name for name, value in (("--text", text), ("--prompts", prompts), ("--trace", trace)) if value]
    if len(given) != 1:
        raise UserError(f"{' and '.join(given) or 'no text'} given; expected one of --text, --prompts and --trace")
    played = gather(find_sources(prompts, Path.cwd()))[:limit] if prompts else ()
    if any(prompt.grammar for prompt in played):
        raise UserError("--prompts: prompts with a grammar given; expected free answers")
    return _Sources(tuple(text or ()), played, trace)


def _chosen(methods: str | None, settings: Values) -> "tuple[Configuration, ...]":
    """The methods that are named. Raises `UserError` for one that drafts nothing."""
    from ablation.plan.choice import choose_runs

    return tuple(choose_runs(methods, settings)) if methods is not None else ()


def _of_pair(engine: "PairEngine", settings: Values) -> "tuple[Configuration, ...]":
    """A method for the drafter model and each head that the pair has, and copies."""
    from ablation.plan.grid import Configuration
    from sampling.methods.tables import HEADS

    names = ["speculative", *HEADS, "suffix"]
    return tuple(Configuration(name) for name in names if not engine.lacks(name, settings))


def _found(
    engine: "PairEngine",
    sources: _Sources,
    asked: "AcceptanceRequest",
    variables: TemplateVariables,
    limit: int,
    controlled: bool,
) -> "tuple[Found, bool]":
    """What was met, and whether Ctrl-C ended it."""
    from ablation.acceptance.found import Found
    from ablation.acceptance.measure import measure, walkers_of
    from ablation.run.progress.bar import told
    from sampling.measure.acceptance.controls import controls
    from sampling.pair.processing import processor_of
    from utils.interrupt import Interrupt

    if engine.pair.encoder:
        raise UserError("a model with an encoder given; expected a decoder alone: its text is one piece")
    walkers = walkers_of(engine, asked)
    with Interrupt() as interrupt, told("acceptance") as tell:
        texts = _texts(engine, sources, asked.values, variables, tell, interrupt)[:limit]
        along = measure(engine, texts, walkers, asked, tell, lambda: interrupt.asked)
        whole = texts[: len(along.places)]
        processor = processor_of(engine.pair, asked.values["processor"])
        checked = controls(engine.pair, whole, walkers, processor) if controlled and not interrupt.asked else []
    if not whole:
        typer.echo("no text was walked to its end: nothing to show", err=True)
        raise KeyboardInterrupt
    if interrupt.asked:
        typer.echo(f"after {len(whole)} of {len(texts)} texts:", err=True)
    return Found(along, checked), interrupt.asked


def _texts(
    engine: "PairEngine", sources: _Sources, values: Values, variables: TemplateVariables, tell: Any, interrupt: Any
) -> "list[GivenText]":
    from ablation.acceptance.texts import answers, from_files, from_trace

    if sources.trace is not None:
        return from_trace(sources.trace)
    if sources.files:
        return from_files(sources.files, engine, values["length"])
    return answers(engine, sources.prompts, values, variables, tell, lambda: interrupt.asked)


def _tell(found: "Found", as_json: bool, csv: Path | None, plot: Path | None) -> None:
    """Everything at once: tables, or an object a line; and the files."""
    from utils.files import write_atomically

    if csv is not None:
        write_atomically(csv, found.csv())
    if plot is not None:
        from ablation.report.plots.layout import lay_out
        from ablation.report.plots.places import place_figure

        figure = place_figure(found.place_shares(), "Acceptance of a first draft by place, along given texts")
        lay_out(figure)
        figure.savefig(plot)
    if as_json:
        for line in found.lines():
            typer.echo(json_module.dumps(line, allow_nan=False))
        return
    from ablation.acceptance.show import show

    show(found, out_console())
