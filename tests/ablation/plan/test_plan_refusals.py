"""What is wrong in a plan file or on its command line is told, with its line."""

from pathlib import Path

import pytest

from ablation.plan.file import plan_names
from ablation.plan.lines import PlanLines
from ablation.plan.overrides import Overrides
from tests.ablation.plan_files import SPECULATIVE, Write, refusal
from tests.refusals import lacking


@pytest.mark.parametrize(
    ("lines", "quoted"),
    [
        ("lenght = 8", ("line 2", "key", "'lenght'")),
        ("lenght = 8", ("'length'",)),
        ("length = 0", ("line 2: length: '0'", 1)),
        ("length = [8]", ("line 2: length: [8]",)),
        ("length = true", ("line 2: length: 'true'",)),
        ("seeds = 0", ("line 2: seeds: '0'",)),
        ("seeds = [1, -1]", ("line 2: seed: '-1'",)),
        ("seeds = [1, 1]", ("line 2: seed: 1", "twice")),
        ("repeats = 1.5", ("line 2: repeats: '1.5'",)),
        ("limit = 0", ("line 2: limit: '0'",)),
        ('control = "of"', ("line 2: control: 'of'", "on", "off", "'off'")),
        ('name = " "', ("line 2: name: ' '",)),
        ("processors = []", ("line 2: processor: an empty list",)),
        ('processors = ["greedy", "nucleus 0.8"]', ("line 2: processor: nucleus", "top_p")),
        ('processors = ["greedy", "greedy 1"]', ("line 2: processor: greedy", "twice")),
        ("pair = 3", ("line 2: pair: 3", "[pair]")),
        ('[pair]\ntraget = "x"', ("line 3", "key", "'traget'")),
        ('[pair]\ndtype = "float8"', ("line 3", "dtype", "'float8'")),
        ("[settings]\nchta = true", ("line 3", "key", "'chta'")),
        ("[settings]\nlength = 3", ("line 3: length",)),
        ("[settings]\nseed = 3", ("as seeds",)),
        ("[settings]\negag = true", ("line 3: egag", "[[methods]]")),
        ("[settings]\ncache = 3", ("line 3: cache: '3'", "on", "off")),
        ("[methods]\ngamma = 3", ("line 2: methods", "[[methods]]")),
        ("[[methods]]\ngamma = 3", ("line 2: method", "target, drafter")),
        ('[[methods]]\nmethod = "specultive"', ("line 3", "method", "'specultive'")),
        (SPECULATIVE + "gama = 3", ("line 4", "'gama'", "gamma")),
        (SPECULATIVE + "gama = 3", ("'gamma'",)),
        (SPECULATIVE + "gamma = [2, -1]", ("line 4: gamma: '-1'",)),
        (SPECULATIVE + "gamma = [[2]]", ("line 4: gamma: [2]",)),
        (
            SPECULATIVE + "top_k_filler = 3",
            ("line 4: top_k_filler", "speculative", "ngram"),
        ),
        (
            '[[methods]]\nmethod = "mtp"\ngamma = 2\ntree_tokens = [8, 9]',
            ("line 5: tree_tokens", "mtp"),
        ),
        (
            '[[methods]]\nmethod = "suffix_or_model"\nhybrid_model = "model"\ndraft_tree = "drawn"',
            ("line 5: draft_tree", "suffix_or_model"),
        ),
        (SPECULATIVE + "chat = true", ("chat",)),
        ('[[methods]]\nmethod = "target"\ngamma = 3', ("gamma", "none")),
        (SPECULATIVE + SPECULATIVE + "gamma = [4, 5]", ("line 4: speculative gamma=4", "line 2")),
        ('[[methods]]\nmethod = "egag"\negag_gamma_min = [2, 7]', ("line 2: egag_gamma_min 7", "egag_gamma_max 6")),
        ("control = false", ("plan", "method")),
        ("length = ", ("TOML", "line 2, column 10")),
    ],
)
def test_what_is_wrong_is_told_with_its_line(write: Write, lines: str, quoted: tuple[object, ...]) -> None:
    plan = write(lines)
    said = refusal(plan)
    assert not lacking(said, *quoted)
    assert plan in said or quoted == ("plan", "method")


@pytest.mark.parametrize(
    ("prompts", "quoted"),
    [
        ('prompts = ["dialoge"]', ("line 1", "prompt set", "'dialoge'")),
        ('prompts = ["dialoge"]', ("'dialogue'", ".jsonl")),
        ('prompts = ["missing.jsonl"]', ("line 1: prompt file",)),
        ("prompts = []", ("line 1: prompts: an empty list",)),
    ],
)
def test_prompts_that_are_not_there_are_told_with_their_line(
    write: Write, prompts: str, quoted: tuple[object, ...]
) -> None:
    assert not lacking(refusal(write(SPECULATIVE, prompts=prompts)), *quoted)


def test_all_that_is_wrong_is_told_at_once_up_to_ten(write: Write) -> None:
    said = refusal(write(*(f"key{place} = 1" for place in range(12)), "[pair]", "taget = 3"))
    assert [line.split(":")[0].strip() for line in said.splitlines()[1:]] == [
        *(f"line {place}" for place in range(2, 12)),
        "and 3 more",
    ]


def test_an_unknown_plan_is_refused_with_the_nearest(tmp_path: Path) -> None:
    said = refusal("gama")
    known = ", ".join(sorted(plan_names()))
    assert "gamma, grammar, load, matrix, nasd, one_pass, paper" in known
    assert not lacking(said, "plan", "'gama'", known, "'gamma'", ".toml")
    assert "cannot be read" in refusal(str(tmp_path / "missing.toml"))


@pytest.mark.parametrize(
    ("over", "quoted"),
    [
        (Overrides(prompt="a", prompts=("code",)), ("--prompt", "--prompts")),
        (Overrides(prompt=""), ("--prompt: ''",)),
        (Overrides(prompts=("coed",)), ("'code'",)),
        (Overrides(methods="specultive"), ("'speculative'",)),
        (Overrides(methods=","), ("target, drafter",)),
        (Overrides(assignments=("gama=2",)), ("setting", "'gama'")),
        (Overrides(assignments=("gamma=2,x",)), ("gamma: 'x'",)),
        (Overrides(assignments=("gamma=",)), ("gamma: ''",)),
        (
            Overrides(assignments=("top_k_filler=2",)),
            ("top_k_filler", "ngram"),
        ),
        (Overrides(assignments=("length=2",)), ("length", "--length")),
        (Overrides(assignments=("ngram=on",)), ("ngram", "--methods")),
        (Overrides(methods="egag", assignments=("egag_gamma_min=9",)), ("egag_gamma_min 9", "egag_gamma_max 6")),
        (Overrides(processors=("nucleus 0.8",)), ("nucleus", "top_p")),
        (Overrides(seeds=0), ("seeds: '0'",)),
        (Overrides(repeats=0), ("repeats: '0'",)),
        (Overrides(length=0), ("length: '0'",)),
        (Overrides(limit=0), ("limit: '0'",)),
        (Overrides(pair={"dtype": "float8"}), ("dtype", "'float8'")),
    ],
)
def test_a_wrong_command_line_is_refused(over: Overrides, quoted: tuple[object, ...]) -> None:
    assert not lacking(refusal("gamma", over), *quoted)


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
