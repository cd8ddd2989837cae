"""The grammar as the last processor of the text: tokens that it forbids have no logit, whatever came before."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sampling.grammar.matching import Matching
from sampling.grammar.vocabulary import GrammarVocabulary
from sampling.processors.followed import FollowedGrammar
from sampling.processors.paths import Committed, Paths
from sampling.processors.text_processors import TextProcessor
from sampling.processors.with_text import WithText, rows_of
from utils.errors import CannotContinue
from utils.logits_processor import LogitsProcessor

_NEVER = float("-inf")
_UNKNOWN = torch.finfo(torch.float32).min / 2


class Constraint(TextProcessor):
    """Masks what a grammar forbids. A text has a matcher of its own, which `of_text` makes."""

    def __init__(self, vocabulary: GrammarVocabulary, grammar: str) -> None:
        self.vocabulary, self.grammar = vocabulary, grammar

    def of_text(self, committed: Committed) -> "TextConstraint":
        """See `TextProcessor.of_text`. Raises `UserError` for a grammar that does not fit the tokenizer."""
        return TextConstraint(Matching(self.vocabulary, self.grammar, committed.vocab_size))

    def change(self, logits: Tensor, paths: Paths) -> None:
        """See `TextProcessor.change`: what is no text has no place in a grammar."""
        self.of_text(paths.committed).change(logits, paths)


@dataclass
class TextConstraint(FollowedGrammar):
    """The grammar of one text. dead: rows of the last call behind which no token is left."""

    matching: Matching
    dead: frozenset[int] = field(default=frozenset())

    def change(self, logits: Tensor, paths: Paths) -> None:
        """See `TextProcessor.change`. It reads the drafts on the host.

        A row behind a draft that the grammar forbids is never reached and stays. So does one that nothing is left of:
        `check` refuses it where it is reached.
        """
        self.follow(paths.committed.tokens[paths.committed.prompt :])
        found = [self.matching.mask(text) for text in paths.texts]
        everything = np.ones(logits.shape[1], dtype=np.bool_)
        masks = np.stack([everything if mask is None else mask for mask in found])
        changed = logits.masked_fill(torch.from_numpy(~masks).to(logits.device), _NEVER)
        left = (changed != _NEVER).any(1)  # NaN is left: it is refused as such
        # A drafter of a smaller vocabulary may know none of the allowed tokens: then they are alike.
        unknown = (changed.amax(1, keepdim=True) <= _UNKNOWN) & (changed != _NEVER)
        changed = changed.masked_fill(unknown, 0.0)
        logits.copy_(torch.where(left.unsqueeze(1), changed, torch.zeros_like(logits)))
        self.dead = frozenset(row for row, some in enumerate(left.tolist()) if not some)

    @property
    def seconds(self) -> float:
        """See `FollowedGrammar`."""
        return self.matching.seconds

    def follow(self, output: Sequence[int]) -> None:
        """See `FollowedGrammar.follow`."""
        self.matching.bring_up_to(output)

    def may(self, path: Sequence[int], token: int) -> bool:
        """See `FollowedGrammar.may`."""
        return self.matching.may(path, token)

    def forced(self, limit: int) -> list[int]:
        """See `FollowedGrammar.forced`: the canonical tokens of the bytes that must follow."""
        tokens = self.matching.forced(limit)
        return tokens[: self.allowed(tokens)]

    def check(self, path: Sequence[int]) -> None:
        """See `FollowedGrammar.check`."""
        if not self.dead.isdisjoint((0, *(row + 1 for row in path))):
            raise CannotContinue("no token is left")


def constrained(processor: LogitsProcessor, vocabulary: GrammarVocabulary, grammar: str) -> LogitsProcessor:
    """The same processor, whose texts a grammar constrains: behind its other changes, before the temperature."""
    changes = processor.changes if isinstance(processor, WithText) else ()
    return WithText(rows_of(processor), (*changes, Constraint(vocabulary, grammar)))
