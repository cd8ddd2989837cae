"""What the lines of the tables declare is so: needs, memory, bounds, and the parts inside a part."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from inspect import signature
from itertools import product
from operator import attrgetter
from typing import Any

import pytest

from sampling.distill.tasks import Task
from sampling.forward.runner import ModelRunner
from sampling.heads.config import HeadConfig
from sampling.methods.choices import PROCESSORS, STORAGES
from sampling.methods.part import OF_DRAFTER, OneOf, Part, chosen_by, unless
from sampling.methods.rules import CONTROLLERS
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import COPIERS, DRAFTERS, HEADS, METHODS, MODELS
from sampling.methods.verifiers import JUDGING, POLICIES, VERIFIERS
from sampling.pair.pair import MODEL, Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.pair_messages import no_trees
from sampling.proof.selftest import testable as runnable
from tests.conformance.toy import PROMPT, toy_pair
from tests.refusals import refused
from utils.events import Round
from utils.parameter import integer

TABLES = (DRAFTERS, CONTROLLERS, VERIFIERS, POLICIES, STORAGES, PROCESSORS)
PARTS = [pytest.param(part, id=f"{table.kind}: {part.name}") for table in TABLES for part in table.values()]
INSIDE = ("hybrid_model", "hybrid_copy", "staged_drafter")
HYBRIDS = [name for name, part in DRAFTERS.items() if part.uses]


@dataclass
class Built:
    """Stands for any class of the tables: what it was built with."""

    values: dict[str, Any]
    inside: tuple["Built", ...]

    @classmethod
    def build(cls, pair: object, values: dict[str, Any], *inside: "Built") -> "Built":
        return cls(values, inside)


def choices(part: Part) -> Iterator[dict[str, Any]]:
    """Every way in which the values may pick the parts inside."""
    words = {p.name: p.words for p in part.parameters if p.name in INSIDE}
    for names in product(*words.values()):
        yield {**Settings(), **dict(zip(words, names, strict=True))}


CHOICES = [
    pytest.param(name, values, id="-".join([name, *(str(values[p]) for p in INSIDE)]))
    for name in HYBRIDS
    for values in choices(DRAFTERS[name])
]


def with_only(pair: Pair, needed: str | None) -> Pair:
    heads = {kind: place for kind, place in pair.heads.items() if kind == needed}
    inner = {kind: place for kind, place in pair.drafter_heads.items() if f"{OF_DRAFTER}{kind}" == needed}
    drafter = pair.drafter if needed == MODEL or inner else None
    return replace(pair, drafter=drafter, heads=heads, drafter_heads=inner)


@pytest.mark.parametrize("part", PARTS)
def test_every_line_says_what_it_is(part: Part) -> None:
    assert part.help
    assert part.load() if part.path else len(part.uses) == 1
    assert len({p.name for p in part.all_parameters}) == len(part.all_parameters)


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_needs_a_head_of_its_own_name_and_hybrids_take_it(kind: str) -> None:
    assert DRAFTERS[kind].needs == kind
    assert DRAFTERS[kind].load().method == kind
    assert kind in PARAMETERS["hybrid_model"].words


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_pair_with_what_a_drafter_needs_is_enough_and_one_without_is_not(name: str) -> None:
    whole = toy_pair()
    for values in choices(DRAFTERS[name]):
        needed = DRAFTERS[name].needed(values)
        assert DRAFTERS[name].build(with_only(whole, needed), values)
        if needed is not None:
            others = replace(whole, drafter=None) if needed == MODEL else replace(whole, heads={}, drafter_heads={})
            said = others.lack(needed)
            assert said is not None
            with refused(said):
                DRAFTERS[name].build(others, values)


def test_a_methods_need_is_that_of_its_parts_or_of_what_runs() -> None:
    values = {**Settings(), "hybrid_model": "mtp"}
    found = {name: method.needs(values) for name, method in METHODS.items() if method.needs(values)}
    models = dict.fromkeys(("drafter", "speculative", "egag", "heuristic", "confidence", "ucb"), "model")
    heads = {kind: kind for kind in HEADS}
    assert found == {**models, "extended": "mtp", "suffix_or_model": "mtp", "staged": "drafter's mtp", **heads}
    assert METHODS["staged"].needs({**values, "staged_drafter": "suffix"}) == MODEL


@pytest.mark.parametrize(
    ("name", "values", "trees"),
    [
        ("logitspec", {}, True),
        ("recycling", {}, True), ("beam", {}, True), ("target", {}, False), ("speculative", {}, False),
        ("suffix", {"use_tree_spec": True}, True), ("suffix", {"use_tree_spec": False}, False),
        ("suffix_or_model", {"use_tree_spec": True}, True), ("extended", {"hybrid_model": "mtp"}, False),
        ("extended", {"hybrid_model": "mtp", "hybrid_copy": "suffix", "use_tree_spec": True}, False),
        *((kind, {"draft_tree": shape}, shape != "chain") for kind in HEADS for shape in ("chain", "dynamic")),
    ],
)  # fmt: skip
def test_what_works_with_trees_is_refused_on_a_model_of_chains(name: str, values: dict[str, Any], trees: bool) -> None:
    pair, settings = toy_pair(), {**Settings(), "length": 4, **values}
    assert pair.lacks(METHODS[name], settings) is None
    chains = replace(pair, target=ModelRunner(replace(pair.target.model, trees=False)))  # type: ignore[type-var]
    assert METHODS[name].drafts_trees(settings) is trees
    said = chains.lacks(METHODS[name], settings)
    assert (said is not None) is trees
    if said is not None:
        assert said == no_trees(name, "toy")
        with refused(said):
            PairEngine(chains).stream(name, settings, PROMPT)
    assert (name in runnable(chains)) == (name in runnable(pair) and not METHODS[name].drafts_trees(Settings()))


def run_twice(name: str, **values: object) -> list[list[tuple[int, ...]]]:
    """The drafts of a prompt, of another one, and of the first again."""
    engine, settings = PairEngine(toy_pair()), {**Settings(), "length": 24, **values}
    prompts = (PROMPT, (5, 0, 5), PROMPT)
    return [
        [event.drafts for event in engine.stream(name, settings, prompt) if isinstance(event, Round)]
        for prompt in prompts
    ]


FORGETTING = {"reset_in_between": (True, False), "max_cached_requests": (0, -1), "hybrid_copy": tuple(COPIERS)}


def memories() -> Iterator[Any]:
    """Every method that drafts, with all values of what memory may depend on."""
    for name, method in METHODS.items():
        own = {p.name: FORGETTING[p.name] for p in method.parameters if p.name in FORGETTING}
        for values in product(*own.values()) if method.drafts else ():
            yield pytest.param(name, dict(zip(own, values, strict=True)), id=f"{name} {values}")


@pytest.mark.parametrize(("name", "values"), [*memories()])
def test_a_method_remembers_earlier_prompts_exactly_when_it_says_so(name: str, values: dict[str, Any]) -> None:
    first, _, again = run_twice(name, **values)
    assert (first != again) == METHODS[name].remembers({**Settings(), **values})


@pytest.mark.parametrize(("name", "values"), CHOICES)
def test_each_parameter_of_a_used_part_can_be_set_and_reaches_it(
    name: str, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Part, "load", lambda part: Built)
    part, method = DRAFTERS[name], next(method for method in METHODS.values() if method.drafter == name)
    settable = {p.name for p in method.parameters}
    for place, used in enumerate(part.uses):
        picked, fixed = (used.pick(values), used.preset) if isinstance(used, OneOf) else (used, {})
        for parameter in picked.all_parameters:
            marked = part.build(None, {**values, parameter.name: "marked"}).inside[place].values
            if parameter.name in fixed:
                assert marked[parameter.name] == fixed[parameter.name]
                assert parameter.name not in settable or parameter in part.uses[1 - place].all_parameters
            else:
                assert marked[parameter.name] == "marked"
                assert parameter.name in settable & PARAMETERS.keys()
                assert parameter in method.relevant({**values, "draft_tree": "dynamic"})


@pytest.mark.parametrize(("name", "values"), CHOICES)
def test_only_what_is_picked_matters(name: str, values: dict[str, Any]) -> None:
    part = DRAFTERS[name]
    own = {p.name for p in part.parameters}
    picked = [used.pick(values) if isinstance(used, OneOf) else used for used in part.uses]
    read = own.union(*({p.name for p in one.parameters} for one in picked))
    assert own <= {p.name for p in part.relevant(values)} <= read


def test_a_hybrid_is_built_anew_when_a_parameter_of_its_copier_changes() -> None:
    engine, settings = PairEngine(toy_pair()), Settings()
    first = engine.drafter("extended", settings)
    assert engine.drafter("extended", settings) is first
    settings.assign("max_ngram_size", "2")
    assert engine.drafter("extended", settings) is not first


@pytest.mark.parametrize("method", METHODS)
def test_what_is_declared_names_parameters_that_are_there(method: str) -> None:
    names = {p.name for p in METHODS[method].parameters}
    for low, high in METHODS[method].bounds:
        assert {low, high} <= names
        assert PARAMETERS[low].least is not None, f"{low} could not be opened"
    for part in METHODS[method].parts:
        assert part.remembers is None or part.remembers.parameter in names


def test_judging_is_a_part_of_every_method_that_drafts() -> None:
    for method in METHODS.values():
        assert (JUDGING in method.parts) == method.drafts
    for strategy, policy in product(VERIFIERS, POLICIES):
        built = JUDGING.build(None, {"verify_strategy": strategy, "accept_policy": policy})
        line = VERIFIERS[strategy] if policy == "normal" else POLICIES[policy]
        assert type(built) is line.load()


INNER = Part(
    "inner",
    "some:Inner",
    "",
    parameters=(integer("low", 1, "", minimum=1, maximum=9), integer("high", 2, "", minimum=1, maximum=9)),
    needs="medusa",
    remembers=unless("high", 0),
    bounds=(("low", "high"),),
)
PICK = integer("pick", 0, "", minimum=0, maximum=9)


def test_a_part_passes_on_what_the_parts_inside_it_declare() -> None:
    outer = Part("outer", "some:Outer", "", parameters=(PICK,), uses=(INNER,))
    twice = Part("twice", "some:Twice", "", uses=(outer, INNER))
    values = {"pick": 0, "low": 1, "high": 2}
    for part in (outer, twice):
        assert {p.name for p in part.all_parameters} == {"pick", "low", "high"} and len(part.all_parameters) == 3
        assert part.relevant(values) == part.all_parameters
        assert part.needed(values) == "medusa" and set(part.all_bounds) == {("low", "high")}
        assert list(outer.memories(values)) == [unless("high", 0)] and not list(outer.memories({**values, "high": 0}))


def test_of_a_choice_only_the_picked_part_counts_and_nothing_that_is_fixed() -> None:
    none = Part("none", "some:None", "")
    outer = Part("outer", "some:Outer", "", parameters=(PICK,), uses=(chosen_by(PICK, {0: none, 1: INNER}, high=0),))  # type: ignore[dict-item]
    assert [p.name for p in outer.all_parameters] == ["pick", "low"] and not outer.all_bounds
    assert outer.needed({"pick": 0}) is None and outer.needed({"pick": 1}) == "medusa"
    assert [p.name for p in outer.relevant({"pick": 0})] == ["pick"]
    assert [p.name for p in outer.relevant({"pick": 1})] == ["pick", "low"]
    assert not list(outer.memories({"pick": 1, "high": 5})), "high stays at 0"


def test_models_are_what_weights_are_trained_for() -> None:
    assert [*MODELS] == [MODEL, *HEADS]
    assert all(part.needs == name for name, part in MODELS.items())


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_trained_says_how(kind: str) -> None:
    task = MODELS[kind].load_task()
    assert issubclass(task, Task)
    assert task.configure(layers=30).keys() <= HeadConfig.__dataclass_fields__.keys()


def test_a_rule_whose_gamma_is_a_limit_is_not_said_to_have_never_moved() -> None:
    assert METHODS["egag"].adapts and METHODS["heuristic"].adapts
    assert not any(METHODS[name].adapts for name in ("confidence", "auto", "speculative", "target"))


@pytest.mark.parametrize(
    "part", [part for table in TABLES for part in table.values() if part.path], ids=attrgetter("path")
)
def test_a_class_has_the_defaults_of_its_line(part: Part) -> None:
    """Whoever makes a part by hand gets what a user gets who sets nothing."""
    arguments = signature(part.load()).parameters.values()
    defaults = {one.name: one.default for one in arguments if one.default is not one.empty}
    declared = {parameter.name: parameter.default for parameter in part.parameters}
    both = defaults.keys() & declared
    assert {name: defaults[name] for name in both} == {name: declared[name] for name in both}
