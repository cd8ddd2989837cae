"""Do sampled tokens follow the target's distribution? Chi-square tests over thousands of short decode runs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice, takewhile
from typing import Any

from torch import Tensor

from sampling.batch import Batch, decode_many
from sampling.forward.runner import catch_up
from sampling.methods.choices import make_processor
from sampling.methods.method import Method
from sampling.methods.tables import DRAFTERS
from sampling.pair.pair import Pair
from sampling.proof.memo import MemoProcessor, memorised
from sampling.scheduling.live_text import Request
from sampling.verify.verifier import Verifier
from utils.events import Round
from utils.numbers.statistics import distribution_p_value
from utils.parameter import ChosenPart

DEPTHS = 3
PROCESSOR = ChosenPart("topk", (1.0, 8))
PROMPTS = (
    "I like tea. You like milk. I like tea. You like",
    "The cat sat on the mat. The dog sat on the rug. The cat sat on the",
)
_TEMPERATURES = (1.0, 2.0, 4.0, 8.0)
_CERTAIN = 0.9
_LEAST_SAMPLES = 100
_LOOKS = 4
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class _Case:
    """A prompt (ids), its most likely continuation, and the target's distribution at each of its tokens `[V]`."""

    prompt: list[int]
    likely: list[int]
    distributions: list[Tensor]


class DistributionTest:
    """Many runs of the real loop of batches, drafter, rule and verifier, on rows of logits that are computed once.

    A run emits up to `DEPTHS` tokens and is over when it leaves the target's most likely continuation. So
    the first token is tested against the target's distribution after the prompt, the second against the one
    given the likely first, and so on: with two drafts a round these places hold accepted, recovered and bonus
    tokens. Rounding plays no part (see `MemoRunner`).

    temperature: the lowest of `_TEMPERATURES` at which no first token is nearly certain. A model that knows what
    comes next would leave nothing to draw, and a wrong verifier nothing to be caught by.
    """

    def __init__(self, pair: Pair, values: Mapping[str, Any]) -> None:
        self.pair, self._target = memorised(pair)
        self.values = dict(values)
        prompts = [pair.encode([text], chat=False) for text in PROMPTS]
        for self.temperature in _TEMPERATURES:
            self._processor = MemoProcessor(make_processor(replace(PROCESSOR, arguments=(self.temperature, 8))))
            self._cases = [self._case(prompt) for prompt in prompts]
            if all(case.distributions[0].max() < _CERTAIN for case in self._cases):
                break

    def p_values(self, method: Method, verifier: Verifier, draws: int, seed: int, until: float = 0.0) -> list[float]:
        """One p-value for each prompt and depth that enough runs reached: `len(PROMPTS) * DEPTHS` at most.

        draws: runs a prompt.
        until: stop after the quarter of a prompt's draws in which one falls below this; 0.0 = never. To look
        again and again makes a small p-value likelier, so this is for a verifier that is known to be wrong:
        there the question is whether the test notices, and draws after it has noticed answer nothing more.
        """
        values = {**self.values, **method.preset}
        drafter, rule = DRAFTERS[method.drafter].build(self.pair, values), partial(method.rule.build, self.pair, values)
        batch = Batch(self._target, drafter, rule, verifier, _AT_ONCE)
        seeds = count(seed << 32)
        collected: list[float] = []
        for case in self._cases:
            counts: list[Counter[int]] = [Counter() for _ in range(DEPTHS)]
            p_values: list[float] = []
            for look in range(_LOOKS):
                quarter = draws * (look + 1) // _LOOKS - draws * look // _LOOKS
                for run in self._runs(case, batch, islice(seeds, quarter)):
                    for depth, token in enumerate(run):
                        counts[depth][token] += 1
                pairs = zip(counts, case.distributions, strict=True)
                p_values = [
                    distribution_p_value(counted, p) for counted, p in pairs if counted.total() >= _LEAST_SAMPLES
                ]
                if smallest(p_values) < until:
                    return [*collected, *p_values]
            collected += p_values
        return collected

    def _case(self, prompt: list[int]) -> _Case:
        target, likely, distributions = self.pair.target, list[int](), list[Tensor]()
        start = target.read(prompt).tokens
        for _ in range(DEPTHS):
            target.crop(0)
            distributions.append(self._processor(catch_up(target, [*start, *likely]).logits)[0])
            likely.append(int(distributions[-1].argmax()))
        return _Case(prompt, likely, distributions)

    def _runs(self, case: _Case, batch: Batch, seeds: Iterable[int]) -> Iterator[list[int]]:
        """The tokens of each run, up to and including the first that is not the likely one."""
        requests = (Request(case.prompt, self._processor, DEPTHS, seed) for seed in seeds)
        for live, event in decode_many(batch, requests):
            if live.error is not None:
                raise live.error
            if not isinstance(event, Round):
                continue
            emitted = live.seq.tokens[live.seq.prompt_length :]
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(emitted, case.likely, strict=False)))
            if live.seq.reason is None:
                if same == len(emitted):
                    continue
                batch.drop(live)
            yield emitted[: same + 1]


def tests_per_method() -> int:
    """How many p-values a method can have: what a Bonferroni correction divides by."""
    return len(PROMPTS) * DEPTHS


def smallest(p_values: Sequence[float]) -> float:
    """The most suspicious of them; 1.0 when there was nothing to test."""
    return min(p_values, default=1.0)
