"""Our methods against another program that decodes the same model, prompt by prompt, the sides taking turns."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import median

from ablation.run.bar import told
from scripts.benchmarks.play import Prompts
from scripts.peers.process import Answer, PeerError
from utils.intervals import bootstrap_median
from utils.machine import Machine

# Threads of the side that has just answered are asleep by then, however long they spin.
SETTLE_S = 0.05


@dataclass(eq=False, frozen=True, slots=True)
class Side:
    """Who answers. weights: the format that it computes in. tasks: of which prompts; () = all."""

    name: str
    weights: str
    ask: Callable[[list[int]], Answer]
    tasks: tuple[str, ...] = ()

    def plays(self, task: str | None) -> bool:
        """Whether it answers prompts of this task."""
        return not self.tasks or task in self.tasks


@dataclass(frozen=True, slots=True)
class MatchOutcome:
    """A match's numbers: our tokens/s over theirs with its 95 % interval, medians of both, prompts, runs.

    their_other: share of their decoding outside of forwards, median. equal: runs with equal texts.
    agreed: tokens until the first difference in the other runs, median; None where there are none.
    """

    ours: str
    weights: str
    against: str
    ratio: float
    low: float
    high: float
    ours_tps: float
    theirs_tps: float
    their_other: float
    prompts: int
    runs: int
    equal: int
    agreed: float | None


@dataclass(eq=False)
class Match:
    """One of ours against one of theirs; `played`: number of the prompt, our answer, theirs."""

    ours: Side
    theirs: Side
    played: list[tuple[int, Answer, Answer]] = field(default_factory=list)

    def add(self, prompt: int, answers: dict[Side, Answer]) -> None:
        """Count a round, if both took part in it."""
        if self.ours in answers and self.theirs in answers:
            self.played.append((prompt, answers[self.ours], answers[self.theirs]))

    def outcome(self) -> MatchOutcome:
        """What all that was played comes to. Raises `ValueError` where nothing was."""
        ratio, low, high = bootstrap_median(
            [ours.tokens_per_s / theirs.tokens_per_s for _, ours, theirs in self.played]
        )
        agreed = [agreement(ours.ids, theirs.ids) for _, ours, theirs in self.played if ours.ids != theirs.ids]
        return MatchOutcome(
            *(self.ours.name, self.ours.weights, self.theirs.name, ratio, low, high),
            ours_tps=median(ours.tokens_per_s for _, ours, _ in self.played),
            theirs_tps=median(theirs.tokens_per_s for _, _, theirs in self.played),
            their_other=median(1 - theirs.forward_s / theirs.decode_s for _, _, theirs in self.played),
            prompts=len({prompt for prompt, _, _ in self.played}),
            runs=len(self.played),
            equal=len(self.played) - len(agreed),
            agreed=median(agreed) if agreed else None,
        )


def agreement(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Tokens until the first difference. Example: 5 6 7 and 5 6 8 9 -> 2."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))


class Contest:
    """All matches. `peer_cpu_s`: processor time that the other program has used so far.

    waiting: cores that the side which was not asked kept busy meanwhile, a value an answer; others: cores that
    programs which take no part kept busy, None where an answer was over too soon to tell.
    """

    def __init__(self, matches: Sequence[Match], peer_cpu_s: Callable[[], float]) -> None:
        self.matches, self._peer_cpu_s = matches, peer_cpu_s
        self._theirs = {match.theirs for match in matches}
        self._sides = tuple(dict.fromkeys(side for match in matches for side in (match.theirs, match.ours)))
        self.waiting: list[float] = []
        self.others: list[float | None] = []

    def play(self, prompts: Prompts, repeats: int, warm: list[int]) -> str | None:
        """Every prompt so many times, after one that is not measured; who begins changes from round to round.

        A round counts when all its answers are there. Where the other program fails, what it said; the rounds
        before count.
        """
        rounds = [(number, task, ids) for _ in range(repeats) for number, (task, ids) in enumerate(prompts)]
        try:
            for side in self._sides:
                side.ask(warm)
            with told("llama.cpp") as tell:
                for turn, (number, task, ids) in enumerate(rounds):
                    tell(turn, len(rounds), task or "")
                    answers = {side: self._watched(side, ids) for side in self._order(turn) if side.plays(task)}
                    for match in self.matches:
                        match.add(number, answers)
        except PeerError as error:
            return str(error)
        return None

    def outcomes(self) -> tuple[MatchOutcome, ...]:
        """Of the matches that were played."""
        return tuple(match.outcome() for match in self.matches if match.played)

    def _order(self, turn: int) -> tuple[Side, ...]:
        first = turn % len(self._sides)
        order = self._sides[first:] + self._sides[:first]
        return order[::-1] if turn // len(self._sides) % 2 else order

    def _watched(self, side: Side, ids: list[int]) -> Answer:
        time.sleep(SETTLE_S)
        start, own, peer = time.perf_counter(), time.process_time(), self._peer_cpu_s()
        with Machine() as machine:
            answer = side.ask(ids)
        wall, peers = time.perf_counter() - start, self._peer_cpu_s() - peer
        waited = time.process_time() - own if side in self._theirs else peers
        self.waiting.append(waited / wall)
        if machine.other_cores is not None:
            self.others.append(max(0.0, machine.other_cores - peers / wall))
        return answer
