"""A part of a method, declared once: its class, what it reads, what it needs, and the parts inside it.

Parts and choices of parts answer the same questions, so that whatever holds them passes a question on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from sampling.drafting_pair import DraftingPair
from utils.parameter import Parameter, Values

Bound = tuple[str, str]

# Before the kind of a head: one that continues the states of the drafter model.
OF_DRAFTER = "drafter's "


@dataclass(frozen=True, slots=True)
class Unless:
    """It is so, unless the parameter has this value."""

    parameter: str
    value: Any

    def holds(self, values: Values) -> bool:
        """Whether it is so where the parameters have these values."""
        return bool(values[self.parameter] != self.value)


@dataclass(frozen=True, slots=True)
class Where(Unless):
    """It is so only where the parameter has this value."""

    def holds(self, values: Values) -> bool:
        """Whether it is so where the parameters have these values."""
        return not Unless.holds(self, values)


@dataclass(frozen=True, slots=True)
class UnlessOneOf(Unless):
    """It is so, unless the parameter has one of these values."""

    def holds(self, values: Values) -> bool:
        """Whether it is so where the parameters have these values."""
        return values[self.parameter] not in self.value


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


def _named(one: Parameter | str, values: Values) -> str:
    return str(values[one.name]) if isinstance(one, Parameter) else one


@dataclass(frozen=True, slots=True)
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
    remembers: Unless | None = None
    bounds: tuple[Bound, ...] = ()
    trees: Unless | bool = False
    read: Mapping[str, Unless] = field(default_factory=dict)
    weighs: bool = False
    hybrid: Hybrid | None = None
    limits: bool = False
    one_vocabulary: bool = False

    def load(self) -> Any:
        """The class behind `path`."""
        return _imported(self.path)

    def build(self, pair: DraftingPair | None, values: Values) -> Any:
        """An object of this part for a loaded pair of models; missing values take their defaults."""
        own = {p.name: values.get(p.name, p.default) for p in self.parameters}
        inside = [used.build(pair, {**values, **own}) for used in self.uses]
        if not self.path:
            (only,) = inside
            return only
        return self.load().build(pair, own, *inside)

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """Its own parameters, then those of the parts inside it."""
        return merged(self.parameters, *(used.all_parameters for used in self.uses))

    @property
    def all_bounds(self) -> tuple[Bound, ...]:
        """Its own bounds, then those of the parts inside it."""
        return (*self.bounds, *(bound for used in self.uses for bound in used.all_bounds))

    def relevant(self, values: Values) -> tuple[Parameter, ...]:
        """Those of `all_parameters` that matter where the others have these values."""
        own = (p for p in self.parameters if p.name not in self.read or self.read[p.name].holds(values))
        return merged(own, *(used.relevant(values) for used in self.uses))

    def needed(self, values: Values) -> str | None:
        """What a pair must have where the parameters have these values; None = nothing."""
        return self.needs or next(filter(None, (used.needed(values) for used in self.uses)), None)

    def memories(self, values: Values) -> Iterator[Unless]:
        """By what it, and each part inside it, depends on earlier prompts where the parameters have these values."""
        if self.remembers and self.remembers.holds(values):
            yield self.remembers
        for used in self.uses:
            yield from used.memories(values)

    def drafts_trees(self, values: Values) -> bool:
        """Whether its drafts, or those of a part inside it, are trees where the parameters have these values."""
        own = self.trees.holds(values) if isinstance(self.trees, Unless) else self.trees
        return own or any(used.drafts_trees(values) for used in self.uses)

    def weighs_costs(self, values: Values) -> bool:
        """Whether it, or a part inside it, reads what rounds cost where the parameters have these values."""
        return self.weighs or any(used.weighs_costs(values) for used in self.uses)


@dataclass(frozen=True, slots=True)
class TrainedPart(Part):
    """A part with weights of its own. task: the class that says how they are trained, by its import path."""

    task: str = ""

    def load_task(self) -> Any:
        """The class behind `task`."""
        return _imported(self.task)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whichever of some parts the values pick. Only its parameters matter then.

    preset: parameters of the parts that stay at these values, which are then no parameters of the whole.
    """

    parts: tuple[Part, ...]
    pick: Callable[[Values], Part]
    preset: Mapping[str, Any] = field(default_factory=dict)

    def build(self, pair: DraftingPair | None, values: Values) -> Any:
        """An object of the part that the values pick."""
        return self.pick(values).build(pair, {**values, **self.preset})

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """The parameters of every part."""
        return without(self.preset, merged(*(part.all_parameters for part in self.parts)))

    @property
    def all_bounds(self) -> tuple[Bound, ...]:
        """The bounds between those parameters."""
        bounds = dict.fromkeys(bound for part in self.parts for bound in part.all_bounds)
        return tuple(bound for bound in bounds if not self.preset.keys() & bound)

    def relevant(self, values: Values) -> tuple[Parameter, ...]:
        """What matters of the part that the values pick."""
        return without(self.preset, self.pick(values).relevant({**values, **self.preset}))

    def needed(self, values: Values) -> str | None:
        """What a pair must have for the part that the values pick."""
        return self.pick(values).needed({**values, **self.preset})

    def memories(self, values: Values) -> Iterator[Unless]:
        """By what the part that the values pick depends on earlier prompts."""
        return self.pick(values).memories({**values, **self.preset})

    def drafts_trees(self, values: Values) -> bool:
        """Whether the part that the values pick drafts trees."""
        return self.pick(values).drafts_trees({**values, **self.preset})

    def weighs_costs(self, values: Values) -> bool:
        """Whether the part that the values pick reads what rounds cost."""
        return self.pick(values).weighs_costs({**values, **self.preset})


class OneForDrafter(OneOf):
    """Whichever of some parts the values pick, drafting for the pair's drafter model as others do for the target."""

    def build(self, pair: DraftingPair | None, values: Values) -> Any:
        """The part that the values pick, for the drafter model."""
        return OneOf.build(self, None if pair is None else pair.of_drafter, values)

    def needed(self, values: Values) -> str | None:
        """The head that the drafter model must have; it is known by `of_drafter`."""
        needed = OneOf.needed(self, values)
        return None if needed is None else f"{OF_DRAFTER}{needed}"

    def drafts_trees(self, values: Values) -> bool:
        """False: what the target judges are not its drafts."""
        return False


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
    found: dict[str, Parameter] = {}
    for parameters in several:
        for parameter in parameters:
            found.setdefault(parameter.name, parameter)
    return tuple(found.values())


def without(preset: Mapping[str, Any], parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """The parameters that nothing fixes."""
    return tuple(parameter for parameter in parameters if parameter.name not in preset)


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
