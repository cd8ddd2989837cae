"""Acceptance under the names of others, against numbers worked out by hand."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ablation.plan.grid import Configuration
from ablation.report.export import write_acceptance
from ablation.results.acceptance_names import NAMES, acceptance_names
from ablation.results.column import keys
from ablation.results.record import Record
from tests.ablation.frames import NGRAM, SD
from tests.ablation.synthetic import PLAIN as AR
from tests.ablation.synthetic import record, write_results
from tests.refusals import refused

# Three rounds that drafted 3: nothing, all, one of them accepted.
FIRST: dict[str, Any] = {
    "id": "a", "task": "code", "new_tokens": 7, "rounds": 3, "drafted": 9, "tested": 6, "accepted": 4,
    "accept_hist": [1, 1, 0, 1], "tested_at": [3, 2, 1], "tokens_by_round": [1, 4, 2], "drafted_by_round": [3, 3, 3],
    "min_gamma": 3, "max_gamma": 3,
}  # fmt: skip
# Two rounds without a draft, then two accepted of 2, then two of 3, of which the second is a stop token.
SECOND: dict[str, Any] = {
    "id": "b", "task": "dialogue", "new_tokens": 7, "rounds": 4, "drafted": 5, "tested": 4, "accepted": 4,
    "accept_hist": [2, 0, 2], "tested_at": [2, 2], "tokens_by_round": [1, 1, 3, 2], "drafted_by_round": [0, 0, 2, 3],
    "min_gamma": 3, "max_gamma": 3,
}  # fmt: skip
PLAIN = {"rounds": 8, "drafted": 0, "tested": 0, "accepted": 0, "accept_hist": [8], "tokens_by_round": [1] * 8}


def exported(tmp_path: Path, *records: Any) -> Path:
    return write_acceptance(write_results(tmp_path / "r.csv", records), tmp_path / "out")


def by_hand(tmp_path: Path, configuration: Configuration = SD, **more: Any) -> Path:
    plain = [record(AR, **PLAIN | {"id": id}) for id in "ab"]
    return exported(tmp_path, *plain, *(record(configuration, **one | more) for one in (FIRST, SECOND)))


def rows(path: Path) -> list[dict[str, str]]:
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    return [dict(zip(head.split(","), line.split(","), strict=True)) for line in lines]


def test_our_own_table_says_conditional_and_joint_by_round_and_by_request(tmp_path: Path) -> None:
    (row,) = rows(by_hand(tmp_path) / "acceptance.csv")
    assert (row["requests"], row["rounds"], row["rounds_that_drafted"]) == ("2", "7", "5")
    assert [*map(float, row["conditional"].split())] == pytest.approx([4 / 5, 3 / 4, 1 / 1])
    assert [*map(float, row["joint"].split())] == pytest.approx([4 / 7, 3 / 7, 1 / 7], abs=1e-6)
    means = [float(row[f"{what}_by_{unit}"]) for unit in ("round", "request") for what in ("tokens", "accepted")]
    assert means == pytest.approx([14 / 7, 8 / 7, (7 / 3 + 7 / 4) / 2, (4 / 3 + 4 / 4) / 2])


def test_a_request_has_vllms_metrics(tmp_path: Path) -> None:
    """A step is a round that drafted, and the bonus token counts in the length and nowhere else."""
    lines = (by_hand(tmp_path) / "speculative_gamma=4" / "vllm.jsonl").read_text(encoding="utf-8").splitlines()
    first, second = (json.loads(line)["metrics"]["speculative_decoding"] for line in lines)
    assert json.loads(lines[0])["id"] == "a" and json.loads(lines[1])["configuration"] == SD.name
    assert first == {
        "mean_acceptance_length": pytest.approx(1 + 4 / 3),
        "draft_acceptance_rate": pytest.approx(4 / 9),
        "acceptance_histogram": {"0": 1, "1": 1, "3": 1},
        "num_spec_steps": 3,
        "num_accepted_draft_tokens": 4,
        "num_draft_tokens": 9,
        "num_spec_tokens": 3,
        "per_step_accepted": [0, 3, 1],
        "per_step_drafted": [3, 3, 3],
    }
    assert second["mean_acceptance_length"] == 1 + 4 / 2 and second["num_spec_steps"] == 2
    assert second["acceptance_histogram"] == {"2": 2}
    assert (second["per_step_accepted"], second["per_step_drafted"]) == ([2, 2], [2, 3])


def test_a_request_that_never_drafted_has_none(tmp_path: Path) -> None:
    folder = exported(tmp_path, record(NGRAM, **FIRST), record(NGRAM, **PLAIN | {"id": "c"}))
    lines = (folder / "ngram" / "vllm.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["metrics"]["speculative_decoding"] is None for line in lines] == [False, True]
    (row,) = rows(folder / "acceptance.csv")
    assert float(row["tokens_by_request"]) == pytest.approx((7 / 3 + 1) / 2)


def test_specdec_bench_counts_lengths_of_all_rounds(tmp_path: Path) -> None:
    (made,) = json.loads((by_hand(tmp_path) / "speculative_gamma=4" / "acceptance_rate.json").read_text())
    assert made["Request_AL"] == {"a": {"0": pytest.approx(7 / 3)}, "b": {"0": pytest.approx(7 / 4)}}
    assert made["Average_AL"] == pytest.approx((7 / 3 + 7 / 4) / 2)
    assert made["Acceptance_Length_Histogram"] == {"1": 3, "2": 2, "3": 1, "4": 1}
    assert made["Joint_Acceptance_Rate"] == pytest.approx({"1": 1.0, "2": 4 / 7, "3": 2 / 7, "4": 1 / 7})
    assert made["Conditional_Acceptance_Rate"] == pytest.approx({"1": 1.0, "2": 4 / 7, "3": 1 / 2, "4": 1 / 2})


def test_specdec_bench_names_seeds_and_turns_and_leaves_out_lengths_that_no_round_had(tmp_path: Path) -> None:
    gap = {"tokens_by_round": [1, 3], "rounds": 2, "drafted": 4, "tested": 3, "accepted": 2, "new_tokens": 4}
    gap |= {"accept_hist": [1, 0, 1], "tested_at": [2, 1], "id": "a"}
    folder = exported(tmp_path, *(record(SD, **gap | {"seed": seed, "turn": 2}) for seed in (1, 2)))
    (made,) = json.loads((folder / "speculative_gamma=4" / "acceptance_rate.json").read_text())
    assert made["Request_AL"] == {f"a, seed {seed}, repeat 0": {"1": 2.0} for seed in (1, 2)}
    assert made["Joint_Acceptance_Rate"] == {"1": 1.0, "3": 0.5} == made["Conditional_Acceptance_Rate"]
    profile = json.loads((folder / "speculative_gamma=4" / "speculation_profile.json").read_text())
    assert profile["marginal_accept_rates"] == [0.5, 0.5] and profile["conditional_accept_rates"] == [0.5, 1.0]
    line = (folder / "speculative_gamma=4" / "vllm.jsonl").read_text().splitlines()[0]
    assert "per_step_drafted" not in line, "a file of an older version does not know them"


def test_a_speculation_profile(tmp_path: Path) -> None:
    profile = json.loads((by_hand(tmp_path) / "speculative_gamma=4" / "speculation_profile.json").read_text())
    assert profile["marginal_accept_rates"] == pytest.approx([4 / 7, 2 / 7, 1 / 7], abs=1e-6)
    assert profile["conditional_accept_rates"] == pytest.approx([4 / 7, 1 / 2, 1 / 2], abs=1e-6)
    assert (profile["mean_accept_length"], profile["accept_length_by_k"]) == (2.0, {"3": 2.0})
    assert profile["mean_accept_length_per_request"] == pytest.approx((7 / 3 + 7 / 4) / 2, abs=1e-6)
    assert (profile["schema_version"], profile["method"]) == ("1.0", "draft_model")
    assert (profile["num_speculative_tokens"], profile["accept_length_model"]) == (3, "chain_analytic")
    assert profile["verification_method"] == "longest_prefix"
    assert profile["validation"]["mean_consistency"]["passed"]
    assert profile["validation"]["mean_consistency"]["implied_mean_accept_length"] == 2.0
    assert profile["validation"]["marginal_monotonicity"] == {"passed": True, "violations": []}
    conditions = profile["measurement_conditions"]
    assert (conditions["lossless"], conditions["tasks"], conditions["drafts"]) == (True, ["code", "dialogue"], "chain")


@pytest.mark.parametrize("parameters", [(("draft_tree", "dynamic"),), (("draft_tree", "chain"),)])
def test_a_tree_claims_neither_a_fixed_length_nor_that_lengths_extrapolate(
    tmp_path: Path, parameters: tuple[tuple[str, str], ...]
) -> None:
    tree = parameters[0][1] != "chain"
    folder = by_hand(tmp_path, Configuration("eagle", parameters), drafted_by_round=None)
    (place,) = (path.parent for path in folder.glob("*/vllm.jsonl"))
    profile = json.loads((place / "speculation_profile.json").read_text())
    assert profile["accept_length_model"] == ("measured_per_k" if tree else "chain_analytic")
    assert profile["measurement_conditions"]["drafts"] == ("tree" if tree else "chain")
    line = json.loads((place / "vllm.jsonl").read_text().splitlines()[0])
    assert line["metrics"]["speculative_decoding"]["num_spec_tokens"] == (None if tree else 3)


def test_a_length_that_moved_does_not_extrapolate_either(tmp_path: Path) -> None:
    folder = by_hand(tmp_path, min_gamma=1)
    profile = json.loads((folder / "speculative_gamma=4" / "speculation_profile.json").read_text())
    assert profile["accept_length_model"] == "measured_per_k"


def test_what_is_lossy_says_so(tmp_path: Path) -> None:
    chosen = Configuration("speculative", (("accept_policy", "synthetic"), ("accept_rates", (0.8, 0.6))))
    folder = by_hand(tmp_path, chosen, lossless=False)
    (row,) = (line for line in (folder / "acceptance.csv").read_text().splitlines() if "synthetic" in line)
    assert "accept_rates=0.8,0.6 LOSSY" in row
    (profile,) = folder.glob("*/speculation_profile.json")
    assert json.loads(profile.read_text())["measurement_conditions"]["lossless"] is False


def test_results_without_a_draft_are_refused_and_the_script_exports(tmp_path: Path) -> None:
    import typer

    from scripts.report_ablation import main

    with refused(tmp_path / "r.csv"):
        exported(tmp_path, record(AR, **PLAIN))
    app = typer.Typer()
    app.command()(main)
    results = write_results(tmp_path / "r.csv", [record(AR, **PLAIN), record(SD, **FIRST)])
    ran = CliRunner().invoke(app, [str(results), "--out", str(tmp_path / "o"), "--export", str(tmp_path / "e")])
    assert ran.exit_code == 0 and "acceptance:" in ran.output
    assert {path.name for path in (tmp_path / "e").iterdir()} == {"acceptance.csv", "speculative_gamma=4"}


def test_what_others_names_are_here_exists_and_every_written_name_is_explained(tmp_path: Path) -> None:
    folder = by_hand(tmp_path)
    columns = rows(folder / "acceptance.csv")[0].keys()
    said = {name for one in NAMES for name in re.findall(r"`([a-z_]+)`", one.ours)}
    assert said <= {*keys(Record), *columns} and {"conditional", "joint", "tokens_by_request"} <= said
    page = acceptance_names()
    written = {*columns, "acceptance_rate.json", "speculation_profile.json", "vllm.jsonl", "per_step_drafted"}
    assert all(f"`{name}" in page for name in written - {"processor", "configuration"})


def test_the_page_says_what_is_true_of_the_example(tmp_path: Path) -> None:
    """T = a + n, less one for an answer that ends with an accepted stop token; conditional times is joint."""
    for one, stopped in ((FIRST, 0), (SECOND, 1)):
        assert sum(one["tokens_by_round"]) == one["accepted"] + one["rounds"] - stopped
    (row,) = rows(by_hand(tmp_path) / "acceptance.csv")
    conditional, joint = ([*map(float, row[name].split())] for name in ("conditional", "joint"))
    assert joint[0] == pytest.approx(conditional[0] * 5 / 7, abs=1e-6), "two rounds of seven drafted nothing"
    assert joint[1] == pytest.approx(joint[0] * conditional[1], abs=1e-6)
