"""Who drafts a text, in words: the method, its drafter, the rule for the draft length, and how drafts are judged."""

from collections.abc import Iterator
from dataclasses import dataclass

from ablation.plan.grid import Configuration
from sampling.methods.part import Part
from sampling.methods.tables import METHODS
from serve.limits import served_values
from utils.parameter import Values

MODEL = "model"


@dataclass(frozen=True, slots=True)
class Drafting:
    """method: as tables print it. drafter, rule, judge: names of parts; empty where nothing is drafted.

    given: the parameters that the request named. Example: `SD (speculative)`, `model tiny-drafter`, `fixed, gamma 2`,
    `rejection`, `gamma=2`.
    """

    method: str
    drafter: str = ""
    rule: str = ""
    judge: str = ""
    given: str = ""


def drafting_of(configuration: Configuration, drafter_model: str) -> Drafting:
    """How the texts of a configuration are drafted. drafter_model: the name of the loaded one, or empty."""
    method, values = METHODS[configuration.method], served_values(configuration)
    given = configuration.name.removeprefix(configuration.method).strip()
    if not method.drafts:
        return Drafting(method.label, given=given)
    values = {**values, **method.preset}
    drafter, rule, judging = method.parts
    judge = [each.part.name for each in judging.active(values)][-1]
    return Drafting(method.label, _drafter(drafter, values, drafter_model), _rule(rule, values), judge, given)


def _drafter(drafter: Part, values: Values, drafter_model: str) -> str:
    """The drafter, and in a hybrid what drafts in it: `extended: model tiny-drafter, prompt_lookup`."""
    whole, *inside = _named(drafter, values, drafter_model)
    return f"{whole}: {', '.join(inside)}" if inside and drafter.hybrid else whole


def _named(drafter: Part, values: Values, drafter_model: str) -> Iterator[str]:
    for each in drafter.active(values):
        yield f"{MODEL} {drafter_model}" if each.part.name == MODEL and drafter_model else each.part.name


def _rule(rule: Part, values: Values) -> str:
    """The part that decides, with the parameters that are numbers of drafts: `fixed, gamma 4`."""
    active = [*rule.active(values)][-1]
    lengths = (each for each in active.part.read_parameters(active.values) if each.bounds_drafts)
    return ", ".join([active.part.name, *(f"{each.name} {each.show(values[each.name])}" for each in lengths)])
