"""The command itself. What is slow to import waits for a right call."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablation.commands.quality import refuse_to_replace
from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import Json, exit_statuses, load_chosen
from sampling.loading.options import LoadOptions
from utils.device.torchrun import refuse_under_torchrun
from utils.errors import UserError
from utils.parameter import Values

if TYPE_CHECKING:
    from engines.audit.audit import Audit

Url = Annotated[str | None, typer.Argument(metavar="[URL]", help="Where a server of this program runs.")]
Engine = Annotated[
    str | None,
    typer.Option(metavar="ENGINE", help='transformers, DIALECT=URL, or "DIALECT METHOD=URL ..." (docs/audit.md).'),
]
Plan = Annotated[str | None, typer.Option(metavar="FILE.toml", help="A plan, whose [[engines]] are audited.")]
Methods = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="target, and methods that draft; default: what the engine has.")
]
Processors = Annotated[
    str | None, typer.Option(metavar="P,...", help='Such as "topk 1 50,multinomial 0.8 min_p=0.1"; default: seven.')
]
Prompt = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="A prompt; repeatable; default: three.")]
Draws = Annotated[int, typer.Option(min=50, help="Answers to each prompt, by each processor and method.")]
Tokens = Annotated[int, typer.Option(min=1, max=8, help="Tokens of an answer; each is tested.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the first answer.")]
Batch = Annotated[int, typer.Option(min=1, max=256, help="Requests under way at a time; in this process 1.")]
Level = Annotated[float, typer.Option(help="Probability of a false alarm in the whole audit.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write to FILE.jsonl or FILE.csv.")]


@opened(models=LoadOptions)
def audit(
    url: Url = None,
    *,
    engine: Engine = None,
    plan: Plan = None,
    methods: Methods = None,
    processors: Processors = None,
    prompt: Prompt = None,
    draws: Draws = 1000,
    tokens: Tokens = 2,
    seed: Seed = 0,
    batch: Batch = 8,
    level: Level = 0.01,
    models: Values,
    json: Json = False,
    output: Output = None,
) -> None:
    """Test whether another engine keeps the target's law, with speculation and without.

    Greedy answers are read by the target. The first tokens of many sampled answers are tested by chi-square against
    the target's processed distribution, and with speculation against without. The loaded target must be the engine's.

    Example: infer.py audit --engine transformers --draws 500

    Exit status: 0 nothing differs; 1 something does; 2 the call is wrong; 130 stopped by Ctrl-C: what was drawn is
    judged and shown.
    """
    from ablation.commands.audit.choose import asked_of, read_processors, subjects
    from ablation.commands.audit.show import check_output
    from ablation.plan.formats import to_load
    from utils.errors import wrong_value

    with exit_statuses():
        refuse_under_torchrun("audit", "one process")
        if not 0.0 < level < 1.0:
            raise wrong_value("--level", str(level), "a number between 0 and 1")
        check_output(output)
        refuse_to_replace(output)
        named = read_processors(processors) if processors is not None else []
        chosen = subjects(url, engine, plan, methods)
        pair = load_chosen(to_load({**chosen.pair, **models}))
        from engines.audit.audit import Audit
        from engines.fleet import ready
        from sampling.pair.pair_engine import PairEngine

        home, audits, stopped = PairEngine(pair), list[Audit](), False
        for side in chosen.sides:
            asked = asked_of(home, side, chosen.values, prompt or (), named, draws, tokens, seed, batch)
            with ready([side.spec], home) as others:
                audits.append(Audit(others[side.spec.name], asked))
                stopped = _play(audits[-1])
            if stopped:
                break
        differs = _report(audits, level, json, output)
        if stopped:
            raise KeyboardInterrupt
    raise typer.Exit(1 if differs else 0)


def _play(audit: "Audit") -> bool:
    """Asks everything, and whether Ctrl-C ended it."""
    from ablation.run.progress.bar import told
    from utils.interrupt import Interrupt

    with Interrupt() as interrupt, told(f"audit of {audit.engine.name}") as paint:
        try:
            for note, done in audit.play():
                paint(done, audit.asked.answers, note)
                if interrupt.asked:
                    return True
        except KeyboardInterrupt:
            return True
    return False


def _report(audits: "list[Audit]", level: float, json: bool, output: Path | None) -> bool:
    """Judges, shows and writes; whether anything differs."""
    from ablation.commands.audit.show import objects, tell, write

    found = []
    for audit in audits:
        if audit.refused and not audit.greedy and not any(there.counts for there in audit.draws.values()):
            raise UserError(f"{audit.engine.name} answers nothing: {next(iter(audit.refused.values()))}")
        tests = audit.tests(level)
        some = list(objects(audit, tests, level))
        found += some
        if json:
            for each in some:
                typer.echo(json_module.dumps(each))
        else:
            tell(audit, tests, level)
    if output is not None:
        write(output, found)
    return any(each["kind"] == "verdict" and each["verdict"] == "DIFFERS" for each in found)
