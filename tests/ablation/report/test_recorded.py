"""Every number of a report on made-up runs of every kind is what it was: of texts, of batches, of engines and hosts.

What the numbers should be is worked out in `test_report_numbers.py`.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from ablation.plan.grid import Configuration
from ablation.report.load import load_results
from ablation.report.plots.figure import Plot
from ablation.report.tables.batches import BatchReportLine, _table, batches_section
from ablation.report.tables.summary import summarise
from ablation.report.write import write_report
from ablation.results.manifest import manifest_path
from ablation.results.record import Record
from sampling.pair.profile import DraftTimes, LatencyProfile
from tests.ablation.synthetic import AGAIN, GREEDY, NUCLEUS, PLAIN, invented, write_results
from tests.recorded import check_recorded

SD = Configuration("speculative", (("gamma", 4),))
CONFIGURATIONS = (PLAIN, AGAIN, SD, Configuration("egag", (("egag_gamma_max", 6),)), Configuration("ngram"))
PROFILE = LatencyProfile(
    {64: ((1, 0.02), (5, 0.022), (17, 0.03)), 512: ((1, 0.024), (5, 0.027), (17, 0.04))},
    ((64, 0.1), (512, 0.7)),
    0.001,
    {"model": DraftTimes(0.004, 0.003, (0.8, 0.7)), "ngram": DraftTimes(0.0001, 0.00001, (), 0.4)},
    "2026-01-02T03:04:05+00:00",
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


def timed(found: Record, rng: random.Random) -> Record:
    """The same with a round's phases, and a stamp of what a machine was like."""
    if found.rounds is None or found.decode_s is None:
        return found
    round_ms = 1e3 * found.decode_s / found.rounds
    shares = (0.2, 0.7, 0.1) if found.drafted else (0.0, 0.93, 0.07)
    draft_ms, verify_ms, other_ms = (round_ms * share * rng.uniform(0.95, 1.05) for share in shares)
    return replace(
        found, draft_ms=draft_ms, verify_ms=verify_ms, other_ms=other_ms, prompt_tokens=rng.randrange(20, 90),
        ttft_s=rng.uniform(0.1, 0.3),
    )  # fmt: skip


def texts() -> Iterator[Record]:
    """One at a time, under two processors, with one run that failed, one that is a bug and one that has no task."""
    rng = random.Random(1)
    for place, found in enumerate(invented(CONFIGURATIONS, 12, ("code", "dialogue", "long"), (GREEDY, NUCLEUS))):
        changes: dict[int, dict[str, object]] = {
            7: {"error": "out of memory", "tokens_per_s": None, "speedup": None, "decode_s": None},
            13: {"divergence_verdict": "BUG", "first_divergence": 4},
            19: {"cpu_mhz": 1500.0, "other_cores": 0.9},
        }
        yield replace(timed(found, rng), **changes.get(place, {}))  # type: ignore[arg-type]


def batches() -> Iterator[Record]:
    """Several at a time, and prompts that arrive."""
    rng = random.Random(2)
    for batch, rate in ((1, 0.0), (4, 0.0), (16, 0.0), (4, 0.5), (4, 2.0)):
        for found in invented((PLAIN, AGAIN, SD), 6, ("code",), (GREEDY,), repeats=2):
            assert found.decode_s and found.new_tokens
            slower = 1 + batch / 20 if found.configuration != SD.name else 1 + batch / 8
            speed = found.new_tokens / found.decode_s
            yield replace(
                timed(found, rng), batch=batch, rate=rate, live_rows=batch * 0.9, decode_s=found.decode_s * slower,
                tokens_per_s=speed / slower, throughput_tps=speed * batch * 0.9 / slower,
                e2e_throughput_tps=speed * batch * 0.7 / slower, tpot_ms=1e3 * slower / speed,
                queued_s=rng.expovariate(2.0) * rate, goodput_rps=rate * 0.8,
            )  # fmt: skip


def engines() -> Iterator[Record]:
    """Another engine beside ours, which also ran on two machines and in two formats."""
    rng = random.Random(3)
    for place, (engine, host, weights) in enumerate(
        (("workbench", "a", "full"), ("workbench", "b", "full"), ("workbench", "a", "int8"), ("vllm", "a", "unknown"))
    ):
        for found in invented((PLAIN, SD), 7, ("code",), (GREEDY,)):
            assert found.tokens_per_s and found.decode_s and found.wall_s
            if place < 2 and (int(str(found.id)[-1]) % 2 == 0) != (host == "a"):
                continue  # each machine has its own prompts
            pace = (1.0, 0.8, 1.3, 2.5)[place] * rng.uniform(0.97, 1.03)
            about = {"engine": engine, "host": host, "target_weights": weights, "decode_s": found.decode_s / pace}
            about |= {"tokens_per_s": found.tokens_per_s * pace, "wall_s": found.wall_s / pace}
            if engine == "vllm":
                about |= {"referee": "consistent" if rng.random() < 0.7 else "differs", "referee_behind": 0.25}
            yield replace(timed(found, rng), **about)  # type: ignore[arg-type]


def drawn(figure: Figure) -> str:
    """What a figure draws, axis by axis: how many numbers its lines, bars and marks have, and a checksum of them."""
    axes = []
    for axis in figure.axes:
        data = [*(line.get_xydata() for line in axis.lines), *(patch.get_path().vertices for patch in axis.patches)]
        data += [patch.get_patch_transform().get_matrix() for patch in axis.patches]
        for collection in axis.collections:
            data += [collection.get_offsets(), *(path.vertices for path in collection.get_paths())]
        data += [text.xy if isinstance(text, Annotation) else text.get_position() for text in axis.texts]
        values = [f"{value:.5g}" for part in data for value in np.asarray(part, dtype=float).ravel()]
        axes.append(f"{len(values)} {crc32(' '.join(values).encode()):08x}")
    return ", ".join(axes)


def numbers(folder: Path) -> dict[str, list[str]]:
    """The rows of the report's tables; the numbers of its sentences; the summary and the pairs to six digits."""
    tables, sentences = list[str](), list[str]()
    for line in (folder / "report.md").read_text(encoding="utf-8").split("\n```", maxsplit=1)[0].splitlines():
        if line.startswith("|"):
            tables.append(line)
        elif found := _NUMBER.findall(line):
            sentences.append(" ".join(found))
    files = {}
    for name in ("summary", "pairs"):
        frame = pd.read_csv(folder / f"{name}.csv").drop(columns="verdict", errors="ignore")
        files[name] = frame.to_csv(index=False, float_format="%.6g").splitlines()
    return {"tables": tables, "sentences": sentences, **files}


@pytest.mark.parametrize("runs", [texts, batches, engines], ids=lambda runs: runs.__name__)
def test_every_number_is_what_it_was(
    runs: Callable[[], Iterator[Record]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plots: dict[str, str] = {}

    def save(self: Plot, folder: Path) -> None:
        plots[self.stem] = drawn(self.figure)
        (folder / f"{self.stem}.png").touch()

    monkeypatch.setattr(Plot, "save", save)
    results = write_results(tmp_path / "r.csv", runs())
    grid = {"configurations": {each.name: dict(each.parameters) for each in CONFIGURATIONS}}
    about = {"commit": "a", "uncommitted_changes": False, "runs": [], "fixed": {"code": "c", "grid": grid}}
    profile = {"full": json.loads(json.dumps(PROFILE.as_dict()))}
    hosts = {name: {"cpu": f"cpu {name}", "threads": 2} for name in "ab"}
    manifest_path(results).write_text(json.dumps({**about, "profile": profile, "hosts": hosts}), encoding="utf-8")
    folder = write_report(results).folder
    check_recorded(Path(__file__).with_name(f"recorded_{runs.__name__}.json"), {**numbers(folder), "plots": plots})


def test_one_size_of_batches_has_no_plot_over_sizes(tmp_path: Path) -> None:
    rows = [found for found in batches() if (found.batch, found.rate) == (4, 0.0)]
    frame = load_results(write_results(tmp_path / "r.csv", rows))
    section = batches_section(frame, summarise(frame))
    assert section is not None and len(section.tables) == 1 and not section.plots and len(section.notes) == 1
    assert "weights" not in section.tables[0].title
    both = load_results(
        write_results(tmp_path / "b.csv", [*rows, *(replace(one, target_weights="int8") for one in rows)])
    )
    section = batches_section(both, summarise(both))
    assert section is not None
    assert [table.title.rsplit(", ")[-1] for table in section.tables] == ["full weights", "int8 weights"]


def test_milliseconds_of_a_round_and_of_a_row() -> None:
    (note, _) = _table("greedy", pd.DataFrame({"compared": []}), BatchReportLine(2.5, 5.0)).notes
    assert "2500.0 ms and 5000.00 ms a row" in note and "n0 = 0.5 rows" in note
