"""Plan files: what is built in, what is read, and how the command line goes before it."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ablation.plan import methods_table
from ablation.plan.file import plan_names, read_experiment
from ablation.plan.grid import AGAIN
from ablation.plan.overrides import Overrides
from sampling.methods.settings import Settings
from sampling.methods.tables import AR
from tests.ablation.conftest import write_lines
from tests.ablation.plan_files import SPECULATIVE, Write, ids, names, refusal

ROOT = Path(__file__).parents[3]


# 70 prompts x (1 AR + 4 SD + 9 NASD + 6 EGAG + 1 control) x 2 processors x 3 seeds
PAPER = 70 * 21 * 2 * 3


GENERATIONS = {
    "quick": 8 * 5,
    "copies": 16 * 13,
    "one_pass": 12 * 11,
    "trained": 12 * 19,
    "formats": 12 * 11 * 3,
    "gamma": 20 * (1 + 8 + 1),
    "nasd": 20 * (1 + 10 + 1),
    "egag": 20 * (1 + 9 + 1),
    "rules": 20 * (1 + 2 * (5 + 15) + 1),
    "auto": 20 * 10 * 2 * 3,
    "batch": 32 * 6 * 6,
    "load": 24 * 4 * 4,
    "engines": 12 * 4 * 2,
    "engines_cpu": 12 * 2 * (5 * 3 + 3 * 9),
    "untrained": 50 * 9,
    "exact": 90 * 20 * 2,
    "grammar": 20 * 15 * 2,
    "matrix": 5 * 20 * 8 * 3 * 2 * 2,
}


@pytest.mark.parametrize("name", plan_names())
def test_a_built_in_plan_reads_and_says_what_it_answers(name: str) -> None:
    experiment = read_experiment(name)
    assert experiment.name == name
    assert experiment.plan.generations == {**GENERATIONS, "paper": PAPER}[name]
    assert experiment.plan.configurations[0].name == AR
    assert experiment.trace == {"egag": True, "rules": "full"}.get(name, False)
    text = (ROOT / "ablation/plans" / f"{name}.toml").read_text()
    assert text.startswith("# ")


def test_the_paper_s_matrix_is_whole() -> None:
    plan = read_experiment("paper").plan
    assert Counter(prompt.task for prompt in plan.prompts) == {
        "dialogue": 20,
        "translation": 20,
        "long": 10,
        "code": 20,
    }
    methods = Counter(configuration.method for configuration in plan.configurations)
    assert methods == {"target": 2, "speculative": 4, "ngram": 9, "egag": 6}
    assert [str(processor) for processor in plan.processors] == ["greedy 1", "nucleus 0.8 0.9"]
    assert plan.seeds == (42, 43, 44)


def test_quick_runs_the_four_settings_with_64_tokens() -> None:
    plan = read_experiment("quick").plan
    assert names(read_experiment("quick")) == ["target", "speculative", "egag", "ngram", "control"]
    assert {plan.length(prompt) for prompt in plan.prompts} == {64}
    assert len({prompt.task for prompt in plan.prompts}) == 4
    assert [plan.values[name] for name in ("gamma", "egag_gamma_min", "egag_gamma_max", "egag_ema")] == [4, 1, 6, 0.9]
    assert str(plan.values["set_ngramstorage"]) == "basic 3" and plan.values["top_k_filler"] == 3


def test_lists_multiply_out_in_order_and_the_reference_and_control_frame_them(write: Write) -> None:
    plan = write(
        '[[methods]]\nmethod = "ngram"\nset_ngramstorage = ["basic 3", "onelevel 4"]\ntop_k_filler = [1, 3]',
        '[[methods]]\nmethod = "egag"\negag_ema = [0, 0.5]',
        '[[methods]]\nmethod = "target"',
    )
    assert names(read_experiment(plan)) == [
        "target",
        "ngram set_ngramstorage=basic 3, top_k_filler=1",
        "ngram set_ngramstorage=basic 3, top_k_filler=3",
        "ngram set_ngramstorage=onelevel 4, top_k_filler=1",
        "ngram set_ngramstorage=onelevel 4, top_k_filler=3",
        "egag egag_ema=0",
        "egag egag_ema=0.5",
        AGAIN.name,
    ]


def test_a_value_that_is_a_list_of_numbers_is_one_text(write: Write) -> None:
    """A TOML list multiplies out, so that the rates of one configuration stand in one string; options use `;`."""
    synthetic = f'{SPECULATIVE}accept_policy = "synthetic"\n'
    plan = write(synthetic + 'accept_rates = ["0.8,0.6,0.4", 0.5]')
    named = "speculative accept_policy=synthetic, accept_rates="
    assert names(read_experiment(plan))[1:-1] == [f"{named}0.8,0.6,0.4", f"{named}0.5"]
    given = Overrides(assignments=("accept_rates=0.9,0.1; 1",))
    assert names(read_experiment(plan, given))[1:-1] == [f"{named}0.9,0.1", f"{named}1"]


def test_a_configuration_is_checked_once_unless_the_command_line_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []
    monkeypatch.setattr(
        methods_table, "check_values", lambda configuration, values: checked.append((configuration, values))
    )
    read_experiment("gamma", Overrides(length=5))
    assert len(checked) == len(set(map(str, checked))) == 8
    assert names(read_experiment("gamma", Overrides(gamma="3"))) == ["target", "speculative gamma=3", "control"]
    assert len(checked) == 8 + 8 + 1


def test_every_key_arrives(write: Write) -> None:
    plan = write(
        'name = "mine"\nlength = 8\nseeds = [3, 1]\nrepeats = 2\ncontrol = false\ntrace = true',
        'processors = ["greedy", "nucleus 0.8 0.9"]',
        '[pair]\ntarget = "big"\ndtype = "float16"\ntrust_remote_code = false',
        "[settings]\nchat = false\nreset_in_between = false\ngamma = 7",
        SPECULATIVE,
    )
    experiment = read_experiment(plan)
    values = experiment.plan.values
    assert (experiment.name, experiment.trace, names(experiment)) == ("mine", True, ["target", "speculative"])
    assert (experiment.plan.seeds, experiment.plan.repeats, len(experiment.plan.processors)) == ((3, 1), 2, 2)
    assert (values["length"], values["chat"], values["reset_in_between"], values["gamma"]) == (8, False, False, 7)
    assert experiment.pair == {"target": "big", "dtype": "float16", "trust_remote_code": False}


def test_what_is_not_written_comes_from_the_settings_at_hand(write: Write) -> None:
    base = Settings()
    base.assign_all([("seed", "7"), ("length", "9"), ("processor", "topk 1 5"), ("chat", "off")])
    experiment = read_experiment(write("seeds = 2", SPECULATIVE), base=base)
    assert experiment.plan.seeds == (7, 8) and experiment.plan.repeats == 1
    assert experiment.plan.values["length"] == 9 and experiment.plan.values["chat"] is False
    assert [processor.name for processor in experiment.plan.processors] == ["topk"]
    assert experiment.name == "plan" and not experiment.pair and not experiment.trace


def test_without_prompts_all_sets_run(write: Write) -> None:
    assert len(read_experiment(write(SPECULATIVE, prompts="")).plan.prompts) == 90
    assert len(read_experiment(write(SPECULATIVE, prompts='prompts = ["code", "all"]')).plan.prompts) == 90


def test_a_limit_takes_the_sets_in_turn(write: Write) -> None:
    prompts = 'prompts = ["long", "code", "mine.jsonl"]'
    experiment = read_experiment(write("limit = 6", SPECULATIVE, prompts=prompts))
    assert ids(experiment) == ["long-01", "code-01", 1, "long-02", "code-02", "long-03"]


def test_ids_of_two_files_are_kept_apart(write: Write, tmp_path: Path) -> None:
    write_lines(tmp_path / "yours.jsonl", {"prompt": "b"}, {"prompt": "c", "id": "x"})
    write_lines(tmp_path / "third.jsonl", {"prompt": "d", "id": "code-01"})
    write_lines(tmp_path / "alone.jsonl", {"prompt": "e", "id": "y"})
    prompts = 'prompts = ["mine.jsonl", "yours.jsonl", "third.jsonl", "alone.jsonl", "code"]'
    experiment = read_experiment(write("limit = 6", SPECULATIVE, prompts=prompts))
    assert ids(experiment) == ["mine:1", "yours:1", "third:code-01", "y", "code-01", "yours:x"]


def test_ids_that_stay_alike_are_refused(write: Write, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write_lines(tmp_path / "sub" / "mine.jsonl", {"prompt": "b"})
    said = refusal(write(SPECULATIVE, prompts='prompts = ["mine.jsonl", "sub/mine.jsonl"]'))
    assert "line 1: prompt id 'mine:1' is in" in said and "rename one file" in said
    write_lines(tmp_path / "twice.jsonl", {"prompt": "b", "id": 1}, {"prompt": "c", "id": "1"})
    assert "id 1 is there as a number and as a text" in refusal(write(prompts='prompts = "twice.jsonl"'))


def test_the_command_line_goes_before_the_file(write: Write, tmp_path: Path) -> None:
    plan = write("length = 8", "seeds = 2", "[pair]", 'target = "big"', 'drafter = "small"', SPECULATIVE)
    over = Overrides(
        prompts=("code", str(tmp_path / "mine.jsonl")),
        processors=("topk 1 5", "greedy"),
        seeds=3,
        repeats=2,
        length=5,
        limit=3,
        trace=True,
        pair={"target": "other", "trust_remote_code": True},
    )
    experiment = read_experiment(plan, over)
    assert ids(experiment) == ["code-01", 1, "code-02"]
    assert experiment.plan.seeds == (42, 43, 44) and experiment.plan.repeats == 2
    assert experiment.plan.values["length"] == 5 and experiment.trace
    assert [processor.name for processor in experiment.plan.processors] == ["topk", "greedy"]
    assert experiment.pair == {"target": "other", "drafter": "small", "trust_remote_code": True}


def test_a_typed_prompt_replaces_the_sets() -> None:
    experiment = read_experiment("paper", Overrides(prompt="Why?"))
    (prompt,) = experiment.plan.prompts
    assert (prompt.id, prompt.turns, prompt.task) == ("prompt", ("Why?",), None)


def test_methods_keep_their_configurations_and_others_join_with_defaults() -> None:
    experiment = read_experiment("gamma", Overrides(methods="egag,speculative", assignments=("gamma=2, 5",)))
    assert names(experiment) == ["target", "speculative gamma=2", "speculative gamma=5", "egag", "control"]


def test_a_parameter_of_the_command_line_replaces_the_file_s_and_what_falls_together_is_one() -> None:
    over = Overrides(methods="ngram", assignments=("set_ngramstorage=basic 3,basic 4", "chat=off"))
    experiment = read_experiment("nasd", over)
    # the table without a filler has the default, 3, which the other table has as well
    expected = [f"ngram set_ngramstorage=basic {n}, top_k_filler={k}" for n in (3, 4) for k in (1, 3, 5)]
    assert names(experiment) == ["target", *expected, "control"]
    assert experiment.plan.values["chat"] is False


def test_no_torch_is_imported() -> None:
    code = (
        "import sys, ablation.plan.file as f, ablation.run.progress.estimate as e; "
        "e.grid_table(f.read_experiment('quick').plan); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_examples_of_the_documentation_read(tmp_path: Path) -> None:
    write_lines(tmp_path / "support_tickets.jsonl", {"prompt": "a"})
    examples = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/plans.md").read_text(), re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        (tmp_path / "example.toml").write_text(example)
        assert read_experiment(str(tmp_path / "example.toml")).plan.generations


def test_the_documentation_counts_right() -> None:
    text = (ROOT / "docs/plans.md").read_text()
    counted = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", text.split("## The format")[0], re.MULTILINE))
    assert {name: int(count) for name, count in counted.items()} == {**GENERATIONS, "paper": PAPER}
