"""Which combinations of the tables the suite runs: every one that can differ, found by watching the parts at work.

A rule does not know who judges, a verifier does not know which rule ended the draft, and both meet a drafter through
its proposals only. So every rule meets one verifier, every verifier meets one rule, and what a drafter never asks
or never proposes is not paired with it. A new line of a table is watched like the others; nothing here names one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from egag.choosing.drafter_chooser import DrafterChooser
from egag.delegating import DelegatingRule
from egag.draft_distribution import DraftDistribution, LogitsDistribution
from egag.entropy import entropy
from egag.length_rule import LengthRule
from egag.tree_growth import TreeGrowth
from sampling.drafter import Drafter
from sampling.drafters import growth
from sampling.methods.method import FIXED
from sampling.methods.rules import CHOOSERS, CONTROLLERS
from sampling.methods.tables import COPIERS, DRAFTERS, HEADS, METHODS
from sampling.methods.verifiers import VERIFIERS
from sampling.pair.pair import Pair
from tests.conformance import suite
from tests.conformance.suite import Case
from tests.conformance.toy import toy_pair
from tests.conformance.trees import PointTreeDrafter, TreeDrafter
from utils.events import Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor

TREES: dict[str, type[Drafter]] = {"sampled tree": TreeDrafter, "point tree": PointTreeDrafter}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    **{
        f"{kind} {tree} tree": (kind, {"draft_tree": tree, "tree_tokens": 6})
        for kind in HEADS
        for tree in ("static", "drawn", "dynamic")
    },
    **{
        f"{kind} best_first tree": (kind, {"draft_tree": "best_first", "tree_tokens": 6})
        for kind in ("medusa", "parallel_eagle", "dspark")
    },
    "eagle + copies": ("extended", {"hybrid_model": "eagle"}),
    "suffix or medusa": ("suffix_or_model", {"hybrid_model": "medusa"}),
    "suffix or mtp tree": (
        "suffix_or_model",
        {"hybrid_model": "mtp", "num_model_steps": 3, "draft_tree": "dynamic", "tree_tokens": 6},
    ),
    "suffix tree or model": ("suffix_or_model", {"use_tree_spec": True, "min_token_prob": 0.0, "num_model_steps": 1}),
    "model + n-grams": ("extended", {"hybrid_copy": "ngram"}),
    "model + suffix": ("extended", {"hybrid_copy": "suffix"}),
    **{
        f"staged {kind} {tree}": ("staged", {"staged_drafter": kind, "draft_tree": tree, "tree_tokens": 6})
        for kind in HEADS
        for tree in ("chain", "dynamic")
    },
    **{f"staged {copier}": ("staged", {"staged_drafter": copier, "staged_gamma": 3}) for copier in COPIERS},
    "suffix tree": ("suffix", {"use_tree_spec": True, "max_spec_factor": 4.0, "min_token_prob": 0.0}),
}
NAMES = [*DRAFTERS, *VARIANTS, *TREES]
RULES, JUDGES = tuple(CONTROLLERS), tuple(VERIFIERS)
# Whether these move depends on the machine; every process has to collect the same tests.
BY_THE_CLOCK = ("ucb", "survival", "ucb_rules")

Names = tuple[str, ...]


def build_drafter(name: str, pair: Pair, forgetful: bool = False) -> Drafter:
    """A drafter of the table, a variant or a tree of the tests, for a pair. forgetful: without what it declares."""
    if name in TREES:
        return TREES[name].build(pair, {})
    part, given = VARIANTS.get(name, (name, {}))
    values = {**{one.name: one.default for one in DRAFTERS[part].all_parameters}, **given}
    if forgetful:
        values |= {memory.parameter: memory.value for memory in DRAFTERS[part].memories(values)}
    return DRAFTERS[part].build(pair, values)  # type: ignore[no-any-return]


def case(drafter: str, controller: str = RULES[0], verifier: str = JUDGES[0], forgetful: bool = False) -> Case:
    """A combination by its names. A drafter that holds several has a rule of its own."""
    if drafter in CHOOSERS:
        rule = partial(CHOOSERS[drafter].build, None, {"survival_live": False})
    else:
        rule = partial(CONTROLLERS[controller].build, None, {})
    return Case(
        lambda pair: build_drafter(drafter, pair, forgetful),
        rule,
        lambda: VERIFIERS[verifier].build(None, {}),
    )


class Listener(DelegatingRule):
    """A rule that notes in `heard` whether it is shown distributions."""

    def __init__(self, rule: LengthRule, heard: list[bool]) -> None:
        self._rule, self.heard = rule, heard

    @property
    def rule(self) -> LengthRule:
        return self._rule

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        self.heard.append(distribution is not None)
        return super().before(drafted, distribution)

    @property
    def tree_growth(self) -> TreeGrowth:
        return ListeningGrowth(self.rule.tree_growth, self.heard)


class ListeningGrowth(TreeGrowth):
    """The same of how a tree is grown."""

    def __init__(self, growth: TreeGrowth, heard: list[bool]) -> None:
        self._growth, self._heard = growth, heard

    def start_tree(self, distribution: DraftDistribution | None, steps: int = 1) -> bool:
        self._heard.append(distribution is not None)
        return self._growth.start_tree(distribution, steps)

    def acceptance(self, chance: float, depth: int) -> float:
        return self._growth.acceptance(chance, depth)

    def expand_layer(self, level: int, chances: Sequence[float], layer: Sequence[float]) -> bool:
        return self._growth.expand_layer(level, chances, layer)


@dataclass(frozen=True, slots=True)
class Trait:
    """What a drafter was seen to do.

    drafts: it proposes something. distribution: it shows rules what it draws from. forms: its proposals, as (a tree,
    drawn from q).
    """

    drafts: bool
    distribution: bool
    forms: frozenset[tuple[bool, bool]]


@cache
def trait(drafter: str) -> Trait:
    """Watch a drafter at work under sampling."""
    made, heard = case(drafter), list[bool]()

    def listening() -> LengthRule:
        rule = made.gamma()
        if not isinstance(rule, DrafterChooser):
            return Listener(rule, heard)
        rule.watch = partial(Listener, heard=heard)
        return rule

    rounds = _rounds(Case(made.drafter, listening, made.verifier))
    forms = {(round.parents is not None, any(q != 1.0 for q in round.q)) for round in rounds if round.drafts}
    return Trait(bool(forms), any(heard), frozenset(forms))


@cache
def lengths(rule: str, distribution: bool) -> tuple[int, ...]:
    """The draft lengths that a rule allows, round by round, with the distributions of a drafter or without any."""
    drafter = next(name for name in NAMES if trait(name).drafts and trait(name).distribution == distribution)
    return tuple(round.gamma for round in _rounds(case(drafter, rule)))


def _rounds(one: Case, drafter_seed: int | None = 1) -> list[Round]:
    """Those of a run long enough for acceptances and rejections."""
    events = suite.run(one, toy_pair(drafter_seed=drafter_seed), MultinomialProcessor(1.0), 16)
    return [event for event in events if isinstance(event, Round)]


def allowed_rules(drafter: str) -> Names:
    """The rules that a drafter may take: all of them, or its methods' own where these refuse the others."""
    part, _ = VARIANTS.get(drafter, (drafter, {}))
    rules = {method.controller for method in METHODS.values() if method.drafter == part}
    return tuple(rule for rule in RULES if rule in rules) if rules and rules.isdisjoint(FIXED) else RULES


@cache
def rules_of(drafter: str) -> Names:
    """The rules that a drafter meets, the one that is paired with every verifier first.

    - Where nothing is drafted, no rule is asked.
    - Of drafters with one way of drafting, the first meets every rule that it may take, the others one that verdicts
      do not move and one that they move.
    - Without distributions, a rule is a number in each round: of those that verdicts do not move the largest comes
      first.
    """
    seen, allowed = trait(drafter), allowed_rules(drafter)
    if not seen.drafts:
        return RULES[:1]
    stays, moves = _stays_and_moves(seen.distribution)
    if _first(drafter, drafting_class):
        return tuple(sorted(allowed, key=lambda rule: rule != stays))
    return tuple(rule for rule in (stays, moves) if rule in allowed) or allowed[:1]


@cache
def _stays_and_moves(distribution: bool) -> tuple[str, str]:
    """A rule that verdicts do not move and one that they move, for drafters with distributions or without any."""
    moving = [rule for rule in RULES if rule in BY_THE_CLOCK or len(set(lengths(rule, distribution))) > 1]
    if distribution:
        return RULES[0], moving[0]
    return max((rule for rule in RULES if rule not in moving), key=lambda rule: max(lengths(rule, False))), moving[-1]


@cache
def reads_distributions(rule: str) -> bool:
    """Whether a rule looks at what drafts are drawn from: no other could bend the distribution of what is kept."""
    looks: list[LogitsDistribution] = []

    class Watched(LogitsDistribution):
        @property
        def nats(self) -> Tensor:  # type: ignore[override]
            """Recorded of every round: no look of the rule."""
            return entropy(self.logits)

        @property
        def entropy(self) -> float:  # type: ignore[override]
            looks.append(self)
            return self.nats.item()

        @property
        def _probs(self) -> Tensor:  # type: ignore[override]
            looks.append(self)
            return torch.softmax(self.logits.float(), dim=-1)

    with patch.object(growth, "LogitsDistribution", Watched):
        _rounds(case("model", rule))
    return bool(looks)


def judges_of(drafter: str, processor: LogitsProcessor) -> Names:
    """The verifiers that a drafter meets: of those that are lossless under the processor.

    Without drafts all of them draw from p. The first meets all drafters, the others each form of a proposal: what
    they judge is a form, and not who wrote it.
    """
    judges = tuple(name for name in JUDGES if VERIFIERS[name].build(None, {}).lossless(processor))
    return judges if trait(drafter).drafts and _first(drafter, _forms) else judges[:1]


@cache
def greedy_combinations() -> tuple[Names, ...]:
    """Those under greedy. Watching takes seconds: it is done for who asks, and not for who imports this."""
    return tuple(combinations(GreedyProcessor()))


@cache
def sampled_combinations() -> tuple[Names, ...]:
    """Those under sampling."""
    return tuple(combinations(MultinomialProcessor(1.0)))


def combinations(processor: LogitsProcessor) -> Iterable[Names]:
    """Drafter, rule and verifier of every combination that can differ under the processor.

    What a drafter computes shows under greedy, where every one is tested. The law of what is sampled hangs on how
    drafts are drawn, and on the form of a proposal: a variant of the tests that does both as one before it is left out.
    """
    for drafter in NAMES if processor.greedy else ways():
        rules, judges = rules_of(drafter), judges_of(drafter, processor)
        others = rules[1:] if processor.greedy else _rules_that_could_bend(drafter)
        yield from ((drafter, rules[0], judge) for judge in judges)
        yield from ((drafter, rule, judges[0]) for rule in others)


def _rules_that_could_bend(drafter: str) -> Names:
    """Those of its other rules under which the distribution of a drafter's output is tested.

    The first drafter with distributions meets all. Another way of drafting meets those that
    read distributions; who drafts as another does, none: that one keeps them all. A copy is the same whatever a rule
    has seen: one that moves is enough.
    """
    others = rules_of(drafter)[1:]
    if not trait(drafter).distribution:
        return tuple(rule for rule in others if rule == _stays_and_moves(False)[1])
    if not _first(drafter, drafting_class):
        return ()
    return others if meets_all_sampled(drafter) else tuple(rule for rule in others if reads_distributions(rule))


def ways() -> Names:
    """The drafters of the tables, and of the tests' variants the first of each class and form of a proposal.

    For what does not hang on a drafter's arithmetic: a law, an end of a text, a window, the runner under it.
    """
    return tuple(name for name in NAMES if name in DRAFTERS or draws_anew(name))


def draws_anew(drafter: str) -> bool:
    """Whether no drafter before this one drafts by the same class and makes proposals of the same form."""
    return _first(drafter, lambda name: (drafting_class(name), _forms(name)))


def meets_all_sampled(drafter: str) -> bool:
    """Whether it is where every rule is tested under sampling: its forwards are cheap, so that runs can be many."""
    return _first(drafter, lambda name: trait(name).distribution)


def cut_drafters(every_form: bool) -> list[str]:
    """Drafters to test under a processor that leaves tokens without probability.

    It reaches who draws, in each way of drafting; certain drafts are the same under all processors, and p alone is
    cut: one drafter of each form is enough. every_form: this is all that is wanted of drafters that draw as well.
    """
    drawn = (name for name in NAMES if any(drawn for _, drawn in trait(name).forms) and draws_anew(name))
    first = {name for name in NAMES if trait(name).drafts and _first(name, _forms)}
    return sorted(first if every_form else first.union(drawn), key=NAMES.index)


@cache
def drafter_seeds(drafter: str) -> list[int | None]:
    """Seeds of drafter models that make a difference to a drafter: one unlike the target, and its twin."""
    apart, alike = ([round.drafts for round in _rounds(case(drafter), seed)] for seed in (1, None))
    return [1, None] if apart != alike else [1]


def _first(drafter: str, key: Any) -> bool:
    """Whether no drafter before this one has the same key."""
    return next(name for name in NAMES if key(name) == key(drafter)) == drafter


@cache
def drafting_class(drafter: str) -> type[Drafter]:
    """The class that says how a drafter drafts: the one that overrides it last."""
    return next(kind for kind in type(build_drafter(drafter, toy_pair())).__mro__ if says_how_to_draft(kind))


def says_how_to_draft(kind: type) -> bool:
    """Whether a class defines how it drafts, and does not inherit it."""
    return kind is not Drafter and "propose" in vars(kind)


def _forms(drafter: str) -> frozenset[tuple[bool, bool]]:
    return trait(drafter).forms
