"""Who comes when: the order in which a plan's texts are asked for, one at a time and in batches, and on resume."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ablation.plan.grid import Configuration, Plan, RowKey
from ablation.plan.prompts.file import Prompt
from ablation.run.execute import PlayedRow, execute
from sampling.engine import Engine
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.methods.settings import Settings
from tests.ablation.mock_engine import GREEDY, MockEngine
from utils.events import Event

LETTERS = {"full": "F", "int8": "I", "target": "t", "speculative": "d", "suffix": "s"}


@dataclass
class LoggingEngine(MockEngine):
    """`log`: what was asked for: format, configuration, prompt and turn (`Fta2`); a format alone was emptied."""

    log: list[str] = field(default_factory=list)

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        return [ord(turns[0]), (len(turns) + 1) // 2]

    def stream(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], run: str | None = None
    ) -> Iterator[Event]:
        self.log.append(f"{LETTERS[self.stored]}{LETTERS[name]}{chr(prompt[0])}{prompt[1]}")
        yield from super().stream(name, values, prompt, run)

    def forget(self) -> None:
        self.log.append(LETTERS[self.stored])

    def in_format(self, name: str) -> Engine:
        return replace(self, stored=name)


def plan_of(**more: Any) -> Plan:
    """A conversation of two turns and a prompt, three configurations, two passes, two formats."""
    prompts = Prompt("a", ("a", "more")), Prompt("b", ("b",))
    configurations = Configuration("target"), Configuration("speculative", (("gamma", 2),)), Configuration("suffix")
    given = {"repeats": 2, "formats": ("full", "int8"), **more}
    return Plan(prompts, configurations, Settings(), (GREEDY,), (1,), **given)


def asked(plan: Plan, there: Callable[[RowKey], bool] = lambda key: False) -> str:
    """What is asked for where so much is there already."""
    keys = [place.key for one in plan.passes() for place in plan.places(one, plan.formats or ("full",))]
    engine = LoggingEngine()
    for _ in execute(engine, plan, None, {key: PlayedRow("x") for key in keys if there(key)}):
        pass
    return " ".join(engine.log)


FIRST = "F I Fta1 Ita1 Fda1 Ida1 Fsa1 Isa1 Fta2 Ita2 Fda2 Ida2 Fsa2 Isa2 Idb1 Fdb1 Isb1 Fsb1 Itb1 Ftb1"
SECOND = "F I Ida1 Fda1 Isa1 Fsa1 Ita1 Fta1 Ida2 Fda2 Isa2 Fsa2 Ita2 Fta2 Fsb1 Isb1 Ftb1 Itb1 Fdb1 Idb1"


def test_on_each_prompt_formats_and_configurations_take_turns_the_reference_as_well() -> None:
    assert asked(plan_of()) == f"{FIRST} {SECOND}"


def test_where_starting_takes_minutes_each_configuration_plays_all_prompts() -> None:
    first = "F Fta1 Ftb1 Fda1 Fdb1 Fsa1 Fsb1 Fta2 Fda2 Fsa2"
    second = "F Fda1 Fdb1 Fsa1 Fsb1 Fta1 Ftb1 Fda2 Fsa2 Fta2"
    assert asked(plan_of(in_turn=False, formats=())) == f"{first} {second}"


def batch(*runs: str) -> str:
    """Each run on all texts. Example: "Ft" -> "Fta1 Ftb1 Fta2"."""
    return " ".join(f"{run}{text}" for run in runs for text in ("a1", "b1", "a2"))


def test_in_batches_each_configuration_answers_all_prompts_at_each_load() -> None:
    first, second = batch("Ft", "It", "Fd", "Id", "Fs", "Is"), batch("Id", "Fd", "Is", "Fs", "It", "Ft")
    assert asked(plan_of(batches=(1, 2))) == f"{first} {first} {second} {second}"


def test_on_resume_the_reference_runs_beside_what_is_missing_and_what_remembers_runs_again() -> None:
    def there(key: RowKey) -> bool:
        return key.repeat == 0 and (key.id, key.turn, key.target_weights) != ("a", 2, "int8")

    again = "F I Fsa1 Isa1 Ita2 Ida2 Fsa2 Isa2 Isb1 Fsb1"
    assert asked(plan_of(), there) == f"{again} {SECOND}"
    only_drafts = asked(plan_of(), lambda key: key.repeat == 1 or key.configuration != "speculative gamma=2")
    assert (
        only_drafts == "F I Fta1 Ita1 Fda1 Ida1 Fsa1 Isa1 Fta2 Ita2 Fda2 Ida2 Fsa2 Isa2 Idb1 Fdb1 Isb1 Fsb1 Itb1 Ftb1"
    )


def test_on_resume_in_batches_only_the_reference_of_a_missing_one_runs_again() -> None:
    def there(key: RowKey) -> bool:
        return key.repeat == 0 and (key.configuration, key.target_weights) != ("suffix", "int8")

    second = batch("Id", "Fd", "Is", "Fs", "It", "Ft")
    assert asked(plan_of(batches=(2,)), there) == f"{batch('It', 'Is')} {second}"
    assert asked(plan_of(batches=(2,)), lambda key: True) == ""
