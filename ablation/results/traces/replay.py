"""Records of generations that were not run: other rules and lengths on the walks of a full trace, and their times."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ablation.results.column import measured
from ablation.results.computed import REPLAYED
from ablation.results.record import Record
from ablation.results.traces.generations import Generation, along, furthest
from egag.cost_model import CostModel
from egag.length_rule import FixedGamma, LengthRule
from sampling.measure.metrics import RunMetrics
from sampling.measure.replay import DraftWalk, PositionDraft, Sample, fitted, in_batch, replayed, scaled
from sampling.methods.rules import CONTROLLERS
from sampling.methods.settings import PARAMETERS, relevant_settings
from sampling.methods.tables import AR, DRAFTERS, METHODS
from utils.errors import UserError, one_of
from utils.parameter import Values

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What to replay in place of what was recorded; None: as it was.

    rule: of CONTROLLERS. gamma: a fixed length. nodes: of a tree, at most. values: parameters of rules. bounded: hold
    rules to the drafts that were recorded.
    """

    rule: str | None = None
    gamma: int | None = None
    nodes: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    bounded: bool = False

    @property
    def rules(self) -> bool:
        """Whether the rule is another: configurations of one drafter that differ in their rules are then the same."""
        return self.rule is not None or self.gamma is not None

    @property
    def words(self) -> str:
        """What sets it apart, as configurations are named. Example: draft_rule=egag, egag_gamma_max=4."""
        values = {"draft_rule": self.rule, "gamma": self.gamma, "tree_tokens": self.nodes}
        said = {name: str(value) for name, value in values.items() if value is not None}
        said |= {name: PARAMETERS[name].show(value) for name, value in self.values.items()}
        return ", ".join(f"{name}={text}" for name, text in said.items())

    def rule_of(self, method: str, values: Values) -> LengthRule:
        """The rule, for a method with these values."""
        if self.gamma is not None:
            return FixedGamma(self.gamma)
        part = METHODS[method].rule if self.rule is None else CONTROLLERS[self.rule]
        rule: LengthRule = part.build(None, {**values, **METHODS[method].preset})
        return rule


class Replays:
    """The generations of a full trace, and what they would have been otherwise.

    price: of a round with any of its drafters; None: fitted to their own rounds. batch: sequences side by side.
    methods: those to replay; others may hold the walks of the same drafters, and tell what rounds cost.
    """

    def __init__(
        self,
        generations: Iterable[Generation],
        price: CostModel | None = None,
        batch: int = 1,
        methods: Collection[str] | None = None,
    ) -> None:
        self.generations = [generation for generation in generations if generation.record.error is None]
        self.methods = methods
        self.price, self.batch = price, batch
        self._references = {
            _block(generation): generation for generation in self.generations if generation.record.configuration == AR
        }
        self._walks = {
            _answer(generation): generation.walk for generation in self.generations if generation.walk is not None
        }
        self._fits: dict[Key, CostModel] = {}
        self._rules: dict[Key, LengthRule] = {}

    @property
    def drafted(self) -> list[Generation]:
        """Those to replay: all that drafted by one of the methods."""
        wanted = self.methods
        return [
            generation
            for generation in self.generations
            if generation.drafter and (wanted is None or generation.record.method in wanted)
        ]

    @property
    def drafting(self) -> list[Generation]:
        """Of those the first of each drafter in each block: what others that share it differ in are rules."""
        first: dict[Key, Generation] = {}
        for generation in self.drafted:
            first.setdefault((_block(generation), generation.drafter), generation)
        return list(first.values())

    def walk(self, generation: Generation) -> DraftWalk:
        """What its drafter would have drafted along its answer. Raises `UserError` where that is not known."""
        record = generation.record
        if record.method == AR:
            return _plain(generation)
        if (walked := self._walks.get(_answer(generation))) is None:
            raise UserError(
                f"{record.configuration} under {record.settings['processor']}: what its drafter would have met at "
                "other positions is not in the trace; expected greedy decoding with one drafter"
            )
        return along(generation, walked)

    def furthest(self, generation: Generation) -> DraftWalk:
        """The walk of its drafter as it was made, with the drafts of any run on that answer that were right further.

        What its own rounds drafted otherwise, and cut short, says nothing of what could have been drafted there.
        """
        walk, walked = self.walk(generation), self._walks.get(_answer(generation))
        if walked is not None:
            walk = replace(walk, ahead=walked.ahead)
        for other in self._sharing(generation):
            if tuple(other.record.output_ids or ()) == walk.tokens:
                walk = furthest(walk, other.visits)
        return walk

    def cost(self, generation: Generation, alone: bool = False) -> CostModel:
        """What a round of its drafter costs on its prompt: as given, else fitted to rounds that were run.

        alone: at the level of its own rounds; else of all that were run on the prompt with its drafter.
        """
        if self.price is not None:
            price = self.price
        else:
            level = [generation] if alone else self._sharing(generation)
            price = scaled(self._fit(generation), [sample for generation in level for sample in generation.samples])
        return in_batch(price, self.batch) if self.batch > 1 else price

    def replay(self, generation: Generation, asked: ReplayRequest) -> Record:
        """The record of a generation as it would have been. Raises `UserError` where the trace cannot tell."""
        record = generation.record
        values = {**generation.values, **asked.values}
        tree = values["tree_tokens"] if "draft_tree" in record.settings else None
        nodes = tree if asked.nodes is None else asked.nodes
        title = self._told(generation, asked)
        rule = self._rule(generation, asked, title)
        price = self.cost(generation, alone=not asked.words)
        run = replayed(self.walk(generation), rule, price, nodes=nodes, bounded=asked.bounded or not asked.words)
        return self.record(generation, run, f"{REPLAYED}{title}", values)

    def _told(self, generation: Generation, asked: ReplayRequest) -> str:
        """A name that no other replay has: the method, with its drafter where it has several, and what is asked."""
        record = generation.record
        if not asked.words:
            return record.configuration
        if not asked.rules:
            return f"{record.configuration}, with {asked.words}"
        drafters = {generation.drafter for generation in self.drafted if generation.record.method == record.method}
        whose = f" of {generation.drafter}" if len(drafters) > 1 else ""
        return f"{record.method}{whose} {asked.words}"

    def _rule(self, generation: Generation, asked: ReplayRequest, title: str) -> LengthRule:
        """The rule, which goes on with what it remembers of the prompts before."""
        record = generation.record
        key = title, record.target_weights, record.repeat, record.settings["seed"], record.settings["processor"]
        rule = asked.rule_of(record.method, {**generation.values, **asked.values})
        if earlier := self._rules.get(key):
            rule.adopt(earlier)
        self._rules[key] = rule
        return rule

    def record(self, generation: Generation, run: RunMetrics, configuration: str, values: Values) -> Record:
        """The record of a run that was computed in the place of a generation."""
        record, reference = generation.record, self.reference(generation)
        known: dict[str, Any] = {name: getattr(run, name) for name in measured(Record)}
        unknown: dict[str, Any] = dict.fromkeys(_UNKNOWN)
        draft_ms = None if not run.drafted else run.draft_s * 1e3 / run.drafted
        return replace(
            record,
            **{**known, **unknown},
            configuration=configuration,
            settings={**record.settings, **relevant_settings(record.method, values)},
            speedup=None if reference is None else _ratio(run.tokens_per_s, reference.tokens_per_s),
            c=None if reference is None else _ratio(draft_ms, reference.verify_ms),
        )

    def reference(self, generation: Generation) -> Record | None:
        """Plain autoregression in the same block, as measured or at the price that was given; None: not there."""
        known = self._references.get(_block(generation))
        if known is None or (self.price is None and self.batch == 1):
            return None if known is None else known.record
        run = replayed(_plain(known), FixedGamma(0), self.cost(known))
        return replace(known.record, **{name: getattr(run, name) for name in measured(Record)}, speedup=1.0)

    def references(self, of: Iterable[Generation]) -> list[Record]:
        """The records of plain autoregression that these stand beside, each once."""
        first = {_block(generation): generation for generation in of}
        return [record for generation in first.values() if (record := self.reference(generation))]

    def _sharing(self, generation: Generation) -> list[Generation]:
        """All generations of its drafter on its answer, itself among them."""
        key = _block(generation), generation.drafter
        return [generation for generation in self.generations if (_block(generation), generation.drafter) == key]

    def _fit(self, generation: Generation) -> CostModel:
        """The price of a drafter over all prompts."""
        key = generation.record.target_weights, generation.drafter
        if key not in self._fits:
            beside = [generation for generation in self.generations if generation.record.target_weights == key[0]]
            samples, others, walked = list[Sample](), list[Sample](), list[Sample]()
            for generation in beside:
                (samples if generation.drafter == key[1] else others).extend(generation.samples)
                walked += (
                    generation.walk.samples if generation.walk is not None and generation.drafter == key[1] else ()
                )
            self._fits[key] = fitted(samples, walked, others)
        return self._fits[key]


_UNKNOWN = (
    "divergence_verdict", "first_divergence", "peak_memory_mb", "started", "cpu_mhz", "other_cores", "score",
    "inner_rounds", "inner_tested", "inner_accepted", "joules_per_token", "idle_watts", "energy_of",
)  # fmt: skip


def refuse_foreign(asked: Mapping[str, Any], generation: Generation) -> None:
    """Raises `UserError` for a parameter that the recorded drafts depend on: with another value they were others."""
    method = METHODS[generation.record.method]
    fixed = {parameter.name for parameter in DRAFTERS[method.drafter].all_parameters} - {"tree_tokens"}
    for name, value in asked.items():
        if name in fixed and value != generation.values[name]:
            had, rules = PARAMETERS[name].show(generation.values[name]), CONTROLLERS.values()
            free = dict.fromkeys(parameter.name for rule in rules for parameter in rule.parameters)
            raise UserError(
                f"{name} {PARAMETERS[name].show(value)} given, and {generation.record.configuration} was recorded with "
                f"{had}, on which its drafts depend; expected parameters of rules, {one_of(free)}"
            )


def _plain(generation: Generation) -> DraftWalk:
    """The walk of plain autoregression, which drafts nothing."""
    record = generation.record
    tokens = tuple(record.output_ids or ())
    assert record.finish_reason is not None
    reason: Any = record.finish_reason
    ahead = (PositionDraft(most=0),) * len(tokens)
    size, prefill_s = 0, record.prefill_s or 0.0
    return DraftWalk(
        record.method, generation.values, len(generation.prompt_ids), tokens, reason, ahead, "never", size, prefill_s
    )


def _block(generation: Generation) -> Key:
    """What generations have in common that are compared."""
    record = generation.record
    settings = (record.settings["processor"], record.settings["seed"], record.settings["length"])
    return str(record.id), record.turn, *settings, record.repeat, record.target_weights


def _answer(generation: Generation) -> Key:
    """What generations have in common that one walk tells of."""
    record = generation.record
    return (
        str(record.id),
        record.turn,
        record.target_weights,
        record.settings["length"],
        generation.prompt_ids,
        generation.drafter,
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
