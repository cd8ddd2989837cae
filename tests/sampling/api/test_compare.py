"""Methods side by side from Python, and methods of a user's own among them."""

from collections.abc import Mapping
from typing import Any, Self

import pytest
import torch

from egag.length_rule import FixedGamma, LengthRule
from sampling import compare, register
from sampling.drafter import Drafter
from sampling.methods.method import Method
from sampling.methods.parameters import GAMMA
from sampling.methods.part import Part
from sampling.methods.rules import CONTROLLERS
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import DRAFTERS, METHODS
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from tests.refusals import refused
from tests.tiny import tiny_pair
from utils.parameter import drafts

PROMPT = "abab"
ECHO_TIMES = drafts("echo_times", 2, "how often", minimum=1)
ECHO = Part("echo", f"{__name__}:EchoDrafter", "repeats the last token", parameters=(ECHO_TIMES,))
ECHO_METHOD = Method("echo", "Echo", ECHO.help, drafter="echo")


class EchoDrafter(Drafter):
    """Drafts the last token some times."""

    def __init__(self, times: int) -> None:
        self.times = times

    @classmethod
    def build(cls, pair: object, values: Mapping[str, Any]) -> Self:
        return cls(values["echo_times"])

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        count = min(self.times, limit, gamma.gamma)
        return Proposal(torch.full((count,), seq.tokens[-1], device=seq.device))


class One(FixedGamma):
    """A draft a round, whatever gamma is."""

    @classmethod
    def build(cls, pair: object, values: Mapping[str, Any]) -> Self:
        return cls(min(1, values["gamma"]))


@pytest.fixture(autouse=True)
def own_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test enters is gone behind it."""
    for table in (DRAFTERS, CONTROLLERS, METHODS, PARAMETERS):
        monkeypatch.setattr(table, "_entries", dict(table._entries))


def test_plain_decoding_stands_on_both_sides() -> None:
    runs = compare(tiny_pair(), PROMPT, ["ngram", "target", "speculative", "ngram"], length=8, gamma=2, chat=False)
    assert list(runs) == ["target", "ngram", "speculative", "control"]
    assert runs["target"].speedup == 1.0 and runs["target"].verdict is None
    assert {run.verdict for name, run in runs.items() if name != "target"} == {"exact"}
    assert len({run.text for run in runs.values()}) == 1
    assert not runs["control"].metrics.drafted and runs["control"].speedup not in (None, 1.0)
    assert max(len(round.drafts) for round in runs["speculative"].rounds) == 2
    assert runs["ngram"].row["method"] == "NASD (ngram)"


def test_under_sampling_nothing_is_called_exact() -> None:
    runs = compare(tiny_pair(), PROMPT, ["speculative"], length=8, chat=False, processor="multinomial 1", seed=3)
    assert {run.verdict for run in runs.values()} == {None}


def test_nothing_is_remembered_between_calls() -> None:
    pair = tiny_pair()
    first, again = (compare(pair, PROMPT, ["suffix"], length=12, chat=False)["suffix"].metrics for _ in range(2))
    assert (first.drafted, first.accepted) == (again.drafted, again.accepted)


def test_what_is_wrong_is_refused() -> None:
    with refused("methd", "method"):
        compare(tiny_pair(), PROMPT, ["methd"])
    with refused("gamma", -1):
        compare(tiny_pair(), PROMPT, ["speculative"], gamma=-1)
    with refused("egag_gamma_min", 5, "egag_gamma_max", 2):
        compare(tiny_pair(), PROMPT, ["egag"], egag_gamma_min=5, egag_gamma_max=2)


def test_a_drafter_of_ones_own_is_compared() -> None:
    register(ECHO_METHOD, drafter=ECHO)
    runs = compare(tiny_pair(), PROMPT, ["echo"], length=8, echo_times=3, chat=False)
    assert runs["echo"].verdict == "exact" and runs["echo"].label == "Echo"
    assert all(len(set(round.drafts)) == 1 for round in runs["echo"].rounds if round.drafts)
    assert max(len(round.drafts) for round in runs["echo"].rounds) == 3


def test_a_rule_of_ones_own_is_compared() -> None:
    rule = Part("one", f"{__name__}:One", "one draft", parameters=(GAMMA,))
    register(Method("one", "SD one", rule.help, drafter="model", controller="one"), rule=rule)
    rounds = compare(tiny_pair(), PROMPT, ["one"], length=8, chat=False)["one"].rounds
    assert max(len(round.drafts) for round in rounds) == 1


def test_a_cell_may_run_again_and_its_last_run_counts() -> None:
    register(ECHO_METHOD, drafter=ECHO)
    more = Part("echo", ECHO.path, ECHO.help, parameters=(drafts("echo_times", 4, "how often", minimum=1),))
    register(ECHO_METHOD, drafter=more)
    assert Settings()["echo_times"] == 4 and list(METHODS)[-1] == "echo"


def test_what_the_project_has_is_not_replaced() -> None:
    with refused("drafter", "ngram"):
        register(ECHO_METHOD, drafter=Part("ngram", ECHO.path, ""))
    with refused("method", "mtp"):
        register(Method("mtp", "Mine", "", drafter="echo"), drafter=ECHO)
    with refused("gamma"):
        register(ECHO_METHOD, drafter=Part("echo", ECHO.path, "", parameters=(drafts("gamma", 1, "", minimum=0),)))
    with refused("drafter", "nowhere"):
        register(Method("echo", "Echo", "", drafter="nowhere"))
    assert not {"echo"} & {*DRAFTERS, *METHODS, *PARAMETERS}
