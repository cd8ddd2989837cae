"""The seconds of every answer under a rule, the best fixed length, what signals would allow, and the oracle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ablation.results.traces.bounds import ReplayedAnswer, along_answers, by_drafter
from ablation.results.traces.gap.bayes import Believed, Numbers, believed
from ablation.results.traces.gap.host import Reading, TimedRule, reading_s
from ablation.results.traces.gap.lengths import best_runs, survival
from ablation.results.traces.gap.signals import COLUMNS, READ_BY, WalkSignals, signals
from ablation.results.traces.replay import ReplayRequest, Replays
from egag.length_rule import LengthRule
from sampling.measure.replay import best_fixed, oracle, replayed
from utils.errors import UserError, one_of

PARTS = ("later_rounds", "irreducible", "other_signals", "unreached", "kept", "paid_back")
"""Of the seconds between the best fixed length and the oracle; they sum to it.

later_rounds: the oracle looks past the round, and ends some early so that a later one goes well. irreducible: between
the best lengths by what is accepted in the round alone, and those by all signals of the draft side. other_signals: what
the signals that the rule does not read would spare. unreached: what those that it reads would spare, and it did not.
kept: what it spared, less its host time. paid_back: its host time, which it took of what it spared.
"""


@dataclass(frozen=True, slots=True)
class TextGap:
    """The seconds of one answer. rule_s: predicted, without host_s. auc: of the classifiers, over all texts."""

    id: str
    drafter: str
    rule: str
    fixed: int
    tokens: int
    fixed_s: float
    rule_s: float
    host_s: float
    signal_s: float
    all_s: float
    round_s: float
    oracle_s: float
    signal_auc: float
    all_auc: float

    @property
    def gap_s(self) -> float:
        """Seconds between the best fixed length and the oracle."""
        return self.fixed_s - self.oracle_s

    @property
    def parts(self) -> tuple[float, ...]:
        """The `PARTS` of these seconds; any but the last may be negative."""
        return (
            self.round_s - self.oracle_s,
            self.all_s - self.round_s,
            self.signal_s - self.all_s,
            self.rule_s - self.signal_s,
            self.fixed_s - self.rule_s - self.host_s,
            self.host_s,
        )


@dataclass(frozen=True, slots=True)
class Gaps:
    """The answers of every drafter under every rule, and what could not be split, a sentence each."""

    texts: tuple[TextGap, ...]
    notes: tuple[str, ...]


def gaps(replays: Replays, asked: Sequence[ReplayRequest], reading: Reading = reading_s) -> Gaps:
    """Split the gap of every drafter of a full trace that drafts chains under the rules that are asked for.

    Rules are held to the drafts of the walks. Raises `UserError` where nothing can be split.
    """
    found, notes = list[TextGap](), list[str]()
    for name, generations in by_drafter(replays).items():
        answers, unknown = along_answers(replays, generations)
        notes += [f"{name}: {len(unknown)} of its answers left out: {unknown[0]}"] if unknown else []
        for stored in dict.fromkeys(answer.generation.record.target_weights for answer in answers):
            several = [one for one in answers if one.generation.record.target_weights == stored]
            called = name if stored == "full" else f"{name}, {stored}"
            try:
                found += _split(called, several, asked, reading)
            except UserError as error:
                notes.append(f"{called}: {error}")
    if not found:
        raise UserError(notes[0] if notes else "no drafter's answers are known all along; expected greedy decoding")
    return Gaps(tuple(found), tuple(notes))


def _split(
    name: str, answers: Sequence[ReplayedAnswer], asked: Sequence[ReplayRequest], reading: Reading
) -> Iterator[TextGap]:
    """The gaps of one drafter. Raises `UserError` for trees, and where texts are too few."""
    walks, prices = [one.walk for one in answers], [one.price for one in answers]
    if any(walk.trees for walk in walks):
        raise UserError("it drafted trees, whose rules choose among nodes; expected draft_tree chain")
    texts = [signals(one.walk, one.generation.prompt_ids) for one in answers]
    fixed, oracles = best_fixed(walks, prices), [oracle(*one) for one in zip(walks, prices, strict=True)]
    known = _Known(answers, texts)
    every, every_s = known.of(COLUMNS)
    rounds_s = known.seconds([text.right.astype(np.float64) for text in texts])
    for request in asked:
        own, own_s = known.of(READ_BY[_rule_name(request)])
        played = _played(answers, request, reading)
        for number, (one, (rule_s, host_s)) in enumerate(zip(answers, played, strict=True)):
            yield TextGap(
                id=str(one.generation.record.id), drafter=name, rule=request.words, fixed=fixed.gamma,
                tokens=len(one.walk.tokens), fixed_s=fixed.runs[number].decode_s, rule_s=rule_s, host_s=host_s,
                signal_s=own_s[number], all_s=every_s[number], round_s=rounds_s[number],
                oracle_s=oracles[number].decode_s, signal_auc=own.auc, all_auc=every.auc,
            )  # fmt: skip


class _Known:
    """Chances and seconds by sets of columns, each computed once."""

    def __init__(self, answers: Sequence[ReplayedAnswer], texts: Sequence[WalkSignals]) -> None:
        self._answers, self._texts = answers, texts
        self._found: dict[tuple[str, ...], tuple[Believed, list[float]]] = {}

    def of(self, names: tuple[str, ...]) -> tuple[Believed, list[float]]:
        """What the columns tell, and the seconds of each answer under the best lengths by it."""
        if names not in self._found:
            said = believed(self._texts, [str(one.generation.record.id) for one in self._answers], names)
            self._found[names] = said, self.seconds(said.chances)
        return self._found[names]

    def seconds(self, chances: Sequence[Numbers]) -> list[float]:
        """Of each answer under the best lengths by the chances of its drafts."""
        chains = [survival(one, text.counts) for one, text in zip(chances, self._texts, strict=True)]
        runs = best_runs([one.walk for one in self._answers], chains, [one.price for one in self._answers])
        return [run.decode_s for run in runs]


def _rule_name(request: ReplayRequest) -> str:
    if request.rule is None or request.rule not in READ_BY:
        raise UserError(f"a gap of {request.words or 'the own rule'}: it reads nothing; expected {one_of(READ_BY)}")
    return request.rule


def _played(
    answers: Sequence[ReplayedAnswer], request: ReplayRequest, reading: Reading
) -> Iterator[tuple[float, float]]:
    """Predicted seconds of each answer under a rule that goes on from text to text, and its host time."""
    earlier: LengthRule | None = None
    for one in answers:
        rule = request.rule_of(one.walk.method, {**one.generation.values, **request.values})
        if earlier is not None:
            rule.adopt(earlier)
        timed, earlier = TimedRule(rule, reading), rule
        yield replayed(one.walk, timed, one.price, bounded=True).decode_s, timed.seconds
