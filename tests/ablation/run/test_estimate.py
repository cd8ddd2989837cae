from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from ablation.plan.grid import AGAIN, Configuration, Plan
from ablation.plan.prompts.file import Prompt
from ablation.run.costing.priced import priced_pace
from ablation.run.costing.probe import estimated, foreseen
from ablation.run.progress.estimate import Estimate, TimedPrompt, TokenPace, estimate, grid_table, most_tokens
from sampling.engine import Description
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.methods.settings import Settings
from sampling.pair.profile import DraftTimes, LatencyProfile
from tests.ablation.mock_engine import MockEngine, make_round
from tests.ablation.playing import records_of
from utils.events import Event, Finished, Prefilled
from utils.parameter import ChosenPart

PROMPTS = (Prompt("a", ("x",), "code"), Prompt("b", ("x", "y"), "code", 50), Prompt("c", ("x",)))
CONFIGURATIONS = (Configuration("target"), Configuration("speculative", (("gamma", 4),)))
PROCESSORS = (ChosenPart("greedy", (1.0,)), ChosenPart("nucleus", (0.8, 0.9)))
PLAN = Plan(PROMPTS, CONFIGURATIONS, Settings(), PROCESSORS, (1, 2, 3), repeats=2)


def test_the_range_by_hand() -> None:
    # tokens of one configuration over the prompts: 100 + 2 * 50 + 100; passes: 2 processors, 3 seeds, 2 repeats
    assert most_tokens(PLAN) == 300 * 2 * 12
    paces = {"target": TokenPace(0.5, 0.01, 0.02, 10), "speculative gamma=4": TokenPace(1.0, 0.01, 0.06, 5)}
    timed = TimedPrompt(10, 110, TokenPace(0.5, 0.02, 0.02, 10), TokenPace(1.0, 0.03, 0.03, 10))
    lengths = {"a": [10], "b": [60, 110], "c": [5]}  # prefills of 1, 1.5, 2 and 1 times the short one
    guess = estimate(PLAN, [paces, paces], timed, lengths)
    assert guess.low_s == pytest.approx((300 * 0.02 + 4 * 1.5) * 12)
    assert guess.high_s == pytest.approx((300 * 0.08 * 1.5 + 5.5 * 1.5) * 12)
    assert guess.generations == PLAN.generations == 96
    first, basis = guess.text.splitlines()
    assert first.startswith(
        "2 to 9 min for 96 generations of 7,200 tokens in all (if all drafts are accepted, if none is)"
    )
    assert basis.startswith("timed: 15 rounds of 2 configurations behind a prompt of 10 tokens, AR also behind")
    assert "as the longest text, 110; loading the models is not in it" in basis


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.1, 0.2, "about 0 s"),
        (89, 90, "89 s to 2 min"),
        (130, 5399, "2 to 90 min"),
        (5400, 90000, "1.5 to 25.0 h"),
    ],
)
def test_the_time_is_said_in_a_unit_that_fits(low: float, high: float, said: str) -> None:
    assert Estimate(low, high, 1, 1, "").text.startswith(f"{said} for 1 generation")


@dataclass
class Paced(MockEngine):
    """Drafts `gamma` tokens a round, of which it accepts a share on average; slower behind a longer text.

    The first generation of each method is slow, as first calls are.
    """

    accepted: float = 0.0

    def describe(self) -> Description:
        return replace(super().describe(), window=1000)

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        return [1] * sum(map(len, turns))

    def stream(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], run: str | None = None
    ) -> Iterator[Event]:
        slow = 0.0 if name in {call[0] for call in self.calls} else 60.0
        self.calls.append((name,))
        yield Prefilled(len(prompt), 0.05 + 0.002 * len(prompt) + slow)
        gamma, place, number, length = 0 if name == "target" else values["gamma"], 0, 0, values["length"]
        while place < length:
            kept = min(
                int(gamma * self.accepted * (number + 1)) - int(gamma * self.accepted * number), length - place - 1
            )
            drafts = [token if i < kept else 99 for i, token in enumerate(range(place, place + gamma))]
            seconds = (0.1 + 0.03 * gamma) * (1.0 + 0.0002 * (len(prompt) + place))
            yield make_round(number, drafts, kept, place + kept, seconds + (0.0 if number else slow))
            place, number = place + kept + 1, number + 1
        yield Finished("length", length)


@pytest.mark.parametrize("accepted", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("gamma", [1, 4])
def test_the_truth_lies_in_the_range(accepted: float, gamma: int) -> None:
    prompts = (Prompt("short", ("x",)), Prompt("long", ("x" * 200, "y")), Prompt("own", ("z" * 30,), None, 16))
    methods = Configuration("target"), AGAIN, Configuration("speculative", (("gamma", gamma),))
    plan = Plan(prompts, methods, {**Settings(), "length": 60}, PROCESSORS, (1, 2))
    engine = Paced(accepted=accepted)
    guess, quick = estimated(engine, plan), foreseen(replace(engine, calls=[]), plan)
    truth = sum(record.wall_s or 0.0 for record in records_of(engine, plan))
    assert guess.low_s <= truth <= guess.high_s < 6 * truth
    assert (quick.low_s, quick.high_s) == (guess.low_s, guess.high_s)


def test_the_table_shows_what_would_run() -> None:
    console = Console(width=100, record=True, file=StringIO())
    console.print(grid_table(PLAN))
    text = console.export_text()
    for said in (
        "speculative gamma=4",
        "nucleus 0.8 0.9",
        "3: code 2, no task 1",
        "1, 2, 3",
        "96 generations of 7,200",
    ):
        assert said in text


PROFILE = LatencyProfile(
    {100: ((1, 0.1), (5, 0.14)), 900: ((1, 0.2), (5, 0.24))},
    ((100, 0.5), (900, 4.5)),
    0.02,
    {"model": DraftTimes(0.03, 0.01, (0.8, 0.5)), "prompt_lookup": DraftTimes(0.01, 0.0, (0.9,), found=0.25)},
    "then",
)


def paced(method: str, **parameters: Any) -> TokenPace | None:
    return priced_pace(PROFILE, Configuration(method, tuple(parameters.items())), Settings(), 50, 800)


def test_the_pace_by_prices_by_hand() -> None:
    once = pytest.approx(0.12)
    assert paced("target") == TokenPace(
        0.25, once, once, 0, pytest.approx(0.1875 + 0.02)
    )  # behind 800 tokens: 7/8 of the way
    sd = paced("speculative", gamma=2)  # a round: 0.12 forward, 0.04 drafts, 0.02 rest; 1 + 0.8 + 0.4 tokens
    assert sd == TokenPace(0.25, pytest.approx(0.06), pytest.approx(0.18), 0, pytest.approx((0.2075 + 0.06) / 2.2))
    copies = paced("prompt_lookup", num_speculative_tokens=4)  # a quarter of the rounds has four drafts
    tokens = 1 + 0.25 * (0.9 + 0.9**2 + 0.9**3 + 0.9**4)
    assert copies is not None and copies.expected_s == pytest.approx(
        (0.25 * (0.2275 + 0.03) + 0.75 * (0.1875 + 0.03)) / tokens
    )
    assert (copies.accepted_s, copies.rejected_s) == pytest.approx((0.17 / 5, 0.17))


def test_a_rule_is_expected_at_its_best_length_and_bounded_by_its_longest() -> None:
    rule = paced("egag", egag_gamma_max=4)
    fixed = [paced("speculative", gamma=gamma) for gamma in range(5)]
    assert rule is not None
    assert rule.expected_s == min(one.expected_s for one in fixed if one)
    assert (rule.accepted_s, rule.rejected_s) == (fixed[4].accepted_s, fixed[4].rejected_s)  # type: ignore[union-attr]


def test_trees_searches_and_what_was_not_timed_have_no_price() -> None:
    assert paced("mtp") is None and paced("beam") is None and paced("drafter") is None
    known = replace(PROFILE, drafters={**PROFILE.drafters, "recycling": DraftTimes(0.1, 0.1)})
    assert priced_pace(known, Configuration("recycling"), Settings(), 50, 50) is None


def test_a_look_by_prices_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(PROMPTS, CONFIGURATIONS, {**Settings(), "length": 60}, PROCESSORS, (1, 2))
    engine = Paced(known=PROFILE)
    guess = foreseen(engine, plan)
    assert engine.calls == []
    assert guess.expected_s is not None and guess.low_s < guess.expected_s < guess.high_s
    first, basis = guess.text.splitlines()
    assert first.startswith("about ") and " expected, " in first
    assert basis.startswith("by the profile measured then (infer.py profile)") and "run for a moment" not in basis


def test_what_a_profile_does_not_know_is_run() -> None:
    methods = (Configuration("target"), Configuration("speculative"), Configuration("mtp"))
    plan = Plan(PROMPTS, methods, {**Settings(), "length": 60}, PROCESSORS, (1, 2))
    engine = Paced(known=PROFILE)
    guess = foreseen(engine, plan)
    assert {name for (name,) in engine.calls} == {"mtp"}
    assert guess.expected_s is not None and "run for a moment, as it does not know them: mtp" in guess.text


def test_formats_are_each_told_by_what_is_known_of_them() -> None:
    plan = Plan(PROMPTS, CONFIGURATIONS, {**Settings(), "length": 60}, PROCESSORS, (1,), formats=("full", "int8"))
    both = foreseen(Paced(known=PROFILE), plan)
    one = foreseen(Paced(known=PROFILE), replace(plan, formats=()))
    assert both.expected_s == pytest.approx(2 * (one.expected_s or 0.0))
