"""What a run's events add up to: tokens, rounds, drafts and seconds."""

import math
from collections import Counter
from dataclasses import dataclass, field

from utils.events import FORCED, BeamRound, Event, Finished, FinishReason, Hypothesis, Prefilled, Round, WholeAnswer


@dataclass(slots=True)
class RunCounts:
    """The running account of one generation; feed it every event. Its fields: see `RunMetrics`."""

    prompt_tokens: int = 0
    output_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    prefill_s: float = 0.0
    first_round_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    rounds: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    gamma_sum: int = 0
    min_gamma: int | None = None
    max_gamma: int | None = None
    entropies: list[float] = field(default_factory=list)
    normalised_entropies: list[float] = field(default_factory=list)
    accepted_counts: Counter[int] = field(default_factory=Counter)
    tokens_by_round: list[int] = field(default_factory=list)
    drafted_by_round: list[int] = field(default_factory=list)
    tested_counts: Counter[int] = field(default_factory=Counter)
    inner: list[Round] = field(default_factory=list)
    sources: Counter[str] = field(default_factory=Counter)
    searches: bool = False
    trees: bool = False
    hypotheses: tuple[Hypothesis, ...] = ()
    preempted: int | None = None
    waited_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    rollback_s: float = 0.0
    reread: int = 0
    forced_drafts: int = 0
    grammar_s: float = 0.0
    capture_s: float = 0.0
    experts_s: float = 0.0
    experts_awake: int = 0
    experts_there: int = 0
    expert_layers: int = 0
    queued_s: float = 0.0
    live_sum: int = 0
    prefilled: Prefilled | None = None
    answered: WholeAnswer | None = None

    def add(self, event: Event) -> None:
        """Account for one event."""
        if isinstance(event, Prefilled):
            self.prompt_tokens, self.prefill_s, self.queued_s = event.prompt_tokens, event.prefill_s, event.queued_s
            self.prefilled, self.capture_s, self.waited_s = event, event.capture_s, event.waited_s
        elif isinstance(event, Round):
            self._add_round(event)
        elif isinstance(event, BeamRound):
            self._add_beam_round(event)
        elif isinstance(event, Finished):
            self.finish_reason, self.hypotheses = event.reason, event.hypotheses
            self.preempted = event.preempted
        elif isinstance(event, WholeAnswer):
            self._add_answer(event)

    def _add_round(self, round: Round) -> None:
        took_s = round.draft_s + round.verify_s + round.other_s + round.waited_s
        if self.rounds:
            self.gaps_s.append(took_s)
        else:
            self.first_round_s = took_s
        self.rounds += 1
        self.output_ids.extend(round.emitted)
        self.drafted += len(round.drafts)
        self.tested += round.tested
        self.accepted += round.accepted
        self.draft_s += round.draft_s
        self.verify_s += round.verify_s
        self.other_s += round.other_s
        self.rollback_s += round.rollback_s
        self.reread += round.reread
        self.grammar_s += round.grammar_s
        self.capture_s += round.capture_s
        self.forced_drafts += len(round.drafts) if round.source == FORCED else 0
        for awake, there, seconds in round.experts:
            self.experts_awake += awake
            self.experts_there += there
            self.experts_s += seconds
        self.expert_layers += len(round.experts)
        self.waited_s += round.waited_s
        self.live_sum += round.live
        self.gamma_sum += round.gamma
        self.min_gamma = round.gamma if self.min_gamma is None else min(self.min_gamma, round.gamma)
        self.max_gamma = round.gamma if self.max_gamma is None else max(self.max_gamma, round.gamma)
        self.trees |= round.parents is not None
        self.accepted_counts[round.accepted] += 1
        self.tested_counts.update(range(1, round.tested + 1))
        self.tokens_by_round.append(len(round.emitted))
        self.drafted_by_round.append(len(round.drafts))
        self.inner.extend(round.inner)
        if round.source:
            self.sources[round.source] += 1
        if round.entropy is not None:
            self.entropies.append(round.entropy)
            self.normalised_entropies.append(round.entropy / math.log(round.vocab_size))

    def _add_answer(self, answer: WholeAnswer) -> None:
        acceptance = answer.acceptance
        self.answered, self.finish_reason = answer, answer.reason
        self.prompt_tokens, self.output_ids = answer.prompt_tokens, list(answer.output_ids)
        self.queued_s = answer.queued_s
        self.rounds, self.drafted = acceptance.rounds or 0, acceptance.drafted or 0
        self.accepted, self.tested = acceptance.accepted or 0, acceptance.tested or 0
        self.accepted_counts.update(dict(enumerate(acceptance.hist or ())))
        for accepted, drafted in acceptance.by_round or ():
            self.tokens_by_round.append(min(accepted + 1, self.new_tokens - sum(self.tokens_by_round)))
            self.drafted_by_round.append(drafted)
            self.tested_counts.update(range(1, accepted + (accepted < drafted) + 1))

    def _add_beam_round(self, round: BeamRound) -> None:
        self.searches = True
        if not self.output_ids:
            self.first_round_s += round.verify_s + round.other_s
        self.rounds += 1
        self.output_ids.extend(round.emitted)
        self.verify_s += round.verify_s
        self.other_s += round.other_s
        self.capture_s += round.capture_s

    @property
    def new_tokens(self) -> int:
        return len(self.output_ids)
