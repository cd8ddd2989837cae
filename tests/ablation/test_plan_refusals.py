"""What is wrong in a plan file or on its command line is told, with its line."""

from pathlib import Path

import pytest

from ablation.plan.file import plan_names
from ablation.plan.lines import PlanLines
from ablation.plan.overrides import Overrides
from tests.ablation.plan_files import SPECULATIVE, Write, refusal


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("lenght = 8", "line 2: unknown key 'lenght'"),
        ("lenght = 8", "Did you mean 'length'?"),
        ("length = 0", "line 2: length: '0' given; expected an integer of 1 or more"),
        ("length = [8]", "line 2: length: [8] given"),
        ("length = true", "line 2: length: 'true' given"),
        ("seeds = 0", "line 2: seeds: '0' given"),
        ("seeds = [1, -1]", "line 2: seed: '-1' given"),
        ("seeds = [1, 1]", "line 2: seed: 1 is given twice"),
        ("repeats = 1.5", "line 2: repeats: '1.5' given"),
        ("limit = 0", "line 2: limit: '0' given"),
        ('control = "of"', "line 2: control: 'of' given; expected on or off. Did you mean 'off'?"),
        ('name = " "', "line 2: name: ' ' given"),
        ("processors = []", "line 2: processor: an empty list given"),
        ('processors = ["greedy", "nucleus 0.8"]', "line 2: processor: nucleus needs top_p"),
        ('processors = ["greedy", "greedy 1"]', "line 2: processor: greedy is given twice"),
        ("pair = 3", "line 2: pair: 3 given; expected a [pair] table"),
        ('[pair]\ntraget = "x"', "line 3: unknown key 'traget'"),
        ('[pair]\ndtype = "float8"', "line 3: unknown dtype 'float8'"),
        ("[settings]\nchta = true", "line 3: unknown key 'chta'"),
        ("[settings]\nlength = 3", "line 3: length is not a setting of all configurations; put it at the top"),
        ("[settings]\nseed = 3", "as seeds"),
        ("[settings]\negag = true", "line 3: egag is not a setting of all configurations; put it in a [[methods]]"),
        ("[settings]\ncache = 3", "line 3: cache: '3' given; expected on or off"),
        ("[methods]\ngamma = 3", "line 2: methods: expected a [[methods]] table for each method"),
        ("[[methods]]\ngamma = 3", "line 2: method is missing; expected one of target, drafter"),
        ('[[methods]]\nmethod = "specultive"', "line 3: unknown method 'specultive'"),
        (SPECULATIVE + "gama = 3", "line 4: unknown key 'gama'; expected one of "),
        (SPECULATIVE + "gama = 3", "Did you mean 'gamma'?"),
        (SPECULATIVE + "gamma = [2, -1]", "line 4: gamma: '-1' given"),
        (SPECULATIVE + "gamma = [[2]]", "line 4: gamma: [2] given"),
        (
            SPECULATIVE + "top_k_filler = 3",
            "line 4: top_k_filler is not a parameter of speculative, it belongs to ngram",
        ),
        (
            '[[methods]]\nmethod = "mtp"\ngamma = 2\ntree_tokens = [8, 9]',
            "line 5: tree_tokens changes nothing: mtp never reads",
        ),
        (
            '[[methods]]\nmethod = "suffix_or_model"\nhybrid_model = "model"\ndraft_tree = "drawn"',
            "line 5: draft_tree changes nothing: suffix_or_model never reads it with the values of this table",
        ),
        (SPECULATIVE + "chat = true", "it holds for every method; expected one of "),
        ('[[methods]]\nmethod = "target"\ngamma = 3', "expected none"),
        (SPECULATIVE + SPECULATIVE + "gamma = [4, 5]", "line 4: speculative gamma=4 is already in the table of line 2"),
        ('[[methods]]\nmethod = "egag"\negag_gamma_min = [2, 7]', "line 2: egag_gamma_min 7 is above egag_gamma_max 6"),
        ("control = false", "the plan names no method"),
        ("length = ", "is not TOML: Invalid value (at line 2, column 10)"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(write: Write, lines: str, said: str) -> None:
    plan = write(lines)
    refused = refusal(plan)
    assert said in refused
    assert plan in refused or "names no method" in said


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        ('prompts = ["dialoge"]', "line 1: unknown prompt set 'dialoge'"),
        ('prompts = ["dialoge"]', "Did you mean 'dialogue'? A .jsonl file also works"),
        ('prompts = ["missing.jsonl"]', "line 1: prompt file"),
        ("prompts = []", "line 1: prompts: an empty list given"),
    ],
)
def test_prompts_that_are_not_there_are_told_with_their_line(write: Write, prompts: str, said: str) -> None:
    assert said in refusal(write(SPECULATIVE, prompts=prompts))


def test_all_that_is_wrong_is_told_at_once_up_to_ten(write: Write) -> None:
    said = refusal(write(*(f"key{place} = 1" for place in range(12)), "[pair]", "taget = 3"))
    assert [line.split(":")[0].strip() for line in said.splitlines()[1:]] == [
        *(f"line {place}" for place in range(2, 12)),
        "and 3 more",
    ]


def test_an_unknown_plan_is_refused_with_the_nearest(tmp_path: Path) -> None:
    said = refusal("gama")
    known = ", ".join(sorted(plan_names()))
    assert "gamma, load, nasd, one_pass, paper" in known
    assert f"unknown plan 'gama'; expected one of {known}. Did you mean 'gamma'?" in said
    assert said.endswith("A .toml file also works")
    assert "cannot be read" in refusal(str(tmp_path / "missing.toml"))


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (Overrides(prompt="a", prompts=("code",)), "expected one of them"),
        (Overrides(prompt=""), "--prompt: '' given"),
        (Overrides(prompts=("coed",)), "Did you mean 'code'?"),
        (Overrides(methods="specultive"), "Did you mean 'speculative'?"),
        (Overrides(methods=","), "no method to run"),
        (Overrides(assignments=("gama=2",)), "unknown setting 'gama'"),
        (Overrides(assignments=("gamma=2,x",)), "gamma: 'x' given"),
        (Overrides(assignments=("gamma=",)), "gamma: '' given"),
        (
            Overrides(assignments=("top_k_filler=2",)),
            "top_k_filler: no method of the plan has it; it belongs to ngram",
        ),
        (Overrides(assignments=("length=2",)), "use --length"),
        (Overrides(assignments=("ngram=on",)), "use --methods"),
        (Overrides(methods="egag", assignments=("egag_gamma_min=9",)), "egag_gamma_min 9 is above egag_gamma_max 6"),
        (Overrides(processors=("nucleus 0.8",)), "nucleus needs top_p"),
        (Overrides(seeds=0), "seeds: '0' given"),
        (Overrides(repeats=0), "repeats: '0' given"),
        (Overrides(length=0), "length: '0' given"),
        (Overrides(limit=0), "limit: '0' given"),
        (Overrides(pair={"dtype": "float8"}), "unknown dtype"),
    ],
)
def test_a_wrong_command_line_is_refused(over: Overrides, said: str) -> None:
    assert said in refusal("gamma", over)


def test_the_line_of_a_key() -> None:
    lines = PlanLines(
        "# length = 1\n"
        "length = 2\n"
        '"trace" = true\n'
        "[ pair ]  # models\n"
        "dtype = 'auto'\n"
        "[[methods]]\n"
        "gamma = [\n"
        "  2,\n"
        "]\n"
        "[[methods]]\n"
        "  gamma=3\n"
    )
    assert lines.line("length") == 2
    assert lines.line("trace") == 3
    assert lines.line("dtype", "pair") == 5
    assert [lines.line("gamma", "methods", place) for place in (1, 2)] == [7, 11]
    assert [lines.line("", "methods", place) for place in (1, 2)] == [6, 10]
    assert lines.line("missing") is None
    assert lines.line("pair") == 4 and lines.line("methods") == 6
    assert lines.line("missing", "methods", 2) == 10
    assert PlanLines('a = 1\npair.dtype = "x"').line("dtype", "pair") == 2
    assert PlanLines('a = 1\npair = {dtype = "x"}').line("dtype", "pair") == 2
