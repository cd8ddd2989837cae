"""The best of one method against the best of another, chosen where it is not judged."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ablation.plan.file import read_experiment
from ablation.plan.grid import Configuration
from ablation.report.tables.best import compare_best, compare_rules, leave_one_out
from ablation.report.write import write_report
from ablation.results.manifest import manifest_path
from tests.ablation.frames import SD, against_ar, table
from tests.ablation.synthetic import write_results
from tests.refusals import refused

ASKED = {"compare": [["egag", "speculative"]]}
EGAG = [Configuration("egag", (("egag_gamma_max", most),)) for most in (4, 8)]
# The first is the better one in general; the second on the last prompt only, and there by far.
BETTER = [1.5, 1.52, 1.54, 1.56, 1.58, 1.6, 1.62, 1.0]
LUCKY = [1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 3.0]
PLAIN = [1.25] * 8


def test_no_prompt_judges_a_choice_that_it_made() -> None:
    """Medians 2, 1 and 3 without the first, ... : column 1 is best only because of the last row."""
    logs = np.array([[2.0, 1.0], [2.0, 1.0], [2.0, 9.0], [0.0, 9.0]])
    assert leave_one_out(logs).tolist() == [1, 1, 0, 0]
    assert np.median(logs, axis=0).argmax() == 1


def test_the_best_are_compared_on_each_prompt(tmp_path: Path) -> None:
    ratios = dict(zip([*EGAG, SD], (BETTER, LUCKY, PLAIN), strict=True))
    (found,) = compare_best(table(tmp_path, *against_ar(ratios)), ASKED).to_dict("records")
    assert (found["a"], found["b"], found["prompts"]) == ("best egag", "best speculative", 8)
    # The last prompt takes its 1.0 from the one that the others chose, not its own 3.0.
    assert found["ratio"] == pytest.approx(np.exp(np.median(np.log(np.array(BETTER) / 1.25))))
    assert f"{EGAG[0].name} on 8; {SD.name} on 8)" in found["verdict"]


LENGTHS = [Configuration("mtp", (("gamma", gamma),)) for gamma in (1, 3)]
RULES = [Configuration("mtp", (("draft_rule", rule),)) for rule in ("svip", "ucb")]


def test_rules_are_compared_with_the_best_length_of_their_own_method(tmp_path: Path) -> None:
    """Lengths at 1.2 and 1.25, the second chosen everywhere; a rule that is 1.1 times that, and one that is not."""
    ratios = dict(zip([*LENGTHS, *RULES, SD], ([1.2] * 8, PLAIN, [1.375] * 8, [1.2] * 8, BETTER), strict=True))
    better, worse = compare_rules(table(tmp_path, *against_ar(ratios))).to_dict("records")
    assert (better["a"], better["b"], better["prompts"]) == (RULES[0].name, "best fixed length of mtp", 8)
    assert better["ratio"] == pytest.approx(1.1) and worse["ratio"] == pytest.approx(1.2 / 1.25)
    assert better["p_holm"] == pytest.approx(2 * better["p"]) and f"{LENGTHS[1].name} on 8" in better["verdict"]
    assert compare_rules(table(tmp_path, *against_ar({LENGTHS[0]: PLAIN, RULES[0]: PLAIN}))).empty, "one length alone"


@pytest.mark.parametrize("manifest", [None, {}, {"compare": None}, {"compare": [["egag"], 3, [1, 2], ["egag", "ucb"]]}])
def test_nothing_is_compared_that_is_not_there(tmp_path: Path, manifest: dict[str, object] | None) -> None:
    frame = table(tmp_path, *against_ar({EGAG[0]: BETTER, SD: PLAIN}))
    assert compare_best(frame, manifest).empty
    assert compare_best(table(tmp_path, *against_ar({EGAG[0]: BETTER[:1], SD: PLAIN[:1]})), ASKED).empty


@pytest.mark.usefixtures("undrawn")
def test_a_report_answers_what_the_plan_asked(tmp_path: Path) -> None:
    results = write_results(tmp_path / "r.csv", against_ar({EGAG[0]: BETTER, SD: PLAIN}))
    manifest_path(results).write_text(json.dumps({"fixed": {}, "runs": [], **ASKED}), encoding="utf-8")
    report = write_report(results)
    with (console := Console(width=200)).capture() as captured:
        report.print(console)
    for text in (captured.get(), (report.folder / "report.md").read_text(), (report.folder / "pairs.csv").read_text()):
        assert "best egag against best speculative" in text or "best egag is faster than best speculative" in text


@pytest.mark.parametrize(
    ("given", "quoted"),
    [
        ('[["egag", "speculative"]]', None),
        ('"egag"', ("compare", "'egag'")),
        ('[["egag"]]', ("compare", ["egag"])),
        ('[["egag", 3]]', ("compare", ["egag", 3])),
        ('[["egag", "egga"]]', ("'egga'", "egag")),
        ('[["egag", "egag"]]', ("compare", "'egag'", "two")),
        ('[["egag", "ngram"]]', ("compare", "'ngram'", "egag", "speculative")),
    ],
)
def test_a_plan_names_methods_that_it_runs(tmp_path: Path, given: str, quoted: tuple[object, ...] | None) -> None:
    plan = tmp_path / "p.toml"
    tables = "".join(f'[[methods]]\nmethod = "{name}"\n' for name in ("egag", "speculative"))
    plan.write_text(f"compare = {given}\n{tables}", encoding="utf-8")
    if quoted is None:
        assert read_experiment(str(plan)).plan.compare == (("egag", "speculative"),)
    else:
        with refused(plan, "line 1", *quoted):
            read_experiment(str(plan))
