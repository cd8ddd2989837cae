"""Formats of a target's weights side by side: what each costs in quality, and what it brings in speed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from ablation.plan.prompts.file import Prompt
from ablation.report.tables.paired import ratio_interval
from sampling.forward.traffic import weight_bytes
from sampling.loading.options import WEIGHTS
from sampling.measure.metrics import RunMetrics
from sampling.measure.quality import NOTHING, AnswerSums, Quality, summed_up
from sampling.measure.rounded import compare, greedy_run
from sampling.measure.warm_up import warm_up_prompt
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.pair.local_engine import LocalEngine

FULL = WEIGHTS[0]
_WARM_TOKENS = 8


@dataclass(frozen=True, slots=True)
class FormatLine:
    """What was found of a format.

    tokens_per_s: of plain greedy decoding, the median over prompts. speed_ratio: the median over prompts of that over
    the full weights' on the same prompt, with its 95 % interval; unknown is NaN, and so is what has no interval.
    """

    format: str
    dtype: str
    quality: Quality
    tokens_per_s: float
    speed_ratio: float
    speed_ratio_low: float
    speed_ratio_high: float


@dataclass(slots=True)
class _Found:
    """What one prompt told of a format: sums over its turns."""

    sums: AnswerSums = NOTHING
    new_tokens: int = 0
    decode_s: float = 0.0

    def timed(self, run: RunMetrics) -> None:
        """Add a turn's tokens and seconds."""
        self.new_tokens += run.new_tokens
        self.decode_s += run.decode_s

    @property
    def tokens_per_s(self) -> float:
        return self.new_tokens / self.decode_s if self.decode_s else math.nan


@dataclass
class FormatComparison:
    """Engines of one target by the format of its weights, the full ones among them: `play` prompts, read the `lines`.

    On each turn every engine decodes the same prompt, which holds the full weights' earlier answers, and none is always
    first; then the rounded ones are asked for every token that the full ones said.
    """

    engines: Mapping[str, LocalEngine]
    variables: TemplateVariables = UNTOLD
    _found: dict[str, list[_Found]] = field(init=False)

    def __post_init__(self) -> None:
        self._found = {name: [] for name in self.engines}

    def warm_up(self) -> None:
        """First calls pay for what no later one does."""
        for engine in self.engines.values():
            greedy_run(engine, warm_up_prompt(engine, True, self.variables), _WARM_TOKENS)

    @property
    def tokens(self) -> int:
        """Of the full weights' answers so far."""
        return sum(turn.sums.tokens for turn in self._found[FULL])

    def play(self, prompt: Prompt, length: int) -> None:
        """Measure on one prompt; answers have at most `length` tokens. It counts as a whole or, where it fails, not."""
        found_by = {name: _Found() for name in self.engines}
        heard: list[str] = []
        full = self.engines[FULL]
        for number, turn in enumerate(prompt.turns, start=1):
            heard += prompt.before(number)
            ids = full.tokenise([*heard, turn], True, prompt.system, self.variables)
            answer = self._turn(ids, length, found_by)
            heard += [turn, full.text(answer)]
        for name, turns in found_by.items():
            self._found[name].append(turns)

    def lines(self) -> list[FormatLine]:
        """What was found so far, the full weights first. Raises `ValueError` where no answer has a token."""
        return [self._line(name) for name in sorted(self.engines, key=WEIGHTS.index)]

    def _turn(self, ids: list[int], length: int, by_format: Mapping[str, _Found]) -> list[int]:
        """The full weights' answer."""
        shift = len(self._found[FULL]) % len(self.engines)
        order = [*self.engines][shift:] + [*self.engines][:shift]
        runs = {name: greedy_run(self.engines[name], ids, length) for name in order}
        answer = runs[FULL].output_ids
        targets = {name: engine.target for name, engine in self.engines.items()}
        for name, turns in by_format.items():
            turns.timed(runs[name])
            turns.sums += compare(targets[FULL], targets[name], ids, answer)
        return answer

    def _line(self, name: str) -> FormatLine:
        engine, turns, full = self.engines[name], self._found[name], self._found[FULL]
        sizes = [weight_bytes(self.engines[format].target.model) for format in (name, FULL)]
        logs = [
            math.log(turn.tokens_per_s / plain.tokens_per_s)
            for turn, plain in zip(turns, full, strict=True)
            if turn.tokens_per_s > 0 and plain.tokens_per_s > 0
        ]
        return FormatLine(
            format=name,
            dtype=engine.describe().target.dtype,
            quality=summed_up([turn.sums for turn in turns], *sizes),
            tokens_per_s=median(turn.tokens_per_s for turn in turns if turn.tokens_per_s > 0),
            **dict(zip(("speed_ratio", "speed_ratio_low", "speed_ratio_high"), ratio_interval(logs), strict=True)),
        )
