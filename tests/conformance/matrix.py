"""Which combinations of the tables the suite runs: every one that can differ, found by watching the parts at work.

A rule does not know who judges, a verifier does not know which rule ended the draft, and both meet a drafter through
its proposals only. So every rule meets one verifier, every verifier meets one rule, and what a drafter never asks
or never proposes is not paired with it. A new line of a table is watched like the others; nothing here names one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from egag.draft_distribution import DraftDistribution
from egag.length_rule import FixedGamma
from sampling.drafter import Drafter
from sampling.methods import COPIERS, DRAFTERS, HEADS, VERIFIERS
from sampling.pair import Pair
from sampling.rules import CONTROLLERS
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
    """A combination by its names."""
    return Case(
        lambda pair: build_drafter(drafter, pair, forgetful),
        lambda: CONTROLLERS[controller].build(None, {}),
        lambda: VERIFIERS[verifier].build(None, {}),
    )


class Listener(FixedGamma):
    """A rule that hears whether it is shown distributions."""

    heard = False

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        self.heard |= distribution is not None
        return super().before(drafted, distribution)


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
    rule = Listener()
    made = case(drafter)
    rounds = _rounds(Case(made.drafter, lambda: rule, made.verifier))
    forms = {(round.parents is not None, any(q != 1.0 for q in round.q)) for round in rounds if round.drafts}
    return Trait(bool(forms), rule.heard, frozenset(forms))


@cache
def lengths(rule: str, distribution: bool) -> tuple[int, ...]:
    """The draft lengths that a rule allows, round by round, with the distributions of a drafter or without any."""
    drafter = next(name for name in NAMES if trait(name).drafts and trait(name).distribution == distribution)
    return tuple(round.gamma for round in _rounds(case(drafter, rule)))


def _rounds(one: Case, drafter_seed: int | None = 1) -> list[Round]:
    """Those of a run long enough for acceptances and rejections."""
    events = suite.run(one, toy_pair(drafter_seed=drafter_seed), MultinomialProcessor(1.0), 16)
    return [event for event in events if isinstance(event, Round)]


@cache
def rules_of(drafter: str) -> Names:
    """The rules that a drafter meets, the one that is paired with every verifier first.

    - Where nothing is drafted, no rule is asked.
    - Without distributions, a rule is a number in each round. Of those that verdicts do not move the largest stands
      for all; of those that they move the last one does, but for the first such drafter, which meets each of them.
    - A rule is asked by `propose`. Of drafters that share it, the first meets all rules, the others one that stays
      and one that moves.
    """
    seen = trait(drafter)
    if not seen.drafts:
        return RULES[:1]
    moving = tuple(rule for rule in RULES if rule in BY_THE_CLOCK or len(set(lengths(rule, seen.distribution))) > 1)
    if not seen.distribution:
        numbers = [rule for rule in RULES if rule not in moving]
        others = moving if _first(drafter, _copies) else moving[-1:]
        return (max(numbers, key=lambda rule: max(lengths(rule, False))), *others)
    return RULES if _first(drafter, _propose) else (RULES[0], *moving[:1])


def judges_of(drafter: str, processor: LogitsProcessor) -> Names:
    """The verifiers that a drafter meets: of those that are lossless under the processor.

    Without drafts all of them draw from p. Under sampling, where a test is costly, the first meets all drafters, the
    others each form of a proposal: what they judge is a form, and not who wrote it.
    """
    judges = tuple(name for name in JUDGES if VERIFIERS[name].build(None, {}).lossless(processor))
    if not trait(drafter).drafts or not (processor.greedy or _first(drafter, _forms)):
        return judges[:1]
    return judges


@cache
def greedy_combinations() -> tuple[Names, ...]:
    """Those under greedy. Watching takes seconds: it is done for who asks, and not for who imports this."""
    return tuple(combinations(GreedyProcessor()))


@cache
def sampled_combinations() -> tuple[Names, ...]:
    """Those under sampling."""
    return tuple(combinations(MultinomialProcessor(1.0)))


def combinations(processor: LogitsProcessor) -> Iterable[Names]:
    """Drafter, rule and verifier of every combination that can differ under the processor."""
    for drafter in NAMES:
        rules, judges = rules_of(drafter), judges_of(drafter, processor)
        # A rule cannot bend a distribution that the same `propose` keeps under another rule.
        shared = trait(drafter).distribution and not _first(drafter, _propose)
        others = rules[1:] if processor.greedy or not shared else ()
        yield from ((drafter, rules[0], judge) for judge in judges)
        yield from ((drafter, rule, judges[0]) for rule in others)


def cut_drafters(every_form: bool) -> list[str]:
    """Drafters to test under a processor that leaves tokens without probability.

    It reaches a drafter that draws; certain drafts are the same under all processors, and p alone is cut: one
    drafter of each form is enough. every_form: this is all that is wanted of drafters that draw as well.
    """
    drawn = (name for name in NAMES if any(drawn for _, drawn in trait(name).forms))
    first = {name for name in NAMES if trait(name).drafts and _first(name, _forms)}
    return sorted(first if every_form else first.union(drawn), key=NAMES.index)


def drafter_seeds(drafter: str) -> list[int | None]:
    """Seeds of drafter models that make a difference to a drafter: one unlike the target, and its twin."""
    apart, alike = ([round.drafts for round in _rounds(case(drafter), seed)] for seed in (1, None))
    return [1, None] if apart != alike else [1]


def _first(drafter: str, key: Any) -> bool:
    """Whether no drafter before this one has the same key."""
    return next(name for name in NAMES if key(name) == key(drafter)) == drafter


@cache
def _propose(drafter: str) -> Any:
    return type(build_drafter(drafter, toy_pair())).propose


def _copies(drafter: str) -> bool:
    return trait(drafter).drafts and not trait(drafter).distribution


def _forms(drafter: str) -> frozenset[tuple[bool, bool]]:
    return trait(drafter).forms
