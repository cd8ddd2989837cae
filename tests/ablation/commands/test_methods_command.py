"""The list of methods, and the JSON that servers take."""

import json

import pytest
import typer
from typer.testing import CliRunner

from ablation.commands.methods import methods
from engines.speculative_config import parse_speculative_config
from sampling.methods.tables import METHODS
from tests.refusals import refused


def listed(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(methods)
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_method_is_listed_with_every_parameter() -> None:
    found = {entry["method"]: entry for entry in map(json.loads, listed("--json").splitlines())}
    assert set(found) == set(METHODS)
    for name, method in METHODS.items():
        assert set(found[name]["parameters"]) == {parameter.name for parameter in method.parameters}
    assert found["suffix"]["parameters"]["max_tree_depth"]["default"] == "64"
    assert found["target"]["lossless"] == "yes"


def test_for_people_one_method_is_a_page() -> None:
    page = listed("prompt_lookup")
    assert "max_ngram_size" in page and "2304.04487" in page and "suffix trees" not in page


def test_a_methods_page_names_the_parameters_of_other_rules_and_a_rules_page_explains_them() -> None:
    page = " ".join(listed("mtp").split())
    assert "egag: egag_gamma_min, egag_gamma_max, egag_ema" in page and "EGAG's lower bound" not in page
    assert "drafted tokens per round (fixed gamma)" in page
    assert "EGAG's lower bound" in " ".join(listed("egag").split())
    assert "maximum number of drafts per round" in " ".join(listed("budget").split())
    assert json.loads(listed("budget", "--json"))["rule"] == "budget"
    assert "EGAG's lower bound" in " ".join(listed().split())


def test_no_value_that_is_allowed_is_cut_off() -> None:
    for name in METHODS:
        assert "…" not in listed(name)


@pytest.mark.parametrize(
    ("text", "methods", "assignments", "models"),
    [
        ('{"method": "naive", "num_speculative_tokens": 5}', ("target",), {}, {}),
        (
            '{"method": "ngram", "max_ngram_size": 4, "min_ngram_size": 2, "num_speculative_tokens": 7}',
            ("target", "prompt_lookup"),
            {"max_ngram_size": "4", "min_ngram_size": "2", "num_speculative_tokens": "7"},
            {},
        ),
        (
            '{"method": "suffix", "suffix_decoding_max_tree_depth": 24, "suffix_decoding_max_cached_requests": 0,'
            ' "suffix_decoding_max_spec_factor": 2.0, "suffix_decoding_min_token_prob": 0.2}',
            ("target", "suffix"),
            {"max_tree_depth": "24", "max_cached_requests": "0", "max_spec_factor": "2.0", "min_token_prob": "0.2"},
            {},
        ),
        (
            '{"method": "draft_model", "model": "d", "num_speculative_tokens": 3, "verify_strategy": "topp"}',
            ("target", "speculative"),
            {"gamma": "3", "verify_strategy": "topp"},
            {"drafter": "d"},
        ),
        (
            '{"method": "draft_model", "mtp_strategy": "with_ngram", "num_model_steps": 2, '
            '"num_speculative_tokens": 5}',
            ("target", "extended"),
            {"hybrid_model": "model", "num_model_steps": "2", "num_speculative_tokens": "5"},
            {},
        ),
        (
            '{"method": "mtp", "mtp_strategy": "with_ngram", "model": "h", "num_speculative_tokens": 5}',
            ("target", "extended"),
            {"hybrid_model": "mtp", "num_speculative_tokens": "5"},
            {"heads": "h"},
        ),
        ('{"method": "eagle", "num_speculative_tokens": 3}', ("target", "eagle"), {"gamma": "3"}, {}),
        (
            '{"method": "eagle3", "model": "h", "num_speculative_tokens": 3}',
            ("target", "eagle"),
            {"gamma": "3"},
            {"heads": "h"},
        ),
    ],
)
def test_a_servers_configuration_becomes_methods_and_settings(
    text: str, methods: tuple[str, ...], assignments: dict[str, str], models: dict[str, str]
) -> None:
    config = parse_speculative_config(text)
    assert (config.methods, dict(config.assignments), config.models) == (methods, assignments, models)
    assert not set(assignments) & set(config.unnamed)
    assert {"verify_strategy", "accept_policy"} <= {*assignments, *config.unnamed}


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("{", "JSON"),
        ("[]", "a list"),
        ("{}", "draft_model"),
        ('{"method": "ngrm"}', "'ngram'"),
        ('{"method": "suffix", "max_tree_depth": 3}', "'max_tree_depth'"),
        ('{"method": "suffix", "max_ngram_size": 3}', "max_ngram_size"),
        ('{"method": "ngram", "max_ngram_size": "3"}', "max_ngram_size: '3'"),
        ('{"method": "ngram", "max_ngram_size": true}', "max_ngram_size: True"),
        ('{"method": "ngram", "max_ngram_size": 2.5}', "'2.5'"),
        ('{"method": "ngram", "num_speculative_tokens": -1}', "'-1'"),
        ('{"method": "ngram", "verify_strategy": "tpp"}', "'topp'"),
        ('{"method": "ngram", "model": "x"}', "draft_model"),
        ('{"method": "ngram", "mtp_strategy": "with_ngram"}', "draft_model, mtp"),
        ('{"method": "draft_model", "mtp_strategy": "with_ngrams"}', "'with_ngram'"),
        ('{"method": "draft_model", "mtp_strategy": null}', "'None'"),
        ('{"method": "draft_model", "mtp_strategy": 5}', "'5'"),
        ('{"method": "ngram", "method": "suffix"}', "'method'"),
        ("[" * 100_000, "JSON"),
        ('{"method": "suffix", "suffix_decoding_max_tree_depth": 1}', "suffix_decoding_max_tree_depth"),
        ('{"method": "draft_model", "num_speculative_tokens": -1}', "gamma: '-1'"),
        (
            '{"method": "draft_model", "mtp_strategy": "with_ngram", "num_model_steps": 5, '
            '"num_speculative_tokens": 4}',
            "num_model_steps: 5",
        ),
        (
            '{"method": "draft_model", "mtp_strategy": "with_ngram", "num_model_steps": 11}',
            "num_model_steps: 11",
        ),
        ('{"method": "naive", "num_speculative_tokens": "x"}', "'x'"),
        ('{"method": "naive", "accept_policy": "normal"}', "num_speculative_tokens"),
    ],
)
def test_a_wrong_configuration_is_refused_with_a_reason(text: str, quoted: str) -> None:
    with refused(quoted):
        parse_speculative_config(text)
