"""Tokens a round of `block` and `traversal` against `rejection`, on the same drafts of the same rounds.

    uv run scripts/verify_strategies.py --temperature 0.5,0.8,1.0 --limit 4 --length 96

Each method decodes the prompts under `rejection`. In every round each strategy computes how many of the drafts it would
accept on average over its coins. p and q give this number exactly. Only the strategy differs. On average over drafts
`block` and `traversal` never accept fewer drafts than `rejection`. On given drafts, and so over few rounds, they may
accept fewer. Intervals: 95 %, studentised bootstrap over prompts. Nothing is timed.
"""

import utils.device.threads  # noqa: F401

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from ablation.commands.shared.checked import run_checked
from ablation.commands.shared.options import exit_statuses
from ablation.plan.choice import choose_runs
from ablation.plan.prompts.file import read_prompts
from sampling.loading.options import DTYPES
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.loop import decode
from sampling.measure.judging import EXPECTED
from sampling.methods.choices import make_processor
from sampling.methods.settings import Settings
from sampling.methods.tables import METHODS
from sampling.methods.verifiers import JUDGING
from sampling.pair.pair_engine import PairEngine
from sampling.verify.proposals import ProposalBatch
from sampling.verify.rejection import RejectionVerifier
from sampling.verify.verdict import DeviceVerdict
from utils.errors import UserError
from utils.numbers.intervals import studentised_ratio
from utils.numbers.random_numbers import RNG
from utils.parameter import Values

PROMPTS = Path(__file__).parent.parent / "ablation" / "prompts"
DRAFTING = (
    "speculative gamma=4, mtp gamma=4, mtp draft_tree=drawn gamma=3 tree_tokens=8, "
    "mtp draft_tree=static gamma=3 tree_tokens=8"
)

JUDGED = frozenset(parameter.name for parameter in JUDGING.all_parameters)
OTHERS = [name for name in EXPECTED if name != "rejection"]


class StrategyProbe(RejectionVerifier):
    """Judges as `rejection` does, and notes how many tokens a round each strategy would have on average."""

    def __init__(self) -> None:
        self.tokens = np.zeros(len(EXPECTED))
        self.rounds = 0

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        if batch.total:
            self.tokens += [1.0 + accepted(batch.proposals[0], p) for accepted in EXPECTED.values()]
            self.rounds += 1
        return super().decide(batch, p, rngs)


def asked(engine: PairEngine, method: str, values: Values, prompt: Sequence[int]) -> StrategyProbe:
    """The rounds of one answer, those without drafts left out."""
    rule, judge = METHODS[method].rule.build(engine.pair, values), StrategyProbe()
    events = decode(
        engine.pair.target,
        engine.drafter(method, values),
        rule,
        judge,
        make_processor(values["processor"]),
        prompt,
        max_new_tokens=values["length"],
        stop=engine.pair.stop,
        seed=values["seed"],
    )
    list(events)
    return judge


def told(name: str, temperature: str, judges: Sequence[StrategyProbe]) -> list[str]:
    """A line of the table: tokens a round of each strategy, and the others against the first."""
    if not judges:
        return [name, temperature, "0"]
    tokens = np.stack([judge.tokens for judge in judges])
    rounds = np.array([[float(judge.rounds)] for judge in judges])
    means = tokens.sum(0) / rounds.sum()
    low, high = studentised_ratio(tokens[:, 1:], np.repeat(tokens[:, :1], tokens.shape[1] - 1, 1))
    gains = tokens[:, 1:].sum(0) / tokens[:, 0].sum()
    ends = ["" if np.isnan(a) else f" ({a:.3f} to {b:.3f})" for a, b in zip(low, high, strict=True)]
    shown = [f"{gain:.3f}{end}" for gain, end in zip(gains, ends, strict=True)]
    return [name, temperature, f"{rounds.sum():.0f}", *(f"{mean:.3f}" for mean in means), *shown]


def compared(engine: PairEngine, methods: str, degree: str, length: int, prompts: Sequence[Sequence[int]]) -> Table:
    """The strategies at one temperature, a line a method."""
    table = Table("method", "temperature", "rounds", *EXPECTED, *(f"{name} / rejection" for name in OTHERS), box=None)
    base = Settings()
    base.assign_all([("length", str(length)), ("processor", f"multinomial {degree}")])
    for run in choose_runs(methods, base):
        values = {**base, **dict(run.parameters), **METHODS[run.method].preset}
        judges = [asked(engine, run.method, values, prompt) for prompt in track(prompts, run.name, transient=True)]
        table.add_row(*told(run.name, degree, [judge for judge in judges if judge.rounds]))
    return table


def refuse_what_judges_otherwise(methods: str) -> None:
    """Raise `UserError` for a method without drafts of the target's, and for one that says how it is judged."""
    for run in choose_runs(methods, Settings()):
        if not METHODS[run.method].drafts:
            raise UserError(f"{run.method} given, which has no drafts to judge; expected a method that drafts")
        if said := JUDGED.intersection(name for name, _ in run.parameters):
            raise UserError(f"{min(said)} given with {run.method}; all strategies are asked here, leave it out")


def main(
    methods: Annotated[str, typer.Option(help="methods with values of their own, separated by commas")] = DRAFTING,
    temperature: Annotated[str, typer.Option(help="separated by commas")] = "0.5,0.8,1.0",
    limit: Annotated[int, typer.Option(min=2, help="prompts of each of the project's own sets")] = 4,
    length: Annotated[int, typer.Option(min=1, help="new tokens a prompt")] = 96,
    dtype: Annotated[str, typer.Option(help=", ".join(DTYPES))] = "float32",
) -> None:
    """Tokens a round of exact strategies on the same drafts."""
    with exit_statuses():
        degrees = [degree.strip() for degree in temperature.split(",") if degree.strip()]
        if not degrees:
            raise UserError(f"--temperature {temperature!r} given; expected numbers such as 0.5,0.8")
        refuse_what_judges_otherwise(methods)
        engine = PairEngine(load_pair(LoadOptions(dtype=dtype)))
        prompts = [prompt for path in sorted(PROMPTS.glob("*.jsonl")) for prompt in read_prompts(path)[:limit]]
        encoded = [engine.tokenise(prompt.opening, True, prompt.system) for prompt in prompts]
        for degree in degrees:
            Console(width=200).print(compared(engine, methods, degree, length, encoded))


if __name__ == "__main__":
    run_checked(main)
