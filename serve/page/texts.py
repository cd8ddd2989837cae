"""The newest texts under way, token by token, as the page shows them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import Any
from weakref import WeakKeyDictionary

from sampling.measure.answer import Answer, Decode, Span
from serve.jobs import TextJob
from serve.page.drafting import drafting_of
from utils.events import Round
from utils.text import shown

MOST_TEXTS = 24
_SIGNS = 600


@dataclass
class FollowedText:
    """A text that somebody looks at. What was decoded once is not decoded again.

    number: what the page knows it by. cut: whether its beginning is not shown. seen: the number of its last round.
    """

    number: int
    answer: Answer
    cut: bool = False
    seen: int = field(default=-1, init=False)

    def follow(self, rounds: Sequence[Round]) -> None:
        """Take in those of the last rounds that are new."""
        new = [round for round in rounds if round.number > self.seen]
        if new and new[0].number > self.seen + 1:  # some have gone by unseen
            self.answer, self.cut = Answer(self.answer.decode), True
        for round in new:
            self.answer.add(round)
            self.seen = round.number
        self._shorten()

    def _shorten(self) -> None:
        """Let go of what no longer fits."""
        room = _SIGNS
        for place in range(len(self.answer.old) - 1, -1, -1):
            room -= len(self.answer.old[place].text)
            if room < 0:
                del self.answer.old[:place]
                self.cut = self.cut or place > 0
                return


class FollowedTexts:
    """The texts that are looked at, for one thread at a time; those that nobody else holds are forgotten."""

    def __init__(self, decode: Decode, drafter_model: str) -> None:
        self._decode, self._drafter_model, self._numbers = decode, drafter_model, count()
        self._followed = WeakKeyDictionary[TextJob, FollowedText]()

    def look(self, jobs: Iterable[TextJob]) -> list[dict[str, Any]]:
        """What the page is told of each."""
        followed = WeakKeyDictionary[TextJob, FollowedText]()
        told = []
        for job in jobs:
            text = self._followed.get(job) or FollowedText(next(self._numbers), Answer(self._decode))
            text.follow(tuple(job.recent))
            followed[job] = text
            told.append(_told(job, text, self._drafter_model))
        self._followed = followed
        return told


def _told(job: TextJob, text: FollowedText, drafter_model: str) -> dict[str, Any]:
    metrics, recent, drafting = job.metrics, tuple(job.recent), drafting_of(job.order.configuration, drafter_model)
    seconds = sum(round.draft_s + round.verify_s + round.other_s + round.waited_s for round in recent)
    return {
        "number": text.number,
        "method": drafting.method,
        "drafter": drafting.drafter,
        "rule": drafting.rule,
        "judge": drafting.judge,
        "given": drafting.given,
        "lossless": job.lossless,
        "source": recent[-1].source if recent else "",
        "prompt_tokens": metrics.prompt_tokens,
        "new_tokens": metrics.new_tokens,
        "length": job.order.length,
        "rounds": metrics.rounds,
        "drafted": metrics.drafted,
        "accepted": metrics.accepted,
        "now": {
            "rounds": len(recent),
            "drafted": sum(len(round.drafts) for round in recent),
            "accepted": sum(round.accepted for round in recent),
            "tokens_per_s": sum(len(round.emitted) for round in recent) / seconds if seconds else None,
        },
        "cut": text.cut,
        "old": spans(text.answer.old),
        "last": spans(text.answer.last),
    }


def spans(parts: Sequence[Span]) -> list[tuple[str, str]]:
    """(kind, text) of each stretch by one writer."""
    stretches = groupby(parts, lambda span: span.kind)
    return [(kind, shown("".join(span.text for span in stretch), lines=True)) for kind, stretch in stretches]
