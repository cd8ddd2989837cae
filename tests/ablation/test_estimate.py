from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from ablation.plan.grid import AGAIN, Configuration, Plan
from ablation.plan.prompt_file import Prompt
from ablation.run.estimate import Estimate, Pace, Timed, estimate, grid_table, most_tokens
from ablation.run.execute import execute
from ablation.run.probe import estimated
from sampling.engine import Description
from sampling.events import Event, Finished, Prefilled
from sampling.settings import Settings
from tests.ablation.mock_engine import MockEngine, make_round
from utils.parameter import Chosen

PROMPTS = (Prompt("a", ("x",), "code"), Prompt("b", ("x", "y"), "code", 50), Prompt("c", ("x",)))
CONFIGURATIONS = (Configuration("target"), Configuration("speculative", (("gamma", 4),)))
PROCESSORS = (Chosen("greedy", (1.0,)), Chosen("nucleus", (0.8, 0.9)))
PLAN = Plan(PROMPTS, CONFIGURATIONS, Settings(), PROCESSORS, (1, 2, 3), repeats=2)


def test_the_range_by_hand() -> None:
    # tokens of one configuration over the prompts: 100 + 2 * 50 + 100; passes: 2 processors, 3 seeds, 2 repeats
    assert most_tokens(PLAN) == 300 * 2 * 12
    paces = {"target": Pace(0.5, 0.01, 0.02, 10), "speculative gamma=4": Pace(1.0, 0.01, 0.06, 5)}
    timed = Timed(10, 110, Pace(0.5, 0.02, 0.02, 10), Pace(1.0, 0.03, 0.03, 10))
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

    def tokenise(self, turns: Sequence[str], chat: bool, system: str | None = None) -> list[int]:
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
    guess, quick = estimated(engine, plan), estimated(replace(engine, calls=[]), plan, processors=1)
    truth = sum(record.wall_s or 0.0 for record in execute(engine, plan))
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
