"""A method: a name for its parts, which answer what it reads, needs and remembers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from egag.cost_model import CostModel
from sampling.methods import part
from sampling.methods.part import ActivePart, Bound, Condition, Part
from sampling.pair.profile import LatencyProfile
from utils.parameter import Parameter, Values
from utils.registry import Registry

FIXED = ("fixed", "budget")
"""Rules that are a plain number."""
_FEW = 64
"""Drafts of a round that may be there whatever parameters say."""


def labelled(title: str, name: str) -> str:
    """A title, with the name that commands take behind it where that is another word."""
    return title if title.lower().replace(" ", "_") == name else f"{title} ({name})"


@dataclass(frozen=True)
class Method:
    """A name for (drafter, controller) on one of the pair's models, or for a search; `on` = enabled at start.

    How its drafts are judged is a setting of the user's. `search`: a line of SEARCHES, which drafts nothing.

    `preset` fixes parameters of the parts, which are then no parameters of the method. parts: what it is made of,
    which the table fills in.
    """

    name: str
    title: str
    help: str
    drafter: str = "none"
    controller: str = "fixed"
    runs: Literal["target", "drafter"] = "target"
    search: str = ""
    on: bool = False
    preset: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = field(default=(), repr=False)

    @property
    def label(self) -> str:
        """Its title with its name, as tables print it. Example: `SD (speculative)`."""
        return labelled(self.title, self.name)

    @property
    def drafts(self) -> bool:
        """Whether there is anything to judge."""
        return self.drafter != "none"

    @property
    def adapts(self) -> bool:
        """Whether its own rule may ask for another gamma in the next round."""
        return self.drafts and self.controller not in FIXED and not self.rule.limits

    @property
    def rule(self) -> Part:
        """Who decides how much to draft."""
        return self.parts[1]

    @property
    def other(self) -> str | None:
        """What makes its output another than the target's own; then nothing is compared with the reference."""
        if self.search:
            return "other output"
        return "other model" if self.runs == "drafter" else None

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What a user may set, from all its parts."""
        return part.all_parameters(self.active(None))

    @cached_property
    def own_parameters(self) -> tuple[Parameter, ...]:
        """Those without the ones of other rules, which a user's `draft_rule` would bring in."""
        rules = self.parts[1:2]
        defaults = {p.name: p.default for p in self.parameters}
        known = {p.name for rule in rules for p in rule.relevant({**defaults, **self.preset})}
        brought = {p.name for rule in rules for p in rule.all_parameters} - known
        return tuple(p for p in self.parameters if p.name not in brought)

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """(low, high) parameters of which low must not be above high."""
        return part.all_bounds(self.active(None))

    def active(self, values: Values | None) -> Iterator[ActivePart]:
        """Its parts, and those inside them, that count where the parameters have these values; None: all of them."""
        seen = None if values is None else {**values, **self.preset}
        return (each.behind(self.preset) for line in self.parts for each in line.active(seen))

    def needs(self, values: Values) -> str | None:
        """What a pair must have for it: `model`, a drafter model, or a kind of trained head; None = nothing."""
        return "model" if self.runs == "drafter" else part.needed(self.active(values))

    def remembers(self, values: Values) -> bool:
        """Whether a run depends on the prompts before it."""
        return bool(self.memories(values))

    def memories(self, values: Values) -> tuple[Condition, ...]:
        """By what a run depends on the prompts before it."""
        return part.memories(self.active(values))

    def most_rows(self, values: Values) -> int:
        """The most rows that the target reads in a round: the drafts, and one more."""
        if not self.drafts:
            return 1
        seen = {**values, **self.preset}
        return 1 + max(_FEW, *(int(seen[p.name]) for p in self.relevant(values) if p.bounds_drafts))

    def drafts_trees(self, values: Values) -> bool:
        """Whether its drafts are trees, or its texts branches of one."""
        return part.drafts_trees(self.active(values))

    def weighs_costs(self, values: Values) -> bool:
        """Whether anything in it reads what rounds cost, which must then be measured before it runs."""
        return part.weighs_costs(self.active(values))

    def cost_model(self, profile: LatencyProfile, values: Values, context: int = 0) -> CostModel | None:
        """What its rounds cost by a profile, behind about so many tokens of text; a hybrid's by what drafts in it.

        None where that was not timed, and where the rounds are no drafting for the target.
        """
        if self.search or self.runs == "drafter":
            return None
        drafter, trees = self.parts[0], self.drafts_trees(values)
        if drafter.hybrid is None:
            return profile.cost_model(drafter.name, context, branched=trees)
        model, paid, copier = drafter.hybrid.named({**values, **self.preset})
        return profile.cost_model(model, context, paid, copier, trees)

    def relevant(self, values: Values) -> tuple[Parameter, ...]:
        """Those parameters that matter where the others have these values."""
        return part.relevant(self.active(values))


def method_table(parts_of: Callable[[Method], tuple[Part, ...]], *lines: Method) -> Registry[Method]:
    """The table of methods, each with the parts that its line names."""
    return Registry("method", *(replace(line, parts=parts_of(line)) for line in lines))
