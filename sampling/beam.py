"""Beam search: the most probable text that a few candidates per round can find. Its output differs from decoding.

The beams are branches of one sequence in the target's cache. A round feeds one token per beam in one forward. Each beam
attends to the shared rows of the prompt and to the rows of its own text. Beam search therefore runs on every model that
runs trees of drafts, and no row is computed twice.
"""

import math
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from sampling.arguments import check_room
from sampling.branches import Branches
from sampling.forward.runner import Runner
from sampling.handover import Handover, prefilled, read_in
from utils.device.timing import CAPTURE, PhaseClock
from utils.errors import NoDistribution, UserError
from utils.events import BeamRound, Event, Finished, FinishReason, Hypothesis


@dataclass(frozen=True, slots=True)
class Candidate:
    """A beam, given by its index among the live beams, with one more token. `log_prob` is that of the whole text."""

    parent: int
    token: int
    log_prob: float


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Beam search with a length penalty (arXiv 1609.08144).

    The score of a text is

        ln p / ((min_length + len) / (min_length + 1)) ** alpha,   alpha >= 0.

    len is the number of new tokens, including a stop token. min_length 0 gives ln p / len ** alpha, which is
    `length_penalty` of transformers. alpha 0 gives ln p. p is the target's own distribution: beam search draws nothing
    and uses no processor.
    """

    num_beams: int = 4
    top_k: int = 3
    min_length: float = 5
    alpha: float = 1.2

    @classmethod
    def build(cls, pair: object, values: Mapping[str, Any]) -> Self:
        """The beam search with these settings; it needs no loaded pair."""
        return cls(values["num_beams"], values["beam_top_k"], values["beam_min_length"], values["beam_alpha"])

    def score(self, log_prob: float, length: int) -> float:
        """The score by which a text of `length` new tokens is ranked."""
        penalty: float = ((self.min_length + length) / (self.min_length + 1)) ** self.alpha
        return log_prob / penalty

    def choose(self, candidates: Sequence[Candidate], stop: Collection[int]) -> tuple[list[Candidate], list[Candidate]]:
        """The candidates that continue and those that end in a round, most probable first, at most `num_beams` each.

        A candidate ends only if it is among the `num_beams` most probable of all candidates. Other candidates fill the
        places of ended ones.
        """
        ranked = sorted(candidates, key=lambda candidate: -candidate.log_prob)
        ended = [candidate for candidate in ranked[: self.num_beams] if candidate.token in stop]
        going = [candidate for candidate in ranked if candidate.token not in stop]
        return going[: self.num_beams], ended

    def decided(self, hypotheses: Sequence[Hypothesis], beams: Sequence[Hypothesis], limit: int) -> bool:
        """Whether no live beam can score above the best finished text; `limit` is the largest number of new tokens.

        Each further token lowers ln p or leaves it unchanged. For alpha >= 0 the penalty only grows with the length. ln
        p <= 0, so the score of a beam never exceeds its present ln p over the penalty at `limit`. All beams have the
        same length, so the most probable beam has the highest bound.
        """
        return bool(hypotheses) and hypotheses[0].score >= self.score(beams[0].log_prob, limit)

    @torch.inference_mode()
    def decode(
        self,
        target: Runner,
        prompt: Sequence[int],
        *,
        max_new_tokens: int,
        stop: Collection[int] = (),
        handover: Handover | None = None,
    ) -> Iterator[Event]:
        """Search after `prompt` (token ids): one `Prefilled`, one `BeamRound` per round, one `Finished`.

        The answer is the finished text with the best score. If the search ends for lack of room, unfinished texts
        compete as well. `Finished` holds the `num_beams` best texts. The clock stops while the consumer holds an event.
        handover and the cases of `UserError`: see `sampling.loop.decode`.
        """
        check_room(target, prompt, max_new_tokens)
        if target.read(prompt).encoder_ids:
            raise UserError("beam search runs on decoder-only models, and the target is an encoder-decoder model")
        limit = min(max_new_tokens, target.window - len(prompt))
        clock = PhaseClock(target.device)
        clock.start()
        read_in(target, prompt, (), handover)
        clock.lap("prefill")
        yield prefilled(len(prompt), clock.stop(), handover)
        texts = yield from self._rounds(target, prompt[-1], limit, stop, clock)
        yield Finished(self._reason(texts[0], stop, max_new_tokens), len(texts[0].tokens), tuple(texts))

    def _rounds(
        self, target: Runner, last: int, limit: int, stop: Collection[int], clock: PhaseClock
    ) -> Generator[Event, None, list[Hypothesis]]:
        """All rounds behind the last token of a prompt that was read; the finished texts, the best first."""
        branches = Branches(target)
        going = [Candidate(0, last, 0.0)]
        beams: list[Hypothesis] = [Hypothesis((), 0.0, 0.0)]
        hypotheses: list[Hypothesis] = []
        settled = number = 0
        while beams:
            clock.start()
            logits = branches.grow([c.parent for c in going], [c.token for c in going])
            clock.lap("verify")

            going, ended = self.choose(extensions(beams, logits, self.top_k), stop)
            hypotheses = self._best([*hypotheses, *self._hypotheses(beams, ended)])
            hypotheses, beams = self._left(hypotheses, self._hypotheses(beams, going), limit)
            common = common_start([text.tokens for text in (*hypotheses[:1], *beams)])
            clock.lap("other")
            seconds = clock.stop()
            took = seconds["verify"], seconds["other"], seconds[CAPTURE]
            yield BeamRound(number, common[settled:], tuple(beams), tuple(hypotheses), *took)
            settled = len(common)
            number += 1
        return hypotheses

    def _left(
        self, hypotheses: list[Hypothesis], beams: list[Hypothesis], limit: int
    ) -> tuple[list[Hypothesis], list[Hypothesis]]:
        """The finished texts and the beams that continue. No beam continues without room, or if none can win."""
        if beams and len(beams[0].tokens) == limit:
            return self._best([*hypotheses, *beams]), []
        return hypotheses, [] if beams and self.decided(hypotheses, beams, limit) else beams

    def _hypotheses(self, beams: Sequence[Hypothesis], chosen: Sequence[Candidate]) -> list[Hypothesis]:
        """The texts of candidates that continue these beams."""
        return [
            Hypothesis(tokens := (*beams[c.parent].tokens, c.token), c.log_prob, self.score(c.log_prob, len(tokens)))
            for c in chosen
        ]

    def _best(self, texts: Sequence[Hypothesis]) -> list[Hypothesis]:
        return sorted(texts, key=lambda text: -text.score)[: self.num_beams]

    def _reason(self, text: Hypothesis, stop: Collection[int], max_new_tokens: int) -> FinishReason:
        if text.tokens[-1] in stop:
            return "stop"
        return "length" if len(text.tokens) == max_new_tokens else "context"


def extensions(beams: Sequence[Hypothesis], logits: Tensor, top_k: int) -> list[Candidate]:
    """Each beam with its `top_k` most probable next tokens; logits `[len(beams), V]`.

    Raises `UserError` if logits are NaN or infinite.
    """
    top = torch.log_softmax(logits.float(), dim=-1).topk(min(top_k, logits.shape[-1]))
    rows = list(zip(top.indices.tolist(), top.values.tolist(), strict=True))
    if any(math.isnan(values[0]) for _, values in rows):
        raise NoDistribution("model")
    return [
        Candidate(parent, token, beams[parent].log_prob + log_prob)
        for parent, row in enumerate(rows)
        for token, log_prob in zip(*row, strict=True)
    ]


def common_start(texts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The longest common prefix of all texts. Example: (1, 2, 3), (1, 2, 4, 5) -> (1, 2)."""
    first, last = min(texts), max(texts)
    for place, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return first[:place]
    return first
