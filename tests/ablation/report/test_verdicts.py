"""What a report says of a configuration, it says everywhere; and why."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.container import BarContainer
from rich.console import Console

from ablation.plan.grid import Configuration, titled
from ablation.report.content import ReportContent, make_section
from ablation.report.markdown import markdown
from ablation.report.plots.ledger import ledger_figure
from ablation.report.tables.bounds import NO_BOUNDS
from ablation.report.tables.paired import TOO_FEW, UNSHOWN, can_tell, enough
from ablation.report.tables.summary import summarise
from ablation.report.terminal import print_summary
from ablation.report.write import write_report
from tests.ablation.frames import SD, against_ar, cautions, pairs_of, ran, row, table
from tests.ablation.synthetic import AGAIN, PLAIN, four, invented, record, write_results
from utils.numbers.intervals import share_interval

OTHERS = [Configuration("speculative", (("gamma", gamma),)) for gamma in (1, 2)]
EGAG = Configuration("egag", (("egag_gamma_max", 4),))
# Of nine prompts the last is against the others, and two are closer to 1: p = 10 / 512, and 30 / 512 among three.
LEANING = (1.3, 1.25, 1.2, 1.35, 1.4, 1.28, 1.02, 1.03, 0.96)


def texts(frame: pd.DataFrame, tmp_path: Path) -> dict[str, str]:
    """What a reader sees of a frame's first processor, by where it is seen."""
    summary, pairs = summarise(frame), pairs_of(frame)
    section = make_section(str(summary["processor"].iloc[0]), summary, pairs, (), (), NO_BOUNDS)
    console = Console(width=400, record=True, quiet=False, file=(tmp_path / "out").open("w"))
    print_summary(console, summary, ())
    return {"markdown": markdown(ReportContent("t", "", (), (section,), None)), "terminal": console.export_text()}


def test_one_verdict_stands_everywhere(tmp_path: Path) -> None:
    """Alone it would be called faster, and its interval leaves out 1: among three it is not shown."""
    alone = table(tmp_path, *against_ar({SD: LEANING}))
    assert row(alone, SD.name)["against_ar"] == "faster"
    among = table(tmp_path, *against_ar({SD: LEANING, **dict.fromkeys(OTHERS, LEANING[::-1])}))
    found = row(among, SD.name)
    assert found["speedup_low"] > 1.0 and (found["p"], found["p_holm"]) == pytest.approx((10 / 512, 30 / 512))
    assert (found["against_ar"], found["compared"]) == (UNSHOWN, 9)
    pairs = pairs_of(among)
    assert not any("faster" in verdict or "slower" in verdict for verdict in pairs["verdict"])
    told = pairs[pairs["b"] == "target"].set_index("a").loc[SD.name]
    assert [told["p"], told["p_holm"], told["low"]] == [found["p"], found["p_holm"], found["speedup_low"]]
    for place, text in texts(among, tmp_path).items():
        rows = [line for line in text.splitlines() if titled(SD.name) in line]
        assert rows and not any("faster" in line for line in rows), place
        assert "may exclude 1 although no difference is shown" in text, place
    assert "n.s.: not significant" in texts(among, tmp_path)["terminal"]
    assert f"{UNSHOWN} (p = 0.059, n = 9)" in texts(among, tmp_path)["markdown"]


@pytest.mark.usefixtures("undrawn")
def test_the_page_says_the_same(tmp_path: Path) -> None:
    report = write_report(write_results(tmp_path / "r.csv", invented(four(), prompts=8)))
    pages = [(report.folder / name).read_text(encoding="utf-8") for name in ("report.md", "index.html")]
    shown = report.summary[report.summary["configuration"] == SD.name].iloc[0]
    assert all(f"{shown['against_ar']} (p = {shown['p_holm']:.2g}, n = 8)" in page for page in pages)


def test_a_median_against_the_test_is_no_verdict(tmp_path: Path) -> None:
    """Sixteen small gains and fourteen large losses: the median says faster, and the test, p = 0.047, slower."""
    ratios = [1.001 + place / 1000 for place in range(16)] + [0.6 - place / 100 for place in range(14)]
    for mixed, sign in ((ratios, 1), ([1 / ratio for ratio in ratios], -1)):
        frame = table(tmp_path, *against_ar({SD: mixed}))
        found = row(frame, SD.name)
        assert found["p_holm"] < 0.05 and sign * (found["speedup"] - 1.0) > 0.0 > sign * found["effect"]
        assert found["against_ar"] == UNSHOWN
        assert f"{SD.name} against target: {UNSHOWN}" in pairs_of(frame)["verdict"].iloc[0]
        assert all("have opposite signs" in text for text in texts(frame, tmp_path).values())


def test_too_few_prompts_are_told_from_no_difference(tmp_path: Path) -> None:
    faster = [1.5 + place / 100 for place in range(5)]
    assert row(table(tmp_path, *against_ar({SD: faster})), SD.name)["against_ar"] == TOO_FEW
    assert "fewer than 6 prompts cannot show" in texts(table(tmp_path, *against_ar({SD: faster})), tmp_path)["terminal"]
    seven = [1.5 + place / 100 for place in range(7)]
    four_ways = dict.fromkeys([SD, *OTHERS, EGAG], seven)
    assert row(table(tmp_path, *against_ar(four_ways)), SD.name)["against_ar"] == TOO_FEW  # 4 * 2 / 128 > 0.05


@pytest.mark.parametrize(("comparisons", "prompts"), [(1, 6), (2, 7), (3, 7), (4, 8), (11, 9), (13, 10)])
def test_how_many_prompts_are_enough(comparisons: int, prompts: int) -> None:
    assert enough(comparisons) == prompts
    assert can_tell(prompts, comparisons) and not can_tell(prompts - 1, comparisons)


def test_the_control_is_no_question_of_the_family(tmp_path: Path) -> None:
    with_control = [*against_ar({SD: LEANING}), *(ran(AGAIN, f"p{n}", 10.0 + n / 50) for n in range(9))]
    frame = table(tmp_path, *with_control)
    assert row(frame, SD.name)["p_holm"] == pytest.approx(10 / 512)
    assert row(frame, "control")["against_ar"].startswith("noise: ")


def drafting(gamma: float, drafted: int = 8) -> dict[str, Any]:
    lists = {"accept_hist": [1, 3], "tested_at": [4], "tokens_by_round": [2, 2, 2, 1]}
    return lists | {"drafted": drafted, "tested": 4, "accepted": 3, "min_gamma": gamma, "max_gamma": gamma}


def test_what_did_the_same_in_every_round_is_one_configuration(tmp_path: Path) -> None:
    """Under two names it was measured twice: 1.2 and 1.5 differ by noise, and no test is spent on it."""
    ratios = [1.2 + place / 100 for place in range(8)]
    records = against_ar({SD: ratios, EGAG: [ratio * 1.25 for ratio in ratios]}, **drafting(2))
    records += [ran(OTHERS[0], f"p{n}", 9.0 - n / 50, **drafting(1, 4)) for n in range(8)]
    frame = table(tmp_path, *records)
    said = " ".join(cautions(frame))
    assert f"{SD.name} and {EGAG.name} drafted and emitted the same tokens in every round" in said and "+25.0 %" in said
    pairs = pairs_of(frame).set_index(["a", "b"])
    same = pairs.loc[(EGAG.name, SD.name)]
    assert "their difference is noise" in same["verdict"] and math.isnan(same["p"])
    among = pairs[(pairs.index.get_level_values("b") != "target") & pairs["p"].notna()]
    assert list(among["p_holm"]) == pytest.approx([2 * 2 / 2**8] * 2)  # a family of two, not of three
    one_differs = [*records[:-1], ran(EGAG, "p8", 5.0, **drafting(2) | {"tokens_by_round": [1, 2, 2, 2]})]
    one_differs += [ran(PLAIN, "p8", 10.0), ran(SD, "p8", 5.0, **drafting(2))]
    assert "the same tokens in every round" not in " ".join(cautions(table(tmp_path, *one_differs)))


@pytest.mark.parametrize(("least", "words"), [(4, "never moved: it is a fixed gamma of 4"), (1, "asked for 1 to 4")])
def test_a_rule_that_never_moved_is_told(tmp_path: Path, least: int, words: str) -> None:
    moved = drafting(4) | {"min_gamma": least, "mean_gamma": 3.0}
    stayed = [ran(SD, f"p{n}", 9.0, **drafting(4)) for n in range(2)]
    frame = table(tmp_path, *against_ar({EGAG: [1.1, 1.2]}, **moved), *stayed)
    found = texts(frame, tmp_path)
    assert all(words in text for text in found.values())
    assert f"| 3.00 ({least} to 4) |" in found["markdown"]
    assert "speculative gamma=4: asked for" not in found["terminal"]  # a fixed gamma has no choice


def test_a_slow_row_says_why(tmp_path: Path) -> None:
    """Of 40 ms for AR's forward: 9.6 ms for 4 drafts, 52.4 ms for 5 rows; 82 rounds bring 100 tokens."""
    plain = {"draft_ms": 0.0, "verify_ms": 40.0, "other_ms": 0.0, "rounds": 100}
    slow = {"draft_ms": 9.6, "verify_ms": 52.4, "other_ms": 0.0, "rounds": 82, "drafted": 328}
    decode_s = 82 * 0.062
    records = [ran(PLAIN, id, 4.0, 4.0, **plain) for id in ("p1", "p2")]
    records += [ran(SD, id, decode_s, 4.0, **slow) for id in ("p1", "p2")]
    frame = table(tmp_path, *records)
    found = row(frame, SD.name)
    assert (found["v"], found["draft_cost"], found["break_even"]) == pytest.approx((1.31, 0.24, 1.55))
    assert found["tokens_per_round"] / found["break_even"] == pytest.approx(found["ratio_of_sums"])
    forwards, more_rows, drafts = 40.0 * 0.82, 12.4 * 0.82, 9.6 * 0.82
    parts = [found[f"token_{part}_ms"] for part in ("verify", "growth", "draft", "judging", "rest")]
    assert parts == pytest.approx([forwards, more_rows, drafts, 0.0, 0.0])
    reason = (
        "median speedup 0.79: 1.22 tokens a round save 7.2 of AR's 40.0 ms a token; verifying more rows takes 10.2, "
        "drafting takes 7.9: 10.8 ms slower; break-even needs 1.55 tokens a round"
    )
    assert all(f"{titled(SD.name)}, {reason}" in text for text in texts(frame, tmp_path).values())


def test_a_ledger_is_drawn_from_the_same_parts(tmp_path: Path) -> None:
    """32.8 ms of forwards, 10.2 of more rows and 7.9 of drafts end to end; AR's 40 ms stand first and as a line."""
    plain = {"draft_ms": 0.0, "verify_ms": 40.0, "other_ms": 0.0, "rounds": 100}
    slow = {"draft_ms": 9.6, "verify_ms": 52.4, "other_ms": 0.0, "rounds": 82, "drafted": 328}
    ids = ("p1", "p2")
    records = [ran(PLAIN, id, 4.0, 4.0, **plain) for id in ids] + [ran(SD, id, 82 * 0.062, 4.0, **slow) for id in ids]
    summary = summarise(table(tmp_path, *records))
    figure = ledger_figure(summary, "greedy")
    assert not isinstance(figure, str)
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == [titled(SD.name), "AR (target)"], (
        "from below: AR on top"
    )
    bars = [bars for bars in axis.containers if isinstance(bars, BarContainer)]
    pieces = [(bar[0].get_x(), bar[0].get_width()) for bar in bars]
    assert pieces[0] == pytest.approx((0.0, 32.8)) and pieces[1] == pytest.approx((32.8, 10.168))
    assert pieces[2] == pytest.approx((42.968, 7.872)) and pieces[3][1] == pytest.approx(0.0)
    assert [text.get_text() for text in axis.texts] == ["50.8 ms, 0.79", "40.0 ms, 1.00"]
    assert axis.get_xlabel().endswith("right: their sum, the ratio of sums")
    assert [bars.get_label() for bars in bars] == ["verify", "growth", "draft", "judging", "rest"]
    assert list(axis.lines[0].get_xdata()) == pytest.approx([40.0, 40.0])  # type: ignore[arg-type]
    unknown = ledger_figure(summarise(table(tmp_path, ran(PLAIN, "p1", 4.0), ran(SD, "p1", 3.0))), "greedy")
    assert unknown == "No configuration's times are known beside AR's."


def test_rates_have_intervals_over_prompts(tmp_path: Path) -> None:
    """60 of 80 and 0 of 20, three times: 0.6 of all; of four prompts nothing is known."""
    rates = [{"tested": 80, "accepted": 60, "rounds": 40}, {"tested": 20, "accepted": 0, "rounds": 100}] * 3
    records = [one for n in range(6) for one in (ran(PLAIN, f"p{n}", 10.0), ran(SD, f"p{n}", 5.0, **rates[n]))]
    found, few = (row(table(tmp_path, *records[:count]), SD.name) for count in (12, 8))
    (low,), (high,) = share_interval(np.array([[60.0], [0.0]] * 3), np.array([[80.0], [20.0]] * 3))
    assert (found["alpha_low"], found["alpha_high"]) == pytest.approx((low, high))
    for name, middle, ends in (("alpha", 0.6, (0.0, 1.0)), ("tokens_per_round", 200 / 140, (1.0, 2.5))):
        assert found[name] == few[name] == pytest.approx(middle)
        assert ends[0] <= found[f"{name}_low"] < middle < found[f"{name}_high"] <= ends[1]
        assert math.isnan(few[f"{name}_low"]) and math.isnan(few[f"{name}_high"])


def test_an_older_files_tested_is_counted_anew(tmp_path: Path) -> None:
    """It says 9 for positions that were judged 4 and 2 times: it counted a tree's siblings."""
    old = {"tested": 9, "tested_at": [4, 2], "accepted": 3, "drafted": 12, "accept_hist": [2, 1, 1]}
    frame = table(tmp_path, ran(PLAIN, "p1", 10.0), ran(SD, "p1", 5.0, **old))
    assert row(frame, SD.name)["alpha"] == pytest.approx(3 / 6)
    assert any("alpha of trees counts siblings" in said for said in cautions(frame))
    new = table(tmp_path, ran(PLAIN, "p1", 10.0), ran(SD, "p1", 5.0, **old | {"tested": 6}))
    assert not any("older version" in said for said in cautions(new))


def test_a_reason_is_of_the_runs_that_ar_ran_beside(tmp_path: Path) -> None:
    """AR failed on two of four prompts, where the drafts were good: 1.25 tokens a round against 1.5, not 2.0."""
    plain = {"draft_ms": 0.0, "verify_ms": 100.0, "other_ms": 0.0}
    slow = {"draft_ms": 20.0, "verify_ms": 130.0, "other_ms": 0.0}
    records = [ran(PLAIN, f"p{place}", 10.0, **plain) for place in (1, 2)]
    records += [record(PLAIN, id=f"p{place}", error="out of memory") for place in (3, 4)]
    for place, rounds in enumerate((80, 80, 20, 20), start=1):
        ar_s = 10.0 if place < 3 else None
        records.append(ran(SD, f"p{place}", rounds * 0.15, ar_s, **slow, rounds=rounds, drafted=4 * rounds))
    frame = table(tmp_path, *records)
    found = row(frame, SD.name)
    assert (found["tokens_per_round"], found["compared_tokens_per_round"]) == (2.0, 1.25)
    assert found["compared_tokens_per_round"] / found["break_even"] == pytest.approx(found["ratio_of_sums"])
    for text in texts(frame, tmp_path).values():
        assert "1.25 tokens a round save" in text and "break-even needs 1.50 tokens a round." in text
