"""Parts of a user's own in the tables of this process: for notebooks and programs, which cannot edit the tables."""

from dataclasses import replace

from sampling.methods.method import Method
from sampling.methods.part import Part
from sampling.methods.rules import CONTROLLERS
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import DRAFTERS, METHODS, parts_of
from utils.errors import UserError
from utils.parameter import Parameter, toggle


def register(method: Method, *, drafter: Part | None = None, rule: Part | None = None) -> None:
    """Enter a method, with a drafter or a rule of one's own, as its line in `sampling/methods` would.

    The lines are those of docs/add-a-method.md. `Part.path` names the class: `f"{__name__}:MyDrafter"` in a program or
    a notebook. What reads the tables afterwards knows the method: `compare`, `Selftest`, settings. A second call with
    the same names takes the place of the first, so that a cell may run again. The setting `draft_rule` names the
    project's own rules alone.

    Raises `UserError` for a name that the project itself has, and for a drafter or rule that there is not.
    """
    for table, part in ((DRAFTERS, drafter), (CONTROLLERS, rule)):
        if part is not None:
            table.refuse(part.name)
    METHODS.refuse(method.name)
    for part in (drafter, rule):
        for parameter in part.parameters if part is not None else ():
            _refuse_other(parameter)
    if drafter is not None:
        DRAFTERS.enter(drafter)
    if rule is not None:
        CONTROLLERS.enter(rule)
    METHODS.enter(replace(method, parts=parts_of(method)))
    PARAMETERS.enter(toggle(method.name, method.on, method.help))
    for parameter in METHODS[method.name].parameters:
        if parameter not in PARAMETERS.values():
            PARAMETERS.enter(parameter)


def _refuse_other(parameter: Parameter) -> None:
    """Raises `UserError` for another parameter under the name of one of the project's own."""
    if PARAMETERS.declared(parameter.name) and PARAMETERS[parameter.name] != parameter:
        raise UserError(f"parameter {parameter.name!r} is the project's own; expected another name, or that one itself")
