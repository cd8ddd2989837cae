"""The numbers of a report against numbers worked out by hand."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wilcoxon

from ablation.plan.grid import Configuration
from ablation.report.plots.acceptance import histogram_figure, position_figure
from ablation.report.plots.figure import WIDTH
from ablation.report.plots.speedup import gamma_figure, speedup_figure
from ablation.report.tables.acceptance import Positions, positions
from ablation.report.tables.paired import can_tell, signed_ranks
from ablation.report.tables.pairs import shown
from ablation.report.tables.rates import summed
from ablation.report.tables.summary import log_speedups, speeds, summarise
from tests.ablation.frames import CLEAN, NGRAM, SD, cautions, pairs_of, ran, row, table
from tests.ablation.synthetic import AGAIN, GREEDY, NUCLEUS, PLAIN, record
from utils.numbers.holm import holm


def small(tmp_path: Path) -> pd.DataFrame:
    """2 prompts x 3 configurations. Ratios of SD: 2 on p1, 1/2 on p2; of n-grams: 1.25 on both."""
    return table(
        tmp_path,
        ran(PLAIN, "p1", 10.0),
        ran(SD, "p1", 5.0, drafted=100, tested=80, accepted=60, rounds=40, c=0.1, divergence_verdict="exact"),
        ran(NGRAM, "p1", 8.0, drafted=0, tested=0, accepted=0, divergence_verdict="tie"),
        ran(PLAIN, "p2", 2.0, 2.0, 20),
        ran(SD, "p2", 4.0, 2.0, 20, drafted=100, tested=20, accepted=0, rounds=20, c=0.3, divergence_verdict="BUG"),
        ran(NGRAM, "p2", 1.6, 2.0, 20, lossless=False),
    )


def test_speedup_is_a_median_over_prompts_and_the_ratio_of_sums_weighs_by_tokens(tmp_path: Path) -> None:
    found = row(small(tmp_path), SD.name)
    assert found["speedup"] == pytest.approx(1.0)  # the middle of 2 and 1/2 on the log scale
    assert math.isnan(found["speedup_low"]) and math.isnan(found["speedup_high"])  # of two prompts
    assert found["ratio_of_sums"] == pytest.approx((120 / 9) / (120 / 12))
    assert found["tokens_per_s_mean"] == pytest.approx(12.5)
    assert found["tokens_per_s_sd"] == pytest.approx(15 / math.sqrt(2))  # 20 and 5
    assert (found["prompts"], found["runs"], found["failed"]) == (2, 2, 0)


def test_rates_are_ratios_of_sums_and_nothing_drafted_is_unknown(tmp_path: Path) -> None:
    frame = small(tmp_path)
    found, nothing = row(frame, SD.name), row(frame, f"{NGRAM.name} LOSSY")
    assert found["acceptance_rate"] == pytest.approx(60 / 200)
    assert found["alpha"] == pytest.approx(60 / 100)
    assert found["tokens_per_round"] == pytest.approx(120 / 60)
    assert found["c"] == pytest.approx(0.2)
    assert math.isnan(nothing["acceptance_rate"]) and math.isnan(nothing["alpha"])


def test_verdicts_are_counted_and_lossy_is_stamped(tmp_path: Path) -> None:
    frame = small(tmp_path)
    sd, ngram, reference = (row(frame, name) for name in (SD.name, f"{NGRAM.name} LOSSY", "target"))
    assert [sd["exact"], sd["tie"], sd["bug"], sd["not_compared"]] == [1, 0, 1, 0]
    assert [ngram["exact"], ngram["tie"], ngram["bug"], ngram["not_compared"]] == [0, 1, 0, 1]
    assert (sd["lossless"], ngram["lossless"]) == ("lossless", "LOSSY")
    assert reference["speedup"] == 1.0 and reference["against_ar"] == "the reference"


def test_repeats_of_a_prompt_do_not_shrink_the_interval(tmp_path: Path) -> None:
    def frame(repeats: int) -> pd.DataFrame:
        records = []
        for repeat in range(repeats):
            for place, seconds in enumerate((4.0, 5.0, 8.0, 10.0, 20.0)):
                records += [ran(PLAIN, f"p{place}", 10.0, repeat=repeat), ran(SD, f"p{place}", seconds, repeat=repeat)]
        return table(tmp_path, *records)

    once, often = row(frame(1), SD.name), row(frame(10), SD.name)
    assert often["runs"] == 50 and often["prompts"] == 5
    assert list(often[["speedup", "speedup_low", "speedup_high"]]) == pytest.approx(
        list(once[["speedup", "speedup_low", "speedup_high"]])
    )
    assert once["speedup_low"] < once["speedup"] < once["speedup_high"]


def test_within_a_prompt_the_ratios_have_a_geometric_mean(tmp_path: Path) -> None:
    records = [ran(PLAIN, "p1", 10.0, repeat=repeat) for repeat in range(2)]
    records += [ran(SD, "p1", 10.0 / ratio, repeat=repeat) for repeat, ratio in enumerate((1.0, 4.0))]
    found = row(table(tmp_path, *records), SD.name)
    assert found["speedup"] == pytest.approx(2.0) and math.isnan(found["speedup_low"])


def test_failed_runs_count_nowhere(tmp_path: Path) -> None:
    failed = record(SD, id="p2", error="out of memory")
    frame = table(tmp_path, ran(PLAIN, "p1", 10.0), ran(SD, "p1", 5.0), ran(PLAIN, "p2", 10.0), failed)
    found = row(frame, SD.name)
    assert (found["prompts"], found["runs"], found["failed"]) == (1, 1, 1)
    assert found["ratio_of_sums"] == pytest.approx(2.0) and found["not_compared"] == 1
    assert any("1 of 4 runs failed" in w and "out of memory" in w for w in cautions(frame))


def test_a_run_without_speed_counts_in_no_ratio(tmp_path: Path) -> None:
    """A logarithm of nothing would make the medians of all prompts minus infinity."""
    records = [ran(PLAIN, f"p{place}", 10.0) for place in range(4)]
    records += [ran(SD, f"p{place}", 5.0) for place in range(4)]
    records += [ran(NGRAM, f"p{place}", 8.0) for place in range(5)]
    records += [replace(ran(SD, "p4", 5.0), tokens_per_s=0.0, speedup=0.0), ran(PLAIN, "p4", 10.0)]
    frame = table(tmp_path, *records)
    found = row(frame, SD.name)
    assert found["speedup"] == pytest.approx(2.0)
    pairs = pairs_of(frame).set_index(["a", "b"])
    ratios = pairs["ratio"]
    assert ratios[(NGRAM.name, SD.name)] == pytest.approx(0.625) and ratios[(SD.name, "target")] == pytest.approx(2.0)
    assert pairs["prompts"].to_dict() == {(SD.name, "target"): 4, (NGRAM.name, "target"): 5, (NGRAM.name, SD.name): 4}
    assert log_speedups(frame).isna().sum() == 1
    assert len(speeds(frame)) == 14


def test_tasks_and_processors_are_told_apart(tmp_path: Path) -> None:
    records = []
    for processor, ratio in ((GREEDY, 2.0), (NUCLEUS, 4.0)):
        for id, task in (("p1", "code"), ("p2", None)):
            about = {"processor": processor, "task": task}
            records += [ran(PLAIN, id, 10.0, **about), ran(SD, id, 10.0 / (ratio if task else 1.0), **about)]
    frame = table(tmp_path, *records)
    assert row(frame, SD.name, "code")["speedup"] == pytest.approx(2.0)
    assert row(frame, SD.name, "code", "nucleus 0.8 0.9")["speedup"] == pytest.approx(4.0)
    assert row(frame, SD.name, "no task")["speedup"] == pytest.approx(1.0)


@pytest.mark.parametrize(("seconds", "word"), [(5.0, "faster"), (20.0, "slower")])
def test_faster_and_slower_are_words(tmp_path: Path, seconds: float, word: str) -> None:
    def frame(prompts: int) -> pd.DataFrame:
        both = [(ran(PLAIN, f"p{n}", 10.0), ran(SD, f"p{n}", seconds + n / 100)) for n in range(prompts)]
        return table(tmp_path, *(one for pair in both for one in pair))

    assert row(frame(6), SD.name)["against_ar"] == word
    assert row(frame(2), SD.name)["against_ar"] == "too few prompts to show any"


def paired(tmp_path: Path, ratios: list[float], repeats: int = 1) -> pd.Series:
    """The only pair of a result: SD against AR."""
    records = []
    for place, ratio in enumerate(ratios):
        for repeat in range(repeats):
            records += [ran(PLAIN, f"p{place}", 10.0, repeat=repeat), ran(SD, f"p{place}", 10.0 / ratio, repeat=repeat)]
    pairs = pairs_of(table(tmp_path, *records))
    assert len(pairs) == 1
    return pairs.iloc[0]


def test_a_pair_is_tested_by_prompt(tmp_path: Path) -> None:
    ratios = [1.3, 1.1, 0.95, 1.2, 1.4, 1.5, 1.6]
    found = paired(tmp_path, ratios, repeats=3)
    assert found["p"] == pytest.approx(wilcoxon(np.log(ratios)).pvalue)
    assert found["ratio"] == pytest.approx(1.3) and found["prompts"] == 7
    assert found["effect"] == pytest.approx((28 - 2 * 1) / 28)  # only the smallest of seven ranks is negative
    assert found["p_holm"] == found["p"]  # a single pair needs no correction
    assert found["verdict"].startswith(f"{SD.name} is faster than target by 30.0 % (median, 95 % interval ")
    assert "n = 7" in found["verdict"]


def test_verdicts_of_pairs(tmp_path: Path) -> None:
    assert "is slower than target by 50.0 %" in paired(tmp_path, [0.5, 0.51, 0.49, 0.48, 0.52, 0.5005])["verdict"]
    mixed = [1.1, 0.9, 1.2, 0.8, 1.3, 0.7, 1.02]
    assert "no difference shown" in paired(tmp_path, mixed)["verdict"]
    assert "too few prompts to show any" in paired(tmp_path, [2.0, 2.1, 2.2, 2.3, 2.4])["verdict"]


def test_five_prompts_can_never_tell_and_six_only_for_one_pair() -> None:
    assert not can_tell(5, 1) and can_tell(6, 1)
    assert not can_tell(6, 2) and can_tell(7, 3) and not can_tell(7, 4)


def test_batches_are_tested_like_single_samples() -> None:
    rng = np.random.default_rng(1)
    plain = [rng.normal(0.1, 1.0, 12) for _ in range(3)]
    tied = np.array([0.1, -0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    zeros = np.array([0.0, 0.0, 0.3, -0.1, 0.2, 0.5])
    samples = [plain[0], tied, plain[1], zeros, plain[2], np.zeros(4)]
    found = signed_ranks(samples)
    assert [p for p, _ in found[:-1]] == pytest.approx([wilcoxon(s[s != 0.0]).pvalue for s in samples[:-1]])
    assert found[-1] == (1.0, 0.0)
    assert found[3][1] == pytest.approx((3 + 2 + 4 - 1) / 10)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.5]) == [1.0, 1.0] and holm([]) == []


def test_three_configurations_make_three_corrected_pairs(tmp_path: Path) -> None:
    records = []
    for place in range(8):
        seconds = {PLAIN: 10.0, SD: 5.0 + place / 10, NGRAM: 10.0 + (place - 3.6) / 7}
        records += [ran(configuration, f"p{place}", seconds[configuration]) for configuration in (PLAIN, SD, NGRAM)]
    pairs = pairs_of(table(tmp_path, *records, *(ran(AGAIN, f"p{n}", 10.0) for n in range(8))))
    assert set(zip(pairs["a"], pairs["b"], strict=True)) == {
        (SD.name, "target"),
        ("ngram", "target"),
        ("ngram", SD.name),
    }
    # Two families: two configurations against AR, and one pair among themselves.
    p = list(pairs["p"])
    assert list(pairs["b"]) == ["target", "target", SD.name]
    assert list(pairs["p_holm"]) == pytest.approx([*holm(p[:2]), p[2]]) and min(p[:2]) == pytest.approx(2 / 2**8)


def test_beyond_thirty_pairs_only_those_against_ar_and_between_first_ones_are_shown() -> None:
    names = ["target", *(f"sd {n}" for n in range(5)), *(f"ng {n}" for n in range(5))]
    methods = {name: name.split()[0] for name in names}
    every = [(a, b) for place, b in enumerate(names) for a in names[place + 1 :]]
    pairs = pd.DataFrame(every, columns=["a", "b"]).assign(processor="greedy")
    found = shown(pairs, methods)
    assert len(pairs) == 55 and len(found) == 11
    assert ("ng 0", "sd 0") in set(zip(found["a"], found["b"], strict=True))
    assert len(shown(pairs, methods, most=55)) == 55
    assert len(shown(pairs[-30:], methods)) == 30 > len(shown(pairs[-31:], methods))


def test_without_ar_there_is_no_speedup_but_pairs(tmp_path: Path) -> None:
    records = [ran(configuration, f"p{n}", 5.0 + n, None) for n in range(6) for configuration in (SD, NGRAM)]
    frame = table(tmp_path, *records)
    found = row(frame, SD.name)
    assert math.isnan(found["speedup"]) and math.isnan(found["ratio_of_sums"]) and found["against_ar"] == ""
    assert len(pairs_of(frame)) == 1
    assert any("without AR" in warning for warning in cautions(frame))


def warned(frame: pd.DataFrame, manifest: dict[str, Any] | None = None) -> str:
    return "\n".join(cautions(frame, manifest or CLEAN))


def test_nothing_is_warned_of_without_a_reason(tmp_path: Path) -> None:
    records = [ran(c, f"p{n}", 10.0 + n / 50, 10.0 + n / 50) for n in range(6) for c in (PLAIN, AGAIN, NGRAM)]
    assert warned(table(tmp_path, *records)) == ""


def test_bugs_lossy_methods_and_few_prompts_are_warned_of(tmp_path: Path) -> None:
    text = warned(small(tmp_path))
    assert text.startswith(f"BUG: {SD.name} gave other ids than AR under greedy in 1 run,")
    assert "LOSSY: the output of ngram" in text and "Only 2 prompts" in text


def test_what_capturing_graphs_took_is_a_share_of_its_own(tmp_path: Path) -> None:
    runs = [ran(PLAIN, "a", 10.0, wall_s=14.0, capture_s=2.0), ran(SD, "a", 5.0, wall_s=6.0, capture_s=0.0)]
    text = "\n".join(cautions(table(tmp_path, *runs)))
    assert "Graphs were captured in 1 of 2 runs, for 2.0 s: 10.0% of the 20.0 s that a watch shows" in text
    without = [replace(run, capture_s=None) for run in runs]
    assert "captured" not in "\n".join(cautions(table(tmp_path, *without)))


def test_an_unsteady_machine_is_warned_of(tmp_path: Path) -> None:
    records = []
    for place in range(6):
        busy = {"other_cores": 0.5 if place == 0 else 0.0, "cpu_mhz": 3000.0 - 50 * place}
        again = 12.5 if place == 1 else 10.1
        records += [ran(PLAIN, f"p{place}", 10.0, **busy), ran(AGAIN, f"p{place}", again, **busy)]
    text = warned(table(tmp_path, *records))
    assert "more than 10% on 1 of 6 prompts, the most on p1 (22%)" in text  # 10 and 8 tokens/s around 9
    assert "more than 0.2 cores busy in 16.7% of the runs" in text
    assert "between 2750 and 3000 MHz" in text
    assert "a second run of AR has a median speedup of 0.990" in text


def test_a_run_that_is_not_over_is_warned_of(tmp_path: Path) -> None:
    assert "1 of 2 blocks lack a configuration" in warned(
        table(tmp_path, ran(PLAIN, "p1", 10.0), ran(SD, "p1", 5.0), ran(PLAIN, "p2", 10.0))
    )


def test_code_that_changed_is_warned_of(tmp_path: Path) -> None:
    changed = {**CLEAN, "uncommitted_changes": True, "runs": [{"commit": "b"}, {"code": "d"}]}
    text = warned(small(tmp_path), changed)
    assert "uncommitted changes" in text and "2 commits: a, b" in text and "2 versions of the code: c, d" in text


def test_acceptance_by_position_by_hand(tmp_path: Path) -> None:
    one = Positions("speculative", "sd", np.array([[5.0, 3.0, 2.0]]), np.array([[10.0, 5.0]]))
    assert [(share.position, share.share, share.rounds) for share in one.unconditional()] == [
        (1, 0.5, 10),
        (2, 0.2, 10),
    ]
    assert [(share.position, share.share, share.rounds) for share in one.conditional()] == [(1, 0.5, 10), (2, 0.4, 5)]
    assert all(math.isnan(share.low) for share in one.conditional())  # a single prompt has no interval
    assert one.mean().share == pytest.approx(0.7) and one.shares == pytest.approx([0.5, 0.3, 0.2])
    assert summed(["1 2", "3", "0 1 1"]) == [4, 3, 1]
    lists = {"drafted": 4, "accept_hist": [1, 2], "tested_at": [3]}
    longer = {"drafted": 8, "accept_hist": [0, 1, 1], "tested_at": [2, 2]}
    found = positions(table(tmp_path, ran(SD, "p1", 5.0, **lists), ran(SD, "p2", 5.0, **longer), ran(PLAIN, "p1", 9.0)))
    assert [one.name for one in found] == [SD.name]
    assert found[0].hist.tolist() == [[1, 2, 0], [0, 1, 1]] and found[0].tested.tolist() == [[3, 0], [2, 2]]
    first, second = found[0].conditional()
    assert first.share == pytest.approx(4 / 5) and math.isnan(first.low)
    assert second.share == pytest.approx(1 / 2) and math.isnan(second.low)
    often = Positions("speculative", "sd", np.tile([[5.0, 3, 2]], (5, 1)), np.array([[10.0, 5]] * 4 + [[10.0, 0]]))
    first, second = often.conditional()
    # All five agree: the binomial interval of 25 of 50. Only four prompts came to the second place.
    assert (first.low, first.high) == pytest.approx((0.3553, 0.6447), abs=1e-4) and math.isnan(second.low)


def test_equal_curves_stand_beside_each_other_and_no_point_is_dropped() -> None:
    hist, tested = np.array([[60.0, 30, 2], [60.0, 30, 2]]), np.array([[92.0, 4], [92.0, 4]])
    alike = [Positions("mtp", f"mtp gamma={n}", hist, tested) for n in range(3)]
    figure: Any = position_figure(alike, "greedy", 2)
    left, right = figure.axes
    for axis in (left, right):
        curves = [line for line in axis.lines if line.get_linestyle() == "-"]
        assert [len(line.get_xdata()) for line in curves] == [2, 2, 2]
        assert len({tuple(line.get_xdata()) for line in curves}) == 3
    hollow = [len(line.get_xdata()) for line in right.lines if line.get_markerfacecolor() == "white"]
    assert hollow == [1, 1, 1]  # 8 rounds judged the second position


def test_the_smallest_bar_is_seen_and_named() -> None:
    one = Positions("mtp", "mtp", np.array([[600.0, 399, 0, 1]]), np.array([[1000.0, 400, 1]]))
    figure: Any = histogram_figure([one], "greedy", 1)
    assert [text.get_text() for text in figure.axes[0].texts] == ["60%", "40%", "<1%"]
    assert min(bar.get_height() for bar in figure.axes[0].patches) > 0.005


def test_no_figure_is_wider_than_a_page() -> None:
    counts = np.array([[50.0, 50]]), np.array([[100.0]])
    found = [Positions(f"method{n}", f"method{n}", *counts) for n in range(8)]
    rows = pd.DataFrame({"configuration": [f"method{n}" for n in range(8)], "speedup": 1.0, "prompts": 3})
    rows = rows.assign(method=rows["configuration"], speedup_low=0.9, speedup_high=1.1)
    tasks = pd.concat([rows.assign(task=task) for task in ("all", *"abcdefg")])
    drawn: list[Any] = [position_figure(found, "greedy", 1), histogram_figure(found, "greedy", 1)]
    for figure in (*drawn, speedup_figure(tasks, "greedy")):
        assert figure.get_size_inches()[0] == WIDTH


def test_the_gamma_plot_needs_two_configurations_that_differ_in_gamma_alone(tmp_path: Path) -> None:
    def figure(*configurations: Configuration) -> Any:
        frame = table(tmp_path, *(ran(c, "p1", 5.0, drafted=4, accepted=2) for c in (PLAIN, *configurations)))
        return gamma_figure(frame, summarise(frame), "greedy")

    other = Configuration("egag", (("egag_gamma_max", 8), ("egag_ema", 0.0)))
    assert "No two configurations" in figure(SD, NGRAM, Configuration("egag"), other)
    assert not isinstance(figure(SD, Configuration("speculative", (("gamma", 8),))), str)


def test_a_rule_stands_at_the_gamma_that_it_asked_for(tmp_path: Path) -> None:
    records = [ran(PLAIN, "p1", 10.0), ran(PLAIN, "p2", 10.0)]
    for most, mean in ((4, 2.5), (8, 3.5)):
        rule = Configuration("egag", (("egag_gamma_max", most),))
        drafts = {"drafted": 10, "accepted": 5, "mean_gamma": mean}
        records += [ran(rule, id, 5.0, **drafts) for id in ("p1", "p2")]
    frame = table(tmp_path, *records)
    figure: Any = gamma_figure(frame, summarise(frame), "greedy")
    speed, _ = figure.axes
    assert list(speed.lines[0].get_xdata()) == [2.5, 3.5]
    assert [text.get_text() for text in speed.texts] == ["max 4", "max 8"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["egag"]
