"""The stage `right`: does it run on the card, is every method's output the target's, how often does a round wait?"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from rich.table import Table

from ablation.gpu_check.calls import call
from ablation.gpu_check.machine import clocks
from ablation.gpu_check.models import save_tiny
from ablation.gpu_check.record import LeftOut, StageRecord
from ablation.gpu_check.rounds import launches, settings_of, waits
from sampling.loading.embedded import embedded_gguf
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.measure.divergence import judge
from sampling.measure.metrics import RunMetrics
from sampling.methods.tables import AR
from sampling.pair.pair import MODEL, Pair
from sampling.pair.pair_engine import PairEngine
from sampling.proof.selftest import Selftest, testable
from utils.errors import UserError
from utils.provenance import ROOT

ON, OFF = "on", "off"
# How batch invariance is had where every method has to be `exact`, in the format that has ties without it.
ONE_WIDTH = {"dtype": "bfloat16", "batch_invariant": "on", "graphs": "auto"}
_TESTS_S, _METHOD_S = 150.0, 45.0
# One of each family, before the others of it take the time.
_FIRST = ("speculative", "mtp", "ngram", "suffix", "medusa", "extended")
_DRAWS, _TINY_DRAWS = 500, 120
_TEXT = "one two three four five six seven. one two three four five six seven. one two three"
_LENGTH, _COMPARED = 300, 64
_TREE = {"draft_tree": "dynamic", "gamma": "4", "tree_width": "4", "tree_tokens": "16"}


class WrongOutput(Exception):
    """A method's output is not what the target alone would have said."""


def right(record: StageRecord) -> Table:
    """Tests, greedy outputs, those in one width bit for bit, waits and launches; distributions, while there is time."""
    record.measure("tests", partial(_tests, record))
    pairs: dict[str, Pair] = {}
    models = _models(record)
    for way in (ON, OFF):
        record.measure(f"models, graphs {way}", partial(_load, record, {**models, "graphs": way}, pairs))
    if len(pairs) == 2:
        record.measure("AR, graphs on against off", partial(_same_text, pairs))
    for way, pair in pairs.items():
        _check(record, f"greedy, graphs {way}", pair, draws=0)
    invariant = dict[str, Pair]()
    record.measure("models, batch-invariant", partial(_load_invariant, record, models, invariant))
    for pair in invariant.values():
        _check(record, "greedy, batch-invariant", pair, draws=0)
    for way, pair in pairs.items():
        _watch(record, way, replace(pair, stop=frozenset()))
    if ON in pairs:
        draws, names = (_TINY_DRAWS, _FIRST[:1]) if record.tiny else (_DRAWS, None)
        _check(record, "distribution", pairs[ON], draws, names)
    record.extra["clocks_after"] = clocks(record.device)
    return _table(record)


def _tests(record: StageRecord) -> str:
    """What pytest says of the tests that need a card."""
    if record.tiny:
        raise LeftOut("a dry run")
    files = (path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text("utf-8"))
    workers = ["-n", "4"] if find_spec("xdist") else []
    words = ["-m", "pytest", "-m", "gpu", "-q", *workers, *(str(path.relative_to(ROOT)) for path in files)]
    return call(words, record.work / "pytest.txt", _TESTS_S).strip().splitlines()[-1]


def _models(record: StageRecord) -> dict[str, str]:
    """The embedded default where its weights are there, else a tiny pair that is made here."""
    try:
        if record.tiny:
            raise UserError("a dry run")
        embedded_gguf()
    except UserError as error:
        record.extra["pair"] = f"tiny: {error}"
        return save_tiny(record.work / "tiny")
    return {}


def _load(record: StageRecord, models: dict[str, Any], pairs: dict[str, Pair]) -> dict[str, Any]:
    """Put the pair among the pairs, in float32 unless another format is asked for."""
    pair = load_pair(LoadOptions(**{"dtype": "float32", **models}, device=str(record.device)))
    pairs[models["graphs"]] = pair
    drafter = None if pair.drafter_info is None else asdict(pair.drafter_info)
    return {"target": asdict(pair.target_info), "drafter": drafter, "notes": pair.notes}


def _load_invariant(record: StageRecord, models: dict[str, Any], pairs: dict[str, Pair]) -> dict[str, Any]:
    """The same in one width. Raises `LeftOut` on CPUs where that is not enough."""
    tiles = getattr(torch.cpu, "_is_amx_tile_supported", None)
    if record.device.type == "cpu" and tiles is not None and tiles():
        raise LeftOut("in bfloat16 on AMX a row's bits depend on its place among the others")
    return _load(record, {**models, **ONE_WIDTH}, pairs)


def _same_text(pairs: dict[str, Pair]) -> dict[str, Any]:
    """Whether graphs change what plain decoding says."""
    engines = {way: PairEngine(pair) for way, pair in pairs.items()}
    prompt, values = pairs[OFF].encode([_TEXT], chat=True), settings_of(_COMPARED)
    texts = {}
    for way, engine in engines.items():
        account = RunMetrics()
        for event in engine.stream(AR, values, prompt):
            account.add(event)
        texts[way] = account.output_ids
    divergence = judge(partial(engines[OFF].reference, prompt), texts[OFF], texts[ON])
    if divergence.verdict == "BUG":
        raise WrongOutput(str(asdict(divergence)))
    return asdict(divergence)


def _check(record: StageRecord, what: str, pair: Pair, draws: int, names: Sequence[str] | None = None) -> None:
    """The project's selftest, a measurement a method."""
    made: list[Selftest] = []
    record.measure(f"{what}: references", lambda: made.append(Selftest(pair, names, draws)))
    for checks in made:
        for name in sorted(checks.methods, key=lambda name: name not in _FIRST):
            record.measure(f"{what}: {name}", partial(_verdict, checks, name), _METHOD_S if draws else 0.0)


def _verdict(checks: Selftest, name: str) -> dict[str, Any]:
    report = checks.report(name)
    verdicts = {check.name: {"verdict": check.verdict, **check.numbers} for check in report.checks}
    if report.verdict == "FAIL":
        raise WrongOutput(str(verdicts))
    return {"verdict": report.verdict, **verdicts}


def _watch(record: StageRecord, way: str, pair: Pair) -> None:
    """Waits of every method, launches of plain and of speculative decoding."""
    engine, prompt = PairEngine(pair), pair.encode([_TEXT], chat=True)
    for title, method, settings in _watched(pair):
        values = settings_of(_LENGTH, **settings)
        record.measure(f"waits, graphs {way}: {title}", partial(waits, engine, method, values, prompt))
    values = settings_of(_LENGTH)
    for method in (AR, *(["speculative"] if pair.has(MODEL) else [])):
        record.measure(f"launches, graphs {way}: {method}", partial(launches, engine, method, values, prompt))


def _watched(pair: Pair) -> Iterator[tuple[str, str, dict[str, str]]]:
    """(name, method, values) of what is watched."""
    names = testable(pair)
    yield from ((name, name, {}) for name in (AR, *names))
    yield from ((f"{name}, dynamic tree", name, _TREE) for name in ("eagle", "mtp") if name in names)


def _table(record: StageRecord) -> Table:
    """A line a method; what was left out is a dash."""
    table = Table("method", "greedy, graphs on", "off", "one width", "distribution", "waits a round, graphs on", "off")
    titles = [*(f"greedy, graphs {way}" for way in (ON, OFF)), "greedy, batch-invariant", "distribution"]
    noted = [*record.found, *record.failed]
    names = dict.fromkeys(name.split(": ", 1)[1] for name in noted if name.startswith(("greedy", "waits")))
    for name in names:
        if name != "references":
            waited = [record.found.get(f"waits, graphs {way}: {name}") for way in (ON, OFF)]
            cells = [_cell(record, f"{title}: {name}") for title in titles]
            table.add_row(name, *cells, *("-" if wait is None else f"{wait['a_round']:g}" for wait in waited))
    return table


def _cell(record: StageRecord, name: str) -> str:
    return "FAIL" if name in record.failed else record.found.get(name, {}).get("verdict", "-")
