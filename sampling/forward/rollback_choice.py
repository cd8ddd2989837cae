"""Which way back is the fastest on a recurrent model: rounds with a rejection are timed, turn by turn."""

from typing import TYPE_CHECKING, cast

from sampling.forward.caches.states.recurrent import RecurrentCache
from sampling.forward.caches.states.rollback import EveryRow, Replay, Reread, Rollback
from sampling.forward.runner import ModelRunner
from sampling.forward.scans.scan import SHORT
from utils.device.timing import PhaseClock

if TYPE_CHECKING:
    from sampling.forward.models.recurrent import RecurrentModel

_TEXT, _ROUND, _PATH = 8, 5, (0, 1)
_TURNS = 5
_SMALL = 256 * 2**20
"""Bytes of the states behind all rows of a chain that are kept at most."""


def fastest_way(model: "RecurrentModel") -> Rollback:
    """The way whose fastest pass of `_TURNS` is the fastest, of those that the model can go.

    A pass is a round that rejects two of four drafts, and the round behind it: a way may work in either.
    """
    contenders = _contenders(model)
    if len(contenders) == 1:
        return contenders[0]
    passes: dict[Rollback, list[float]] = {way: [] for way in contenders}
    for _ in range(_TURNS):
        for way in contenders:
            passes[way].append(_pass(model, way)[1])
    return min(contenders, key=lambda way: min(passes[way]))


def _contenders(model: "RecurrentModel") -> list[Rollback]:
    """`Reread` works always. Where convolutions are all that there is, `Replay` only cuts their inputs."""
    cache, _ = _pass(model, Replay())
    if not cache.noted:
        return [Reread()]
    size = cache.recurrent_bytes
    if not size:
        return [Replay()]
    return [Replay(), Reread(), *([EveryRow()] if size * SHORT <= _SMALL else [])]


def _pass(model: "RecurrentModel", way: Rollback) -> tuple[RecurrentCache, float]:
    """The cache behind both rounds, and their seconds."""
    runner = ModelRunner(model.going(way))
    runner.read([])
    runner.forward(_ids(_TEXT, model.vocab_size))
    clock = PhaseClock(model.device)
    clock.start()
    runner.forward(_ids(_ROUND, model.vocab_size))
    runner.keep(_TEXT, _PATH)
    runner.forward(_ids(_ROUND, model.vocab_size))
    clock.lap("rounds")
    return cast(RecurrentCache, runner.cache), clock.stop()["rounds"]


def _ids(count: int, vocabulary: int) -> list[int]:
    return [place % vocabulary for place in range(count)]
