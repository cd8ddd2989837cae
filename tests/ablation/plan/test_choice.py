"""Methods with values of their own, as a user writes them."""

import pytest

from ablation.plan.choice import choose_names, choose_runs
from sampling.methods.settings import Settings
from tests.refusals import refused
from utils.errors import UnknownName, UserError


def names(text: str) -> list[str]:
    return [run.name for run in choose_runs(text, Settings())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mtp, target", ["mtp", "target"]),
        ("mtp,mtp gamma=1,mtp gamma=2", ["mtp", "mtp gamma=1", "mtp gamma=2"]),
        ("mtp draft_tree=static  gamma = 1", ["mtp draft_tree=static, gamma=1"]),
        ("mtp gamma=1 draft_tree=static", ["mtp draft_tree=static, gamma=1"]),
        ("ngram set_ngramstorage=onelevel 4 gamma=2", ["ngram set_ngramstorage=onelevel 4, gamma=2"]),
        (
            "ngram gamma=2, set_ngramstorage='onelevel n=4',target",
            ["ngram set_ngramstorage=onelevel 4, gamma=2", "target"],
        ),
        (
            "mtp accept_policy=synthetic accept_rates=0.8, .6,mtp gamma=2 accept_rates='0.9,0.5',target",
            ["mtp accept_policy=synthetic, accept_rates=0.8,0.6", "mtp gamma=2, accept_rates=0.9,0.5", "target"],
        ),
    ],
)
def test_what_is_written_is_what_runs(text: str, expected: list[str]) -> None:
    assert names(text) == expected
    assert names(", ".join(expected)) == expected, "what a table prints is understood as well"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mpt gamma=1", ["unknown method 'mpt'", "Did you mean 'mtp'?"]),
        ("mtp gama=1", ["unknown parameter of mtp 'gama'", "Did you mean 'gamma'?"]),
        ("mtp top_k_filler=1", ["top_k_filler is not a parameter of mtp", "it belongs to ngram"]),
        ("mtp length=5", ["length is not a parameter of mtp", "every method"]),
        ("target gamma=1", ["gamma is not a parameter of target"]),
        ("mtp gamma=-1", ["gamma", "'-1'", "0 to 1024"]),
        ("mtp gamma=1 gamma=2", ["gamma is given twice"]),
        ("mtp gamma=1, mtp gamma=1", ["'mtp gamma=1' is given twice"]),
        ("target,target", ["'target' is given twice; expected each run once"]),
        ("mtp fast", ["'fast'", "NAME=VALUE", "`infer.py methods mtp` lists"]),
        ("mtp gamma=1 ngram", ["'1 ngram'"]),
        ('ngram set_ngramstorage="onelevel 4', ["a quote is not closed"]),
        ("egag egag_gamma_min=9", ["egag_gamma_min 9 is above egag_gamma_max 6"]),
    ],
)
def test_what_is_wrong_is_named_with_what_is_right(text: str, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        names(text)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_names_alone_take_no_values() -> None:
    assert choose_names("mtp, ngram,") == ("mtp", "ngram")
    with refused("'mtp'", "twice"):
        choose_names("mtp, ngram,mtp")
    with refused("'mtp gamma=1'", "mtp", error=UnknownName):
        choose_names("mtp gamma=1")
