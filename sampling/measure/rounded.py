"""A model with rounded weights against the full one: both read the full one's own greedy answers.

How the two continue by themselves says little: one token that differs, and from there on two different texts are
compared. So both are asked at each position of one text, which is the text that the full model writes.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.engine import Engine
from sampling.forward.runner import Runner, prefill
from sampling.forward.traffic import weight_bytes
from sampling.measure.comparison import Comparison
from sampling.measure.metrics import RunMetrics
from sampling.measure.quality import NOTHING, AnswerSums, Quality, summed_up
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import AR

_ROWS = 64  # of logits at a time: bounds the memory, however long an answer is

Answer = tuple[Sequence[int], Sequence[int]]


def quality(full: Runner, rounded: Runner, answers: Iterable[Answer]) -> Quality:
    """The quality of a rounded model on (prompt, answer) ids of the full model's `greedy_run`, a pair a prompt.

    Raises `ValueError` where no answer has a token, and `UserError` for models whose bytes are not known
    (`weight_bytes`).
    """
    sums = [compare(full, rounded, prompt, answer) for prompt, answer in answers]
    return summed_up(sums, weight_bytes(rounded.model), weight_bytes(full.model))


def greedy_run(engine: Engine, prompt: Sequence[int], length: int) -> RunMetrics:
    """Plain greedy decoding of at most `length` tokens after a prompt (ids): its answer and its times."""
    values = {**Settings(), "processor": PARAMETERS["processor"].parse("greedy"), "length": length}
    comparison = Comparison(engine, values, prompt)
    for _ in comparison.run(AR):
        pass
    return comparison.metrics[AR]


@torch.inference_mode()
def compare(full: Runner, rounded: Runner, prompt: Sequence[int], answer: Sequence[int]) -> AnswerSums:
    """Ask both models for every token of an answer (ids). What the runners held is forgotten."""
    total = NOTHING
    pairs = zip(_rows(full, prompt, answer), _rows(rounded, prompt, answer), strict=True)
    for place, (p, q) in enumerate(pairs):
        said = torch.tensor(answer[place * _ROWS : place * _ROWS + len(p)], device=p.device).unsqueeze(1)
        q = q.to(p.device)
        total += AnswerSums(
            tokens=len(p),
            same=int((p.argmax(-1) == q.argmax(-1)).sum()),
            kl=float((p.exp() * (p - q)).sum()),
            nll=-float(q.gather(1, said).sum()),
            full_nll=-float(p.gather(1, said).sum()),
        )
    return total


def _rows(runner: Runner, prompt: Sequence[int], answer: Sequence[int]) -> Iterator[Tensor]:
    """ln p `[n, V]` in float64 at the positions of an answer, at most `_ROWS` at once; the prompt is only read."""
    start = runner.read(prompt).tokens
    prefill(runner, start[:-1])
    fed = [*start[-1:], *answer[:-1]] if len(answer) else []
    for place in range(0, len(fed), _ROWS):
        yield F.log_softmax(runner.forward(fed[place : place + _ROWS]).logits.double(), dim=-1)
