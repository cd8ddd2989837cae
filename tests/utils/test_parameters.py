"""Parameters and settings: text in, value out, and errors that help."""

import pytest

from sampling.methods.choices import PROCESSORS
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import METHODS
from tests.refusals import refused
from utils.errors import UnknownName, UserError
from utils.parameter import ChosenPart
from utils.registry import Registry


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_default_survives_a_round_trip_through_text(name: str) -> None:
    parameter = PARAMETERS[name]
    assert parameter.parse(parameter.show(parameter.default)) == parameter.default
    assert parameter.help
    assert parameter.usage


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gamma", "-1"), ("gamma", "two"), ("gamma", "2.5"), ("length", "0"), ("egag_ema", "1"), ("egag_ema", "nan"),
        ("egag_gamma_max", "0"), ("cache", "maybe"), ("processor", "nucleus 0.8"), ("processor", "nucleus 0 0.5"),
        ("processor", "topk 1 0"), ("processor", "greedy 1 2"), ("processor", ""), ("processor", "topk 1 k=3"),
        ("processor", "topk 1 top_k=3 top_k=4"),
        ("set_ngramstorage", "basic 1"), ("set_ngramstorage", "basik 3"), ("top_k_filler", "0"), ("seed", "-1"),
        ("seed", "9223372036854775808"),
        ("egag_gamma_min", "7"),
    ],
)  # fmt: skip
def test_a_bad_value_changes_nothing_and_names_what_was_expected(name: str, text: str) -> None:
    settings = Settings()
    before = dict(settings)
    with pytest.raises(UserError) as caught:
        settings.assign(name, text)
    assert "expected" in str(caught.value) or "twice" in str(caught.value)
    assert dict(settings) == before


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("greedy", ChosenPart("greedy", (1.0,))),
        ("GREEDY 0.5", ChosenPart("greedy", (0.5,))),
        ("nucleus 0.8 0.9", ChosenPart("nucleus", (0.8, 0.9))),
        ("nucleus top_p=0.9 temperature=0.8", ChosenPart("nucleus", (0.8, 0.9))),
        ("topknucleus 0.8 50 0.9", ChosenPart("topknucleus", (0.8, 50, 0.9))),
    ],
)
def test_processors_by_position_or_by_name(text: str, value: ChosenPart) -> None:
    settings = Settings()
    settings.assign("processor", text)
    assert settings["processor"] == value
    assert PARAMETERS["processor"].parse(settings.show("processor")) == value


def test_a_number_loses_no_digit_on_its_way_through_text() -> None:
    for name, text in (("min_token_prob", "0.12345678"), ("processor", "nucleus 0.80000001 0.9")):
        parameter = PARAMETERS[name]
        assert parameter.show(parameter.parse(text)) == text


def test_an_unknown_name_suggests_the_nearest() -> None:
    for name, value, typed, meant in (
        ("gama", "3", "gama", "gamma"),
        ("gam", "3", "gam", "gamma"),
        ("processor", "nuclus 1 1", "nuclus", "nucleus"),
    ):
        with refused(repr(typed), repr(meant), error=UnknownName) as caught:
            Settings().assign(name, value)
        assert caught.value.near == meant


def test_the_spec_defaults() -> None:
    settings = Settings()
    assert settings.enabled() == ["target", "speculative", "ngram"]
    shown = {name: settings.show(name) for name in settings}
    assert shown["length"] == "100"
    assert shown["gamma"] == "4"
    assert (shown["egag_gamma_min"], shown["egag_gamma_max"], shown["egag_ema"]) == ("1", "6", "0.9")
    assert (shown["set_ngramstorage"], shown["top_k_filler"], shown["seed"]) == ("basic 3", "3", "42")


def test_a_method_lists_its_parts_parameters_but_not_its_presets() -> None:
    assert [p.name for p in METHODS["target"].parameters] == []
    assert "gamma" in [p.name for p in METHODS["speculative"].parameters]
    assert "egag_ema" in [p.name for p in METHODS["egag"].parameters]


def test_two_entries_of_one_name_are_refused() -> None:
    with refused("things", error=ValueError):
        Registry("thing", PROCESSORS["greedy"], PROCESSORS["greedy"])
