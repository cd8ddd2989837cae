"""A server whose rounds are played when a test says so: what is under way stays under way while it is looked at."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from sampling.batch import Batch
from sampling.measure.answer import Answer
from serve.limits import ServerLimits
from serve.page.texts import FollowedText, spans
from tests.serve.running import Running, running
from tests.tiny import tiny_pair
from tests.waiting import until

_ALL = 10**6


class Steps:
    """The rounds of a server."""

    def __init__(self, found: Running) -> None:
        self.found, self.url, self.driver = found, found.url, found.server.driver
        self.allowed = threading.Semaphore(0)

    def play(self, rounds: int = _ALL) -> None:
        """Let so many rounds of a group be played."""
        self.allowed.release(rounds)

    def begun(self, texts: int) -> None:
        """Wait until so many texts have a place."""
        until(lambda: self.driver.running == texts)

    def until_last(self, wanted: Any) -> None:
        """Play rounds of the only text until its last one, as (kind, text), is as wanted."""
        (job,) = self.driver.under_way()
        text = FollowedText(0, Answer(self.driver.tokens.decode))
        while not wanted(text):
            before = self.driver.counters.rounds
            self.play(1)
            until(lambda: self.driver.counters.rounds > before or not self.driver.running)  # noqa: B023
            assert self.driver.running, "the text has ended"
            text.follow(tuple(job.recent))


@contextmanager
def stepped(limits: ServerLimits | None = None) -> Iterator[Steps]:
    """Serve a tiny pair, whose prompts are read between rounds. At the end all rounds are played."""
    play = Batch.play
    with running(tiny_pair(), replace(limits or ServerLimits(), prefill_chunk=0)) as found:
        steps = Steps(found)

        def allowed(self: Batch) -> Any:
            steps.allowed.acquire()
            return play(self)

        with patch.object(Batch, "play", allowed):
            try:
                yield steps
            finally:
                steps.play()


def kinds(text: FollowedText) -> set[str]:
    """By whom there is something to be seen in the last round."""
    return {kind for kind, told in spans(text.answer.last) if told.strip()}
