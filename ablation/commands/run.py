"""The command `run`. Slow imports follow the check of the arguments."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import (
    Json,
    exit_statuses,
    load_chosen,
    refuse_for_several,
)
from sampling.loading.options import LoadOptions
from sampling.methods.chat_template import TemplateOptions, TemplateVariables
from utils.device.torchrun import speaks
from utils.errors import UserError
from utils.parameter import Values

if TYPE_CHECKING:
    from ablation.commands.request import ReadBefore
    from ablation.plan.grid import Configuration, Plan
    from ablation.plan.traced import Traced
    from sampling.pair.pair import Pair

Runs = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help='Methods, such as "mtp,mtp gamma=1"; default: the methods that are on.'),
]
Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting; repeatable.")]
SpeculativeConfig = Annotated[
    str | None,
    typer.Option(metavar="JSON", help='JSON of other servers: {"method": "draft_model", "num_speculative_tokens": 4}.'),
]

OnePrompt = Annotated[str | None, typer.Option(metavar="TEXT|-", help="One prompt; - reads it from stdin.")]
Prompts = Annotated[
    Path | None,
    typer.Option(metavar="SET|FILE.jsonl", help="A built-in set or a file of prompts (docs/prompts.md)."),
]
PromptsDir = Annotated[
    str | None, typer.Option(metavar="DIR", help="A folder of prompt files, one set per file (docs/prompts.md).")
]
Length = Annotated[int | None, typer.Option(help="Maximum number of new tokens.")]
Processor = Annotated[str | None, typer.Option(help='Such as "nucleus 0.8 0.9".')]
Seed = Annotated[int | None, typer.Option(help="Random seed of every method.")]
Grammar = Annotated[
    str | None,
    typer.Option(metavar="FILE|json|off", help="What answers must be (docs/grammar.md); default: off."),
]
Repeat = Annotated[int, typer.Option(min=1, help="Number of repeats, interleaved.")]
Batch = Annotated[str | None, typer.Option(metavar="N,...", help="Batch size; default: one prompt at a time.")]
PrefillChunk = Annotated[
    int | None, typer.Option(metavar="N", help="Rows of prompts that a round of a batch reads; 0: each prompt alone.")
]
KVMemory = Annotated[
    int | None, typer.Option(metavar="MB", help="Most memory of keys and values in a batch; 0: what texts need.")
]
Rate = Annotated[str | None, typer.Option(metavar="R,...", help="Arrivals per second (Poisson), with --batch.")]
Slo = Annotated[str | None, typer.Option(metavar="SLO", help="Latency limits for goodput: ttft:MS,tpot:MS.")]
PrefixCache = Annotated[
    str | None, typer.Option(metavar="on|off", help="Keep rows of texts for those that begin alike.")
]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help='Other engines to compare: transformers, DIALECT=URL, or "DIALECT METHOD=URL ..." (docs/engines.md).',
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="FILE|DIR|HOST:PORT", help="Prefilled prompts of `infer.py prefill` (docs/scale.md)."
    ),
]
TraceFile = Annotated[Path | None, typer.Option(metavar="FILE.jsonl", help="Write one line per round.")]
FullTrace = Annotated[
    bool, typer.Option("--full-trace", help="Add the data for replay to --trace; takes twice the time.")
]


@opened(models=LoadOptions, told=TemplateOptions)
def run(
    *,
    prompt: OnePrompt = None,
    prompts: Prompts = None,
    prompts_dir: PromptsDir = None,
    methods: Runs = None,
    assignments: Assignments = None,
    length: Length = None,
    processor: Processor = None,
    seed: Seed = None,
    grammar: Grammar = None,
    told: Values,
    repeat: Repeat = 1,
    batch: Batch = None,
    rate: Rate = None,
    prefill_chunk: PrefillChunk = None,
    kv_memory: KVMemory = None,
    slo: Slo = None,
    prefix_cache: PrefixCache = None,
    engines: Engines = None,
    read_before: From = None,
    models: Values,
    speculative_config: SpeculativeConfig = None,
    json: Json = False,
    trace: TraceFile = None,
    full_trace: FullTrace = False,
) -> None:
    """Generate once for each prompt, method and repeat, and report what was measured.

    Exit status: 0 all ran; 1 a generation failed or the output could not be written; 2 the call is wrong; 130
    stopped by Ctrl-C: the current generation ends first (a second Ctrl-C stops it too), and whatever has
    finished is reported.
    """
    from ablation.commands import request
    from ablation.plan.choice import choose_methods, plain_plan
    from ablation.plan.engines import parse_engines, sides
    from ablation.plan.file import read_loads, refuse_chunk
    from ablation.plan.formats import compared, to_load

    with exit_statuses():
        config = request.choose_config(speculative_config, methods, models)
        options = {"length": length, "processor": processor, "seed": seed, "grammar": grammar}
        options |= {"prefill_chunk": prefill_chunk, "kv_memory": kv_memory, "prefix_cache": prefix_cache}
        named = [*(config.assignments if config else ()), *options.items(), *told.items()]
        settings = request.choose_settings(assignments or (), named)
        runs = choose_methods(",".join(config.methods) if config else methods, settings)
        prefills = request.choose_prefills(read_before, batch, engines, settings)
        played = request.choose_read_before(prompt, prompts, prompts_dir, prefills)
        models = request.choose_models(models, config)
        loads = read_loads(batch, rate, slo)
        refuse_chunk(prefill_chunk, loads["batches"])
        specs = parse_engines(engines or ())
        played_by = sides(specs, runs, settings)
        traced = request.choose_traced(trace, full_trace, loads["batches"])
        if prefills is not None and len(compared(models)) > 1:
            raise UserError(
                "--from and several --target-weights given; expected the one format of the prefilled states"
            )
        refuse_for_several(loads["batches"], specs, compared(models))
        with (request.open_trace(trace) if speaks() else None) or nullcontext() as trace_file:
            by_name = methods is not None or config is not None
            pair = load_chosen(to_load(models), runs if by_name else (), settings)
            if not by_name:
                runs = _runnable(runs, pair, settings)
            plan = plain_plan(played, runs, settings, repeat, compared(models), sides=played_by, **loads)
            failed = _execute(pair, plan, json, trace_file, traced, prefills)
    raise typer.Exit(1 if failed else 0)


def _runnable(
    runs: "tuple[Configuration, ...]", pair: "Pair", values: Mapping[str, Any]
) -> "tuple[Configuration, ...]":
    """The methods that nobody asked for by name, without those that lack what drafts for them."""
    from sampling.methods.tables import METHODS

    for run in runs:
        if lacking := pair.lacks(METHODS[run.method], values):
            runs = tuple(other for other in runs if other != run)
            typer.echo(f"{run.name} left out: {lacking}", err=True)
    if not runs:
        raise UserError("no method is left to run; give --drafter ID, DIR or FILE.gguf, or other --methods")
    return runs


def _execute(
    pair: "Pair",
    plan: "Plan",
    as_json: bool,
    trace: TextIO | None,
    traced: "Traced",
    prefills: "ReadBefore | None" = None,
) -> bool:
    """Run the plan, write each record as soon as it is known, and say whether any generation failed."""
    from rich.console import Console

    from ablation.commands.shared.printed import PrintedRecords
    from ablation.run.conduct import conduct
    from ablation.run.job import PlanJob
    from engines.fleet import ready
    from sampling.pair.pair_engine import PairEngine

    engine = PairEngine(pair)
    if prefills is not None:
        prefills.refuse_other(pair)
        values = (
            (configuration.method, {**plan.values, **dict(configuration.parameters)})
            for configuration in plan.configurations
        )
        layers = sorted({layer for value in values for layer in engine.drafter(*value).needs_hidden})
        for prompt in plan.prompts:
            ids = engine.tokenise(prompt.opening, plan.values["chat"], prompt.system, TemplateVariables.of(plan.values))
            prefills.check(ids, layers)

    def go_on() -> None:  # behind the warm-up, whose prompts nobody has read
        engine.prefills = prefills

    with ready([side.spec for side in plan.sides], engine, plan.interleave_engines) as others:
        job = PlanJob(engine, plan, PrintedRecords(plan, as_json, trace, traced), others=others)
        outcome = conduct(job, Console(stderr=True), go_on, traced)
    if outcome.stopped:
        raise KeyboardInterrupt
    return outcome.failed > 0
