"""Results files with made-up numbers, written as a run writes them.

`python -m tests.ablation.synthetic FILE` writes one of 100,000 rows, to measure what a report costs.
"""

import csv
import json
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ablation.plan.grid import CONTROL, Configuration
from ablation.results.record import Record
from ablation.results.table import columns, row
from sampling.methods.settings import Settings, relevant_settings
from sampling.methods.tables import AR
from utils.parameter import ChosenPart

PLAIN = Configuration(AR)
AGAIN = Configuration(AR, alias=CONTROL)
GREEDY, NUCLEUS = ChosenPart("greedy", (1.0,)), ChosenPart("nucleus", (0.8, 0.9))
# Speed, agreement with the drafter and drafted length that the made-up numbers follow.
_SKILL = {"target": 0.0, "speculative": 0.75, "egag": 0.8, "ngram": 0.35, "drafter": 0.0}
_COST = {"speculative": 0.12, "egag": 0.12, "ngram": 0.01}


def four() -> tuple[Configuration, ...]:
    """AR, its control, and one configuration each of two methods."""
    return PLAIN, AGAIN, Configuration("speculative", (("gamma", 4),)), Configuration("ngram", (("top_k_filler", 3),))


def thirty() -> tuple[Configuration, ...]:
    """A grid over the parameters of three methods: 24 configurations with AR and its control, six more gammas."""
    speculative = [Configuration("speculative", (("gamma", gamma),)) for gamma in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)]
    ngram = [
        Configuration("ngram", (("set_ngramstorage", ChosenPart("basic", (n,))), ("top_k_filler", k)))
        for n in (3, 4, 5)
        for k in (1, 3, 5)
    ]
    egag = [
        Configuration("egag", (("egag_gamma_max", most), ("egag_ema", ema)))
        for most in (4, 6, 8, 10)
        for ema in (0.0, 0.9)
    ]
    return (PLAIN, AGAIN, *speculative, *egag, *ngram, Configuration("drafter"))


def record(configuration: Configuration = PLAIN, **values: Any) -> Record:
    """A record with the given values and the settings that its method depends on."""
    settings = {**Settings(), **dict(configuration.parameters)}
    settings |= {name: values.pop(name) for name in ("length", "processor", "seed") if name in values}
    method = configuration.method
    about: dict[str, Any] = {
        "id": "p1",
        "task": "code",
        "turn": 1,
        "method": method,
        "configuration": configuration.name,
        "settings": relevant_settings(method, settings),
        "lossless": None if method == "drafter" else True,
        "repeat": 0,
    }
    made = {} if values.get("error") else {"new_tokens": 8, "decode_s": 1.0, "tokens_per_s": 8.0}
    return Record(**about | made | values)


def write_results(path: Path, records: Iterable[Record]) -> Path:
    """A results file of these records."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row(found) for found in records)
    return path


def invented(
    configurations: tuple[Configuration, ...],
    prompts: int = 8,
    tasks: tuple[str, ...] = ("dialogue", "code"),
    processors: tuple[ChosenPart, ...] = (GREEDY, NUCLEUS),
    seeds: tuple[int, ...] = (1,),
    repeats: int = 1,
) -> Iterator[Record]:
    """Records of a whole grid in the order of a run, with numbers that fit each other."""
    rng = random.Random(5)
    hard = [rng.uniform(0.8, 1.2) for _ in range(prompts)]
    for repeat in range(repeats):
        for seed in seeds:
            for processor in processors:
                for number in range(prompts):
                    about = {
                        "id": f"{tasks[number % len(tasks)]}-{number:03}",
                        "task": tasks[number % len(tasks)],
                        "repeat": repeat,
                        "seed": seed,
                        "processor": processor,
                    }
                    yield from _block(configurations, about, hard[number], rng)


def _block(
    configurations: tuple[Configuration, ...], about: dict[str, Any], hard: float, rng: random.Random
) -> Iterator[Record]:
    reference = 0.0
    greedy = about["processor"] == GREEDY
    for configuration in configurations:
        found = _numbers(configuration, hard, rng)
        reference = reference or found["tokens_per_s"]
        plain = configuration.method == "drafter"
        found["speedup"] = None if plain else found["tokens_per_s"] / reference
        if greedy and not plain and configuration is not PLAIN:
            found["divergence_verdict"] = "exact" if rng.random() < 0.9 else "tie"
        yield record(configuration, **about, **found)


def _numbers(configuration: Configuration, hard: float, rng: random.Random) -> dict[str, Any]:
    values = dict(configuration.parameters)
    method = configuration.method
    gamma = 0 if method in ("target", "drafter") else values.get("gamma", values.get("egag_gamma_max", 4))
    alpha = min(0.95, _SKILL[method] * hard)
    emitted, hist, tested_at = [], [0] * (gamma + 1), [0] * gamma
    while sum(emitted) < 100:
        accepted = next((i for i in range(gamma) if rng.random() > alpha), gamma)
        hist[accepted] += 1
        for place in range(min(accepted + 1, gamma)):
            tested_at[place] += 1
        emitted.append(min(accepted + 1, 100 - sum(emitted)))
    rounds, drafted = len(emitted), gamma * len(emitted)
    accepted = sum(place * count for place, count in enumerate(hist))
    cost = _COST.get(method, 0.0)
    decode_s = 0.02 * hard * (rounds + cost * drafted) * rng.gauss(1.0, 0.02) * (0.3 if method == "drafter" else 1.0)
    tested = sum(tested_at)
    return {
        "new_tokens": 100,
        "finish_reason": rng.choice(("stop", "length")),
        "decode_s": decode_s,
        "wall_s": decode_s + 0.1,
        "tokens_per_s": 100 / decode_s,
        "rounds": rounds,
        "drafted": drafted,
        "tested": tested,
        "accepted": accepted,
        "accept_hist": hist,
        "tested_at": tested_at,
        "tokens_by_round": emitted,
        "mean_gamma": float(gamma),
        "min_gamma": min(2, gamma) if method == "egag" else gamma,
        "max_gamma": gamma,
        "mean_normalised_entropy": rng.uniform(0.05, 0.2) if cost > 0.1 else None,
        "c": cost or None,
        "started": "2026-01-02T03:04:05.000+00:00",
        "cpu_mhz": rng.uniform(2990, 3010),
        "other_cores": rng.uniform(0.0, 0.1),
        "text": 'An answer, of "two"\nlines. ' * 10,
    }


def write_trace(path: Path, configurations: Iterable[Configuration], id: str = "dialogue-000") -> Path:
    """A trace of one prompt, turn and repeat: 20 rounds of each configuration that drafts."""
    rng = random.Random(6)
    lines = []
    for configuration in configurations:
        position = 40
        for number in range(20):
            gamma = 1 + number % 6
            accepted = rng.randrange(gamma + 1)
            line = {"id": id, "turn": 1, "method": configuration.method, "repeat": 0, "processor": "greedy", "seed": 1}
            line |= {"configuration": configuration.name, "round": number, "position": position, "gamma": gamma}
            lines.append(json.dumps(line | {"accepted": accepted, "entropy": rng.uniform(0.1, 3.0)}))
            position += accepted + 1
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    # 30 configurations x 140 prompts x 2 processors x 3 seeds x 4 repeats = 100,800 rows
    tasks = ("dialogue", "translation", "long", "code")
    write_results(Path(sys.argv[1]), invented(thirty(), 140, tasks, seeds=(1, 2, 3), repeats=4))
