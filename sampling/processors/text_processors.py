"""Changes of raw logits that depend on the text before a row: penalties, n-grams, bans, forced tokens, a least length.

Each row of a round is changed by its own text: draft i counts the drafts before it, a node of a tree its ancestors.
They come before temperature and cut-offs, in the order of the table, which is transformers'.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from sampling.processors.paths import Committed, Paths, note_grams
from utils.device.sent import sent

_NEVER = float("-inf")


class TextProcessor(ABC):
    """Changes raw logits by the text in front of each row."""

    @property
    def named(self) -> tuple[int, ...]:
        """The token ids that its settings name."""
        return ()

    def of_text(self, committed: Committed) -> "TextProcessor":
        """The processor of one text, where it keeps more of the text than `Committed` does; else the same for all."""
        return self

    @abstractmethod
    def change(self, logits: Tensor, paths: Paths) -> None:
        """Change logits `[m, V]` in place, by the texts in front of the m rows."""


@dataclass(frozen=True, slots=True)
class LogitBias(TextProcessor):
    """Adds a number to the logit of some tokens (`sequence_bias` of transformers, `logit_bias` of OpenAI)."""

    bias: tuple[tuple[int, float], ...]

    @property
    def named(self) -> tuple[int, ...]:
        """See `TextProcessor`."""
        return tuple(token for token, _ in self.bias)

    def change(self, logits: Tensor, paths: Paths) -> None:
        """See `TextProcessor.change`."""
        places = sent(list(self.named), logits.device)
        logits[:, places] += torch.tensor([value for _, value in self.bias], device=logits.device, dtype=logits.dtype)


class Penalty(TextProcessor):
    """Changes the logits of the tokens that stand in the text, by how often they stand there."""

    def change(self, logits: Tensor, paths: Paths) -> None:
        """See `TextProcessor.change`."""
        penalise(logits, paths, [self])

    @abstractmethod
    def penalised(self, values: Tensor, counts: Tensor) -> Tensor:
        """Logits `[m, k]` of tokens that stand `counts` `[2, m, k]` times in the text and in the output, changed."""


def penalise(logits: Tensor, paths: Paths, penalties: Iterable[Penalty]) -> None:
    """Change logits `[m, V]` in place by several penalties, in their order."""
    values = logits.index_select(1, paths.columns)
    for penalty in penalties:
        values = penalty.penalised(values, paths.counts)
    # A token that is there twice has the same value twice.
    logits.scatter_(1, paths.columns.expand(len(logits), -1), values)


@dataclass(frozen=True, slots=True)
class Repetition(Penalty):
    """A token of prompt or output: a positive logit is divided, a negative one multiplied (arXiv 1909.05858)."""

    penalty: float

    def penalised(self, values: Tensor, counts: Tensor) -> Tensor:
        """See `Penalty.penalised`."""
        weaker = torch.where(values < 0, values * self.penalty, values / self.penalty)
        return torch.where(counts[0] > 0, weaker, values)


@dataclass(frozen=True, slots=True)
class Frequency(Penalty):
    """A token of the output: the penalty for each time that it stands there (OpenAI, vLLM)."""

    penalty: float

    def penalised(self, values: Tensor, counts: Tensor) -> Tensor:
        """See `Penalty.penalised`."""
        return values - self.penalty * counts[1]


@dataclass(frozen=True, slots=True)
class Presence(Penalty):
    """A token of the output: the penalty once (OpenAI, vLLM)."""

    penalty: float

    def penalised(self, values: Tensor, counts: Tensor) -> Tensor:
        """See `Penalty.penalised`."""
        return values - self.penalty * (counts[1] > 0)


@dataclass(frozen=True, slots=True)
class NoRepeatNGram(TextProcessor):
    """No run of `size` tokens stands twice in prompt and output."""

    size: int

    def change(self, logits: Tensor, paths: Paths) -> None:
        """See `TextProcessor.change`. It reads the drafts on the host."""
        before, followed = self.size - 1, paths.committed.followed(self.size)
        tail = paths.committed.tokens[len(paths.committed.tokens) - before :]
        for row, drafts in enumerate(paths.texts):
            text, drafted = [*tail, *drafts], dict[tuple[int, ...], list[int]]()
            note_grams(drafted, text, self.size, len(tail))
            last = tuple(text[len(text) - before :])
            if banned := [*followed.get(last, ()), *drafted.get(last, ())]:
                logits[row, sent(banned, logits.device)] = _NEVER


@dataclass(frozen=True, slots=True)
class _OfTokens(TextProcessor):
    """A processor whose setting is a list of tokens."""

    tokens: tuple[int, ...]

    @property
    def named(self) -> tuple[int, ...]:
        """See `TextProcessor`."""
        return self.tokens


class Banned(_OfTokens):
    """Tokens that never come (`suppress_tokens` of transformers)."""

    def change(self, logits: Tensor, paths: Paths) -> None:
        """See `TextProcessor.change`."""
        logits[:, sent(list(self.tokens), logits.device)] = _NEVER


@dataclass(frozen=True, slots=True)
class MinTokens(TextProcessor):
    """No token that stops the text before it has so many (`min_new_tokens` of transformers)."""

    least: int

    def change(self, logits: Tensor, paths: Paths) -> None:
        """See `TextProcessor.change`."""
        missing = self.least - paths.committed.output
        if missing > 0 and paths.committed.stop:
            ends = sent(list(paths.committed.stop), logits.device)
            early = (paths.depths < missing).unsqueeze(1)
            logits[:, ends] = torch.where(early, _NEVER, logits[:, ends])


class Forced(_OfTokens):
    """The output begins with these tokens (`forced_decoder_ids` of earlier transformers)."""

    def change(self, logits: Tensor, paths: Paths) -> None:
        """See `TextProcessor.change`."""
        place = paths.committed.output
        for depth, token in enumerate(self.tokens[place:]):
            here = (paths.depths == depth).unsqueeze(1)
            others = torch.arange(logits.shape[1], device=logits.device) != token
            logits.masked_fill_(here & others, _NEVER)
            logits[:, token] = torch.where(here[:, 0], 0.0, logits[:, token])
