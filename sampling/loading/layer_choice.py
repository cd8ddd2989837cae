"""Which layers of a target make its drafter: greedy backward removal, judged by agreement.

Draft and target share every weight, so the only question is which blocks to skip (2309.08168). Agreement is
teacher-forced: the share of positions of the target's own greedy answers at which the subset has the same argmax.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from sampling.lean import LeanModel
from sampling.runner import ModelRunner
from utils.timing import PhaseClock


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt with the target's greedy answer: ids, of which the last `length` are the answer."""

    ids: tuple[int, ...]
    length: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A subset of layers and its agreement with all layers, in [0, 1]."""

    keep: tuple[int, ...]
    agreement: float


class LayerChoice:
    """Scores subsets of a model's layers on given answers."""

    def __init__(self, model: LeanModel, answers: Sequence[Answer]) -> None:
        self.model, self.answers = model, answers

    def score(self, keep: Sequence[int]) -> Candidate:
        """The agreement of one subset: one forward a sequence, every answer position at once."""
        runner = ModelRunner(self.model.subset(keep))
        same = total = 0
        for answer in self.answers:
            runner.crop(0)
            logits = runner.forward(answer.ids[:-1], rows=answer.length).logits
            wanted = torch.tensor(answer.ids[-answer.length :], device=logits.device)
            same += int((logits.argmax(dim=-1) == wanted).sum())
            total += answer.length
        return Candidate(tuple(keep), same / total)

    def removals(self, fewest: int) -> Iterator[Candidate]:
        """From all layers down to `fewest`: each time without the layer whose removal hurts least."""
        keep = tuple(range(self.model.num_layers))
        while len(keep) > fewest:
            best = max((self.score(keep[:i] + keep[i + 1 :]) for i in range(len(keep))), key=lambda c: c.agreement)
            keep = best.keep
            yield best

    @cached_property
    def costs(self) -> tuple[float, float]:
        """v and h: the target's forward over 5 tokens, and its head alone, in forwards over one token."""
        five, one, head = (_forward_s(self.model.subset(keep), rows) for keep, rows in self._timed())
        return five / one, head / one

    def _timed(self) -> tuple[tuple[range, int], ...]:
        whole = range(self.model.num_layers)
        return (whole, 5), (whole, 1), (range(0), 1)

    def speedup(self, candidate: Candidate, gamma: int) -> float:
        """Expected speed over plain autoregression, (1 - a^(g+1)) / ((1 - a) (v + g c)) (2211.17192).

        c, a draft forward in target forwards, is the head plus the kept share of the layers.
        """
        verify, head = self.costs
        c = head + (1.0 - head) * len(candidate.keep) / self.model.num_layers
        a = min(candidate.agreement, 1 - 1e-6)
        return (1 - a ** (gamma + 1)) / ((1 - a) * (verify + gamma * c))


def greedy_answer(model: LeanModel, prompt: Sequence[int], most: int, stop: frozenset[int]) -> Answer:
    """The model's greedy answer of at most `most` tokens, its stop token included."""
    runner, ids = ModelRunner(model), list(prompt)
    while len(ids) < len(prompt) + most and (len(ids) == len(prompt) or ids[-1] not in stop):
        ids.append(int(runner.catch_up(ids).logits.argmax()))
    return Answer(tuple(ids), len(ids) - len(prompt))


def _forward_s(model: LeanModel, rows: int, repeats: int = 9) -> float:
    """Median seconds of a forward over `rows` tokens behind 64 cached ones."""
    runner, clock, seconds = ModelRunner(model), PhaseClock(model.device), []
    runner.prefill(range(64))
    for _ in range(repeats):
        clock.start()
        runner.forward(range(rows))
        clock.lap("forward")
        seconds.append(clock.stop()["forward"])
        runner.crop(64)
    return sorted(seconds)[repeats // 2]
