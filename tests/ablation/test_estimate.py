from io import StringIO

import pytest
from rich.console import Console

from ablation.plan.grid import Configuration, Plan
from ablation.plan.prompt_file import Prompt
from ablation.run.estimate import Estimate, estimate, grid_table, most_tokens
from sampling.settings import Settings
from utils.parameter import Chosen

PROMPTS = (Prompt("a", ("x",), "code"), Prompt("b", ("x", "y"), "code", 50), Prompt("c", ("x",)))
CONFIGURATIONS = (Configuration("target"), Configuration("speculative", (("gamma", 4),)))
PROCESSORS = (Chosen("greedy", (1.0,)), Chosen("nucleus", (0.8, 0.9)))
PLAN = Plan(PROMPTS, CONFIGURATIONS, Settings(), PROCESSORS, (1, 2, 3), repeats=2)


def test_every_generation_counts_to_its_end() -> None:
    # tokens of one configuration over the prompts: 100 + 2 * 50 + 100; passes: 2 processors, 3 seeds, 2 repeats
    assert most_tokens(PLAN) == 300 * 2 * 12
    guess = estimate(PLAN, {"target": (0.01, 0.5), "speculative gamma=4": (0.03, 1.0)})
    assert guess.seconds == pytest.approx((300 * 0.04 + 4 * 1.5) * 12)
    assert guess.generations == PLAN.generations == 96
    assert guess.text == "about 4 min (at most; 96 generations of 7,200 tokens in all)"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h"), (90000, "25.0 h")],
)
def test_the_time_is_said_in_a_unit_that_fits(seconds: float, said: str) -> None:
    assert Estimate(seconds, 1, 1).text.startswith(f"about {said} (at most")


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
