"""What the page is told of a server, several times a second, however many look."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from ablation.plan.grid import Configuration, titled
from sampling.methods.tables import METHODS
from serve.counters import Counters
from serve.driver import Driver
from serve.jobs import TextJob
from serve.page.texts import MOST_TEXTS, FollowedTexts
from serve.served import Served
from utils.device.memory import device_memory_mb, process_memory_mb
from utils.provenance import project_version

LOOKS_S = 0.25


class Looks:
    """The looks at a server. One that is younger than a quarter of a second is told to all who ask."""

    def __init__(self, driver: Driver, model: Served, clock: Callable[[], float] = time.monotonic) -> None:
        info = model.engine.describe()
        self._driver, self._model, self._started, self._clock = driver, model, time.time(), clock
        self._drafter = info.drafter.name if info.drafter else ""
        self._texts, self._lock = FollowedTexts(driver.tokens.decode, self._drafter), Lock()
        self._last: tuple[float, dict[str, Any]] | None = None

    def about(self) -> dict[str, Any]:
        """What does not change while the server runs; started: seconds since 1970."""
        model = self._model
        return {
            "model": model.name,
            "drafter": self._drafter or None,
            "version": project_version(),
            "started": self._started,
            "methods": [{"name": name, "label": METHODS[name].label} for name in model.methods],
            "default": model.default.method,
            "size": self._driver.size,
            "most_waiting": self._driver.most_waiting,
        }

    def look(self) -> dict[str, Any]:
        """What the server does; what it does not know is None."""
        with self._lock:
            if self._last is None or self._clock() - self._last[0] >= LOOKS_S:
                self._last = self._clock(), self._made()
            return self._last[1]

    def _made(self) -> dict[str, Any]:
        driver, counters = self._driver, self._driver.counters
        jobs = driver.under_way()
        seconds, now = counters.recent.now()
        return {
            "running": len(jobs),
            "waiting": driver.waiting,
            "waited_s": driver.longest_wait_s,
            "now": {
                "seconds": seconds,
                "tokens_per_s": now.tokens / seconds if seconds else None,
                "drafted": now.drafted,
                "accepted": now.accepted,
            },
            "whole": {
                "tokens": counters.generation_tokens,
                "rounds": counters.rounds,
                "drafted": counters.drafted,
                "accepted": counters.accepted,
                "finished": dict(counters.finished),
            },
            "history": counters.recent.history(),
            "prefix": prefix_hits(counters),
            "memory": {
                "process_mb": process_memory_mb(),
                "device_mb": device_memory_mb(self._model.engine.target.device),
                "rows": driver.rows,
                "preemptions": counters.preemptions,
            },
            "groups": groups(jobs),
            "texts": self._texts.look(jobs[: -MOST_TEXTS - 1 : -1]),
        }


def prefix_hits(counters: Counters) -> dict[str, int] | None:
    """Tokens of prompts, and those whose rows were there already; None where none were looked up."""
    return {"tokens": counters.prefix_queries, "hits": counters.prefix_hits} if counters.prefix_queries else None


def groups(jobs: Iterable[TextJob]) -> list[dict[str, Any]]:
    """The texts under way by how they are drafted, most texts first."""
    sums = defaultdict[Configuration, Counter[str]](Counter)
    for job in jobs:
        metrics = job.metrics
        sums[job.order.configuration].update(texts=1, drafted=metrics.drafted, accepted=metrics.accepted)
    named = [{"name": titled(configuration.name), **counted} for configuration, counted in sums.items()]
    return sorted(named, key=lambda group: -int(group["texts"]))
