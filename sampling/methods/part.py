"""A part of a method, declared once: its class, what it reads, what it needs, and the parts inside it.

Parts and choices of parts are walked by `active`; each question about them is a function over that walk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from utils.parameter import Parameter, Values

if TYPE_CHECKING:
    from sampling.pair.drafting_pair import DraftingPair

Bound = tuple[str, str]

# Before the kind of a head: one that continues the states of the drafter model.
OF_DRAFTER = "drafter's "


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether a parameter has one of some values; `negated`: whether it has none of them."""

    parameter: str
    values: tuple[Any, ...]
    negated: bool = False

    @property
    def value(self) -> Any:
        """The only value."""
        (value,) = self.values
        return value

    def holds(self, values: Values) -> bool:
        """Whether it is so where the parameters have these values."""
        return (values[self.parameter] in self.values) is not self.negated


def where(parameter: str, *values: Any) -> Condition:
    """It is so only where the parameter has one of these values."""
    return Condition(parameter, values)


def unless(parameter: str, *values: Any) -> Condition:
    """It is so, unless the parameter has one of these values."""
    return Condition(parameter, values, negated=True)


@dataclass(frozen=True, slots=True)
class Hybrid:
    """What drafts in a part that holds several drafters, each by its name or by the parameter that names it.

    model: draws at most as many drafts as the parameter `paid` says; None: all. copier: is asked in every round, too.
    """

    model: Parameter | str
    paid: Parameter | None = None
    copier: Parameter | str | None = None

    def named(self, values: Values) -> tuple[str, int | None, str | None]:
        """The names of the model and the copier where the parameters have these values, and between them `paid`."""
        paid: int | None = None if self.paid is None else values[self.paid.name]
        return _named(self.model, values), paid, None if self.copier is None else _named(self.copier, values)


def _named(parameter: Parameter | str, values: Values) -> str:
    return str(values[parameter.name]) if isinstance(parameter, Parameter) else parameter


@dataclass(frozen=True)
class Part:
    """One line of a table: a class by its import path, and what it asks for.

    path: "package.module:Class", a string so that a table can be listed without importing torch; the class has a
    constructor `build(cls, pair, values, *inside)`. Empty: it is the one part inside it. paper: or project it
    comes from. parameters: its own. uses: the parts inside it, whose parameters become its own as well. needs:
    what a pair must have for it: `model`, a drafter model, or a kind of trained head. remembers: when what
    it does depends on earlier prompts; None = never. bounds: (low, high) parameters of which low is never above high.
    trees: whether, or when, its drafts are trees. read: when it reads a parameter of its own, by name; those left out
    it reads always. weighs: whether it reads what rounds cost, which is then measured first. hybrid: what drafts in it,
    where that is not itself. limits: of a rule, whether its gamma is a limit, below which a draft or a proposal is cut.
    one_vocabulary: whether the pair's drafter model must write with the target's tokenizer.
    """

    name: str
    path: str
    help: str
    paper: str = ""
    parameters: tuple[Parameter, ...] = ()
    uses: tuple["Part | OneOf", ...] = ()
    needs: str | None = None
    remembers: Condition | None = None
    bounds: tuple[Bound, ...] = ()
    trees: Condition | bool = False
    read: Mapping[str, Condition] = field(default_factory=dict)
    weighs: bool = False
    hybrid: Hybrid | None = None
    limits: bool = False
    one_vocabulary: bool = False

    def load(self) -> Any:
        """The class behind `path`."""
        return _imported(self.path)

    def build(self, pair: "DraftingPair | None", values: Values) -> Any:
        """An object of this part for a loaded pair of models; missing values take their defaults."""
        settings = {p.name: values.get(p.name, p.default) for p in self.parameters}
        inside = [used.build(pair, {**values, **settings}) for used in self.uses]
        if not self.path:
            (only,) = inside
            return only
        return self.load().build(pair, settings, *inside)

    def read_parameters(self, values: Values) -> Iterator[Parameter]:
        """Those of its own parameters that it reads where they have these values."""
        return (p for p in self.parameters if p.name not in self.read or self.read[p.name].holds(values))

    def active(self, values: Values | None) -> Iterator["ActivePart"]:
        """Itself, then the parts inside it that count where the parameters have these values; None: all of them."""
        yield ActivePart(self, values or {})
        for used in self.uses:
            yield from used.active(values)

    @cached_property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """Its own parameters, then those of the parts inside it."""
        return all_parameters(self.active(None))

    @cached_property
    def all_bounds(self) -> tuple[Bound, ...]:
        """Its own bounds, then those of the parts inside it."""
        return all_bounds(self.active(None))

    def relevant(self, values: Values) -> tuple[Parameter, ...]:
        """Those of `all_parameters` that matter where the others have these values."""
        return relevant(self.active(values))

    def needed(self, values: Values) -> str | None:
        """What a pair must have where the parameters have these values; None = nothing."""
        return needed(self.active(values))

    def memories(self, values: Values) -> tuple[Condition, ...]:
        """By what it, and each part inside it, depends on earlier prompts where the parameters have these values."""
        return memories(self.active(values))

    def drafts_trees(self, values: Values) -> bool:
        """Whether its drafts, or those of a part inside it, are trees where the parameters have these values."""
        return drafts_trees(self.active(values))


@dataclass(frozen=True, slots=True)
class ActivePart:
    """A part on a walk over those that count, and the values that it sees.

    fixed: parameters that stay at a preset's values. for_drafter: it drafts for the drafter model, not for the target.
    """

    part: Part
    values: Values
    fixed: frozenset[str] = frozenset()
    for_drafter: bool = False

    def behind(self, preset: Mapping[str, Any]) -> "ActivePart":
        """The same, some of whose parameters are fixed."""
        return replace(self, fixed=self.fixed.union(preset))

    def open(self, parameters: Iterable[Parameter]) -> Iterator[Parameter]:
        """Those of the parameters that nothing fixes."""
        return (parameter for parameter in parameters if parameter.name not in self.fixed)


def all_parameters(active: Iterable[ActivePart]) -> tuple[Parameter, ...]:
    """The parameters of the parts."""
    return merged(*(each.open(each.part.parameters) for each in active))


def all_bounds(active: Iterable[ActivePart]) -> tuple[Bound, ...]:
    """The bounds between those parameters, each once."""
    return tuple(dict.fromkeys(bound for each in active for bound in each.part.bounds if each.fixed.isdisjoint(bound)))


def relevant(active: Iterable[ActivePart]) -> tuple[Parameter, ...]:
    """The parameters that are read where the others have these values."""
    return merged(*(each.open(each.part.read_parameters(each.values)) for each in active))


def needed(active: Iterable[ActivePart]) -> str | None:
    """What a pair must have: what the first part needs that needs anything; None = nothing."""
    for each in active:
        if each.part.needs:
            return f"{OF_DRAFTER}{each.part.needs}" if each.for_drafter else each.part.needs
    return None


def memories(active: Iterable[ActivePart]) -> tuple[Condition, ...]:
    """By what the parts depend on earlier prompts."""
    remembers = ((each.part.remembers, each.values) for each in active)
    return tuple(condition for condition, values in remembers if condition and condition.holds(values))


def drafts_trees(active: Iterable[ActivePart]) -> bool:
    """Whether what the target judges are trees; drafts for the drafter model are not judged by it."""
    trees = ((each.part.trees, each.values) for each in active if not each.for_drafter)
    return any(so.holds(values) if isinstance(so, Condition) else so for so, values in trees)


def weighs_costs(active: Iterable[ActivePart]) -> bool:
    """Whether any part reads what rounds cost."""
    return any(each.part.weighs for each in active)


@dataclass(frozen=True)
class TrainedPart(Part):
    """A part with weights of its own. task: the class that says how they are trained, by its import path."""

    task: str = ""

    def load_task(self) -> Any:
        """The class behind `task`."""
        return _imported(self.task)


@dataclass(frozen=True)
class OneOf:
    """Whichever of some parts the values pick. Only its parameters matter then.

    preset: parameters of the parts that stay at these values, which are then no parameters of the whole.
    """

    parts: tuple[Part, ...]
    pick: Callable[[Values], Part]
    preset: Mapping[str, Any] = field(default_factory=dict)

    def build(self, pair: "DraftingPair | None", values: Values) -> Any:
        """An object of the part that the values pick."""
        return self.pick(values).build(pair, {**values, **self.preset})

    @cached_property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """The parameters of every part."""
        return all_parameters(self.active(None))

    def active(self, values: Values | None) -> Iterator[ActivePart]:
        """The part that the values pick, with those inside it that count; None: every part."""
        parts = self.parts if values is None else (self.pick(values),)
        seen = None if values is None else {**values, **self.preset}
        return (each.behind(self.preset) for part in parts for each in part.active(seen))


class OneForDrafter(OneOf):
    """Whichever of some parts the values pick, drafting for the pair's drafter model as others do for the target.

    The head that the drafter model must have is known by `of_drafter`.
    """

    def build(self, pair: "DraftingPair | None", values: Values) -> Any:
        """The part that the values pick, for the drafter model."""
        return OneOf.build(self, None if pair is None else pair.of_drafter, values)

    def active(self, values: Values | None) -> Iterator[ActivePart]:
        """The same, each of them for the drafter model."""
        return (replace(each, for_drafter=True) for each in OneOf.active(self, values))


def chosen_by(parameter: Parameter, parts: Mapping[str, Part], **preset: Any) -> OneOf:
    """The part that a parameter names; `preset` as in `OneOf`."""
    return OneOf(tuple(parts.values()), lambda values: parts[values[parameter.name]], preset)


def always(part: Part, **preset: Any) -> OneOf:
    """This part and no other; `preset` as in `OneOf`."""
    return OneOf((part,), lambda values: part, preset)


def for_drafter(parameter: Parameter, parts: Mapping[str, Part], **preset: Any) -> OneForDrafter:
    """The part that a parameter names, for the drafter model; `preset` as in `OneOf`."""
    return OneForDrafter(tuple(parts.values()), lambda values: parts[values[parameter.name]], preset)


def merged(*several: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """Each parameter once, by its name."""
    by_name: dict[str, Parameter] = {}
    for parameters in several:
        for parameter in parameters:
            by_name.setdefault(parameter.name, parameter)
    return tuple(by_name.values())


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
