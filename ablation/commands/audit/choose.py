"""What an audit asks of which engines, from a command line or a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablation.plan.choice import choose_runs
from ablation.plan.engines import parse_engine, sides
from ablation.plan.grid import CONTROL, Configuration, EngineSide
from engines.audit.audit import Asked
from engines.spec import IN_GENERATE, TRANSFORMERS
from sampling.engine import Engine
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import AR
from sampling.proof.distribution import PROMPTS as COPIED
from utils.errors import UserError
from utils.parameter import ChosenPart

PROMPTS = (*COPIED, "ha ha ha ha ha ha ha ha")
PROCESSORS = "multinomial {0},topk {0} 8,nucleus {0} 0.8,multinomial {0} min_p=0.1,multinomial {0} repetition=1.5,\
multinomial {0} frequency=2,multinomial {0} presence=2"
_TEMPERATURES = (1.5, 3.0, 6.0)
_CERTAIN = 0.9


@dataclass(frozen=True, slots=True)
class Subjects:
    """The engines, with the settings of their methods, and the options of loading that a plan names."""

    sides: Sequence[EngineSide]
    values: Mapping[str, Any]
    pair: Mapping[str, Any]


def subjects(url: str | None, engine: str | None, plan: str | None, methods: str | None) -> Subjects:
    """Whom to audit. Raises `UserError`."""
    if [url, engine, plan].count(None) != 2:
        raise UserError("URL, --engine and --plan: expected one of them, which names the engine")
    if plan is not None:
        from ablation.plan.file import read_experiment

        if methods is not None:
            raise UserError("--methods and --plan given; expected the methods in the plan")
        experiment = read_experiment(plan)
        if not experiment.plan.sides:
            raise UserError(f"{plan} names no engine; expected [[engines]] tables in it")
        return Subjects(experiment.plan.sides, experiment.plan.values, experiment.pair)
    spec = parse_engine(engine or f"workbench={url}")
    values = Settings()
    usual = spec.played or (IN_GENERATE if spec.kind == TRANSFORMERS else (AR, "prompt_lookup"))
    runs = choose_runs(methods, values) if methods else tuple(map(Configuration, usual))
    return Subjects(sides([spec], runs, values), values, {})


def methods_of(side: EngineSide, values: Mapping[str, Any]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Settings by the name of a run, plain decoding first. Raises `UserError` where there is none."""
    runs = [run for run in side.configurations if run.name != CONTROL]
    if AR not in [run.method for run in runs]:
        raise UserError(f"engine {side.spec.name}: methods without {AR}; expected it, which the others are against")
    runs.sort(key=lambda run: run.method != AR)
    return {run.name: (run.method, {**values, **dict(run.parameters)}) for run in runs}


def prompts_of(home: Engine, texts: Sequence[str]) -> list[list[int]]:
    """Ids, without a chat template."""
    return [home.tokenise([text], False) for text in texts or PROMPTS]


def read_processors(text: str) -> list[ChosenPart]:
    """Those that a text names. Raises `UserError`."""
    found: list[ChosenPart] = []
    for words in text.split(","):
        processor = PARAMETERS["processor"].parse(words.strip())
        if processor in found:
            raise UserError(f"--processors: {words.strip()!r} is given twice; expected each once")
        if processor.name == "greedy":
            raise UserError("--processors: greedy given, which is asked in any case; expected those that sample")
        found.append(processor)
    return found


def usual_processors(home: Engine, prompts: Sequence[Sequence[int]]) -> list[ChosenPart]:
    """The usual ones, at the lowest temperature at which no first token is nearly certain."""
    return read_processors(PROCESSORS.format(_temperature(home, prompts)))


def _temperature(home: Engine, prompts: Sequence[Sequence[int]]) -> float:
    from engines.audit.expected import Target

    target = Target(home)
    for temperature in _TEMPERATURES:
        likely = (target.row(prompt, (), ChosenPart("multinomial", (temperature,))).p.max() for prompt in prompts)
        if all(float(p) < _CERTAIN for p in likely):
            break
    return temperature


def asked_of(
    home: Engine, side: EngineSide, values: Mapping[str, Any], prompts: Sequence[str], processors: Sequence[ChosenPart],
    draws: int, tokens: int, seed: int, batch: int,
) -> Asked:  # fmt: skip
    """All that one engine is asked. Raises `UserError`."""
    ids = prompts_of(home, prompts)
    at_once = 1 if side.spec.kind == TRANSFORMERS else batch
    return Asked(
        processors or usual_processors(home, ids),
        ids,
        methods_of(side, values),
        draws,
        tokens,
        seed=seed,
        at_once=at_once,
    )
