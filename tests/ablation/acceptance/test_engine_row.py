"""An engine's acceptance by position: its files as they are, and where it differs from ours."""

import json
from pathlib import Path

import pytest

from ablation.acceptance.engine_row import EngineRow, differences, read_row, verdict
from ablation.acceptance.paired import compare_acceptance
from sampling.measure.acceptance.estimate import IntervalEstimate
from tests.refusals import refused
from tests.sampling.measure.test_acceptance import hand

PAGE = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 200.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 190.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 120.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 70.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="0"} 1.7e+09
"""
BEFORE = PAGE.replace("200.0", "100.0").replace("120.0", "40.0").replace("70.0", "20.0")
# Lengths include the target's own token: 40 rounds of 100 accept nothing, 35 one draft, 25 two.
LENGTHS = {"1": 40, "2": 35, "3": 25}
JSON = {
    "histogram of specdec_bench": [{"Request_AL": {}, "Acceptance_Length_Histogram": LENGTHS}],
    "joint rates of specdec_bench": [{"Joint_Acceptance_Rate": {"1": 1.0, "2": 0.6, "3": 0.25}}],
    "profile": {"schema_version": "1.0", "marginal_accept_rates": [0.6, 0.25]},
    "profile with a histogram": {"marginal_accept_rates": [0.6, 0.25], "acceptance_length_histogram": LENGTHS},
}


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "row").write_text(text)
    return str(tmp_path / "row")


def test_vllms_page_of_metrics(tmp_path: Path) -> None:
    path = written(tmp_path, PAGE)
    assert read_row(path) == EngineRow((0.6, 0.35), 200.0)
    (tmp_path / "before").write_text(BEFORE)
    assert read_row(path, tmp_path / "before") == EngineRow((0.8, 0.5), 100.0)


def test_engines_side_by_side_are_added_up(tmp_path: Path) -> None:
    both = PAGE + PAGE.replace('engine="0"', 'engine="1"')
    assert read_row(written(tmp_path, both)) == EngineRow((0.6, 0.35), 400.0)


@pytest.mark.parametrize("form", JSON)
def test_nvidias_files(form: str, tmp_path: Path) -> None:
    row = read_row(written(tmp_path, json.dumps(JSON[form])))
    assert row.joint == pytest.approx((0.6, 0.25))
    assert row.rounds == (100 if "histogram" in form else None)


def test_requests_as_vllm_answers_them(tmp_path: Path) -> None:
    metrics = {"acceptance_histogram": {"0": 20, "1": 10, "2": 20}}
    lines = [json.dumps({"id": n, "metrics": {"speculative_decoding": metrics}}) for n in range(2)]
    assert read_row(written(tmp_path, "\n".join(lines))) == EngineRow((0.6, 0.4), 100.0)


def test_rates_on_the_command_line() -> None:
    assert read_row("0.7, .5,0.25") == EngineRow((0.7, 0.5, 0.25))


@pytest.mark.parametrize("text", ["nowhere.txt", "0.5,0.7", "1.5", ""])
def test_what_is_no_row_is_refused(text: str) -> None:
    with refused(f"'{text}'"):
        read_row(text)


def test_a_page_without_rounds_and_a_file_without_rates_are_refused(tmp_path: Path) -> None:
    with refused("no round"):
        read_row(written(tmp_path, PAGE.replace("200.0", "0.0")))
    with refused("acceptance by position"):
        read_row(written(tmp_path, '{"a": 1}'))
    with refused("--engine-row-before"):
        read_row(written(tmp_path, json.dumps(JSON["profile"])), tmp_path / "row")


OURS = [
    IntervalEstimate(0.7, 0.65, 0.75, 400.0),
    IntervalEstimate(0.6, 0.54, 0.66, 280.0),
    IntervalEstimate(0.6, 0.52, 0.68, 168.0),
]


@pytest.mark.parametrize(
    ("joint", "position", "says"),
    [
        ((0.69, 0.42, 0.24), None, "no position differs"),
        ((0.05, 0.03, 0.02), 1, "a shift by one token"),
        ((0.70, 0.02, 0.01), 2, "fed back"),
        ((0.95, 0.60, 0.36), 1, "accepts more"),
    ],
)
def test_the_first_position_that_differs_says_where_to_look(
    joint: tuple[float, ...], position: int | None, says: str
) -> None:
    found = differences(OURS, EngineRow(joint, 1000.0))
    assert next((each.position for each in found if each.differs), None) == position
    assert says in verdict(found)


def test_few_rounds_of_the_engine_show_nothing() -> None:
    assert not any(each.differs for each in differences(OURS, EngineRow((0.5, 0.3, 0.1), 8.0)))
    assert differences(OURS, EngineRow((0.5, 0.3, 0.1), 8000.0))[0].differs


def test_pairs_are_tested_over_texts() -> None:
    """Of eight texts the one drafter is right at half of the places, the other at none; a third is the first again."""
    nan = float("nan")
    good = [hand([[1], [0], [1], [0]], [[1], [0], [1], [0]]) for _ in range(8)]
    none = [hand([[0], [0], [0], [0]], [[0], [0], [0], [nan]]) for _ in range(8)]
    first, same, _ = compare_acceptance({"good": good, "none": none, "again": list(good)}, 1)
    assert (first.one, first.other, first.ratio) == ("good", "none", pytest.approx(1.5))
    assert first.p_holm == pytest.approx(3 * 2 / 2**8) and first.verdict == "good accepts more"
    assert (same.other, same.ratio, same.verdict) == ("again", 1.0, "no difference shown")
