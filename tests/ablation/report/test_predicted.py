"""Predicted beside measured, on runs whose times follow a known profile but for one planted fault."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ablation.plan.grid import Configuration
from ablation.report.load import load_results
from ablation.report.tables.cells import CALIBRATED, PREDICTED, factor_table, speed_table
from ablation.report.tables.predicted import AFTER, AT_MEANS, BEFORE, INTERVAL, PARTS, Prices
from ablation.report.tables.summary import ALL, summarise
from ablation.results.record import Record
from egag.cost_model import CostModel
from egag.rollback_price import RollbackPrice
from sampling.pair.profile import NOTHING, DraftTimes, LatencyProfile
from tests.ablation.synthetic import PLAIN, record, write_results

SD, TREE = Configuration("speculative", (("gamma", 4),)), Configuration("mtp", (("draft_tree", "dynamic"),))
COPIES = Configuration("prompt_lookup")
# A step between 5 and 9 rows, as rounded kernels have; a second context at which all is dearer.
FORWARD = ((1, 0.010), (5, 0.012), (9, 0.030), (17, 0.040))
PROFILE = LatencyProfile(
    {64: FORWARD, 512: tuple((rows, 1.5 * seconds) for rows, seconds in FORWARD)},
    ((64, 0.1),),
    0.001,
    {
        "model": DraftTimes(0.002, 0.001, (0.8,)),
        "mtp": DraftTimes(0.002, 0.001, (0.8,)),
        "prompt_lookup": DraftTimes(0.0005, 0.0, (), 0.5),
    },
)
SETTINGS = {each.name: dict(each.parameters) for each in (SD, TREE, COPIES)}
PRICES = Prices({"full": PROFILE}, SETTINGS)
STEADY = ((4, 3),) * 8
Rounds = tuple[tuple[int, int], ...]


def made(
    configuration: Configuration = SD,
    rounds: Callable[[int], Rounds] = lambda prompt: STEADY,
    prompts: int = 9,
    context: Callable[[int], int] = lambda prompt: 40,
    noise: float = 0.0,
    looks: float = 0.0,
    **faults: float,
) -> Iterator[Record]:
    """AR and a configuration on each prompt. rounds: (drafts, tokens) each. faults: factors on measured seconds."""
    rng = random.Random(7)
    model = {"speculative": "model"}.get(configuration.method, configuration.method)
    for prompt in range(prompts):
        found, jitter = rounds(prompt), math.exp(noise * rng.gauss(0.0, 1.0))
        new = sum(tokens for _, tokens in found)
        behind = context(prompt) + round(new / 2)
        price, plain = PROFILE.cost_model(model, behind), PROFILE.cost_model(NOTHING, behind)
        assert price is not None and plain is not None
        about: dict[str, Any] = {"id": f"p{prompt}", "prompt_tokens": context(prompt), "new_tokens": new}
        ar = faults.get("ar", 1.0)
        ar_ms = {"draft_ms": 0.0, "verify_ms": 1e3 * ar * plain.verify_s(0), "other_ms": 1e3 * ar * plain.rest_s}
        decode_s = new * sum(ar_ms.values()) / 1e3
        yield record(
            PLAIN, **about, rounds=new, drafted=0, tested=0, accepted=0, decode_s=decode_s,
            tokens_per_s=new / decode_s, speedup=1.0, **ar_ms,
        )  # fmt: skip
        yield _drafting(configuration, about, found, price, decode_s, looks, {"all": jitter, **faults})


def _drafting(
    configuration: Configuration, about: dict[str, Any], found: Rounds, price: CostModel, plain_s: float,
    looks: float, faults: dict[str, float],
) -> Record:  # fmt: skip
    count, drafts = len(found), [drafted for drafted, _ in found]
    of_all = 1e3 * faults["all"]
    verify_ms = of_all * faults.get("verify", 1.0) * float(np.mean([price.verify_s(each) for each in drafts]))
    drafting = [price.draft_s(each) if each else looks for each in drafts]
    draft_ms = of_all * faults.get("draft", 1.0) * float(np.mean(drafting))
    other_ms = of_all * faults.get("other", 1.0) * price.rest_s
    decode_s, new = count * (verify_ms + draft_ms + other_ms) / 1e3, about["new_tokens"]
    accepted = new - count
    tested = min(sum(drafts), accepted + count // 2)
    return record(
        configuration, **about, rounds=count, drafted=sum(drafts), drafted_by_round=drafts, mean_gamma=4.0,
        tested=tested, accepted=accepted, verify_ms=verify_ms, draft_ms=draft_ms, other_ms=other_ms,
        decode_s=decode_s, tokens_per_s=new / decode_s, speedup=plain_s / decode_s,
    )  # fmt: skip


def found(tmp_path: Path, records: Iterator[Record], name: str = SD.name, prices: Prices = PRICES) -> pd.Series:
    """The row of all tasks."""
    return shown(tmp_path, records, prices).set_index("configuration").loc[name]


def shown(tmp_path: Path, records: Iterator[Record], prices: Prices = PRICES) -> pd.DataFrame:
    summary = summarise(load_results(write_results(tmp_path / "r.csv", records)), prices)
    return summary[summary["task"] == ALL]


def uneven(prompt: int) -> Rounds:
    """The texts of two prompts are long, and most of their drafts are accepted."""
    return ((4, 5),) * 16 if prompt < 2 else ((4, 2),) * 10


def stepped(prompt: int) -> Rounds:
    """No draft and eight in turn: the mean, four, is still before the step of the forward."""
    return ((0, 1), (8, 4)) * 4


def test_times_that_follow_the_profile_are_predicted_exactly(tmp_path: Path) -> None:
    """5 rows behind 52 tokens: 0.012 + 0.005 drafting + 0.001; 3 tokens, of which AR's take 0.011 each: 33 / 18."""
    row = found(tmp_path, made())
    assert row["predicted"] == pytest.approx(33 / 18) == row["speedup"]
    assert row[list(INTERVAL)].tolist() == pytest.approx([1.0] * 3)
    assert row[list({**BEFORE, **AFTER})].tolist() == pytest.approx([1.0] * 7)


@pytest.mark.parametrize(
    ("fault", "factor", "value", "over"),
    [
        # A round takes 18 ms by prices, of which forwards are 12, drafting 5 and the rest 1.
        ({"ar": 1.1}, "factor_ar", 1.1, 1.1),
        ({"verify": 1.25}, "factor_forwards", 18 / 21, 18 / 21),
        ({"draft": 2.0}, "factor_drafting", 18 / 23, 18 / 23),
        ({"other": 4.0}, "factor_rest", 18 / 21, 18 / 21),
    ],
)
def test_a_planted_fault_is_seen_in_its_factor_alone(
    fault: dict[str, float], factor: str, value: float, over: float, tmp_path: Path
) -> None:
    row = found(tmp_path, made(**fault))
    assert row["predicted"] == pytest.approx(33 / 18)
    assert {name: row[name] for name in PARTS} == pytest.approx({**dict.fromkeys(PARTS, 1.0), factor: value})
    assert row["measured_over_predicted"] == pytest.approx(over)


def test_a_few_long_texts_that_accept_more_do_not_lead_the_prediction(tmp_path: Path) -> None:
    """The ratio of sums is not what stands beside it, and is told as a factor."""
    row = found(tmp_path, made(rounds=uneven))
    assert row["predicted"] == pytest.approx(row["speedup"]) and row["predicted"] == pytest.approx(22 / 18)
    assert row[AT_MEANS] > 1.3 * row["predicted"] and row["factor_prompts"] < 0.8
    assert row["measured_over_predicted"] == pytest.approx(1.0)


def test_steps_of_the_forward_are_priced_round_by_round(tmp_path: Path) -> None:
    """The mean round takes 12 + 5 + 1 ms; those of the run 11 and 30 + 9 + 1."""
    row = found(tmp_path, made(rounds=stepped))
    assert row["predicted"] == pytest.approx(row["speedup"]) and row["factor_rows"] == pytest.approx(18 / 25.5)
    assert row["factor_prompts"] == pytest.approx(1.0)


def test_each_text_is_priced_behind_its_own_context(tmp_path: Path) -> None:
    """Prompts of 40 and of 480 tokens: behind the latter a forward takes half as long again."""
    row = found(tmp_path, made(context=lambda prompt: 480 if prompt % 2 else 40))
    assert row["measured_over_predicted"] == pytest.approx(1.0) and row["factor_forwards"] == pytest.approx(1.0)


def test_copies_that_were_looked_for_in_vain_cost_the_looking(tmp_path: Path) -> None:
    rows: Callable[[int], Rounds] = lambda prompt: ((0, 1), (4, 3)) * 5  # noqa: E731
    row = found(tmp_path, made(COPIES, rows, looks=0.0005), COPIES.name)
    assert row["factor_drafting"] == pytest.approx(1.0) and row["measured_over_predicted"] == pytest.approx(1.0)
    free = found(tmp_path, made(COPIES, rows), COPIES.name)
    assert free["factor_drafting"] > 1.005


def test_a_tree_pays_for_its_levels_and_not_for_its_nodes(tmp_path: Path) -> None:
    """9 rows behind 49 tokens take 0.03 s, four levels 0.005: 3 x 0.011 / 0.036."""
    row = found(tmp_path, made(TREE, lambda prompt: ((8, 3),) * 6), TREE.name)
    assert row["predicted"] == pytest.approx(33 / 36)


def test_tokens_that_are_read_again_are_priced(tmp_path: Path) -> None:
    """One is read again in each round, for 6 ms: 33 / 24."""
    priced = replace(PROFILE, rollback=RollbackPrice(0.0, 0.006))
    rows = [replace(row, reread=row.rounds if row.configuration == SD.name else 0) for row in made()]
    assert found(tmp_path, iter(rows), prices=Prices({"full": priced}, SETTINGS))["predicted"] == pytest.approx(33 / 24)


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.2])
def test_factors_multiply_to_what_was_measured(noise: float, tmp_path: Path) -> None:
    row = found(tmp_path, made(rounds=uneven, noise=noise, prompts=11, ar=1.1, draft=1.3))
    before, after = (math.prod(row[name] for name in names) for names in (BEFORE, AFTER))
    assert row[AT_MEANS] * before == pytest.approx(row["predicted"])
    assert row["predicted"] * after == pytest.approx(row["speedup"])


def test_only_what_is_off_is_marked(tmp_path: Path) -> None:
    """Prompts scatter by 5 % around the truth; then drafting takes twice as long as priced."""
    fair, unfair = (shown(tmp_path, made(noise=0.05, prompts=20, draft=each)) for each in (1.0, 2.0))
    for rows, off in ((fair, False), (unfair, True)):
        table = speed_table("Speed", rows)
        cell = dict(zip(table.headers, table.rows[1], strict=True))[CALIBRATED]
        assert cell.endswith(" off") is off and "[" in cell
    assert not any(math.isnan(fair.set_index("configuration").loc[SD.name, name]) for name in INTERVAL)


def test_the_interval_holds_the_truth_as_often_as_it_says(tmp_path: Path) -> None:
    """Twenty runs without a fault: at most 4 are marked (20 of 95 %: 99.7 %)."""
    rng, marked = random.Random(3), 0
    for _ in range(20):
        scatter = [math.exp(rng.gauss(0.0, 0.1)) for _ in range(9)]
        records = (
            replace(
                each, speedup=(each.speedup or 1.0) * (scatter[place // 2] if each.configuration == SD.name else 1.0)
            )
            for place, each in enumerate(made())
        )
        row = found(tmp_path, records)
        marked += bool(row["measured_over_predicted_low"] > 1.0 or row["measured_over_predicted_high"] < 1.0)
    assert marked <= 4


def test_files_without_rounds_are_priced_at_their_mean(tmp_path: Path) -> None:
    row = found(tmp_path, (replace(each, drafted_by_round=None) for each in made(rounds=stepped)))
    assert row["factor_rows"] == pytest.approx(1.0) and row["predicted"] == pytest.approx(row[AT_MEANS])


def test_without_prices_nothing_is_predicted(tmp_path: Path) -> None:
    rows = summarise(load_results(write_results(tmp_path / "r.csv", made())))
    assert rows[["predicted", *INTERVAL, *BEFORE, *AFTER]].isna().all(axis=None)
    assert factor_table("x", rows) is None and PREDICTED not in speed_table("x", rows).headers
    unknown = shown(tmp_path, made(), Prices({}, SETTINGS))
    assert unknown["predicted"].isna().all()


def test_the_table_of_factors_tells_each(tmp_path: Path) -> None:
    table = factor_table("x", shown(tmp_path, made(ar=1.1)))
    assert table is not None and len(table.rows) == 1
    assert dict(zip(table.headers, table.rows[0], strict=True))["AR"] == "1.10"
    assert all(words in table.notes[0] for words in (*BEFORE.values(), "the target's forwards"))
