"""A tokenizer as llguidance reads it: the bytes of every token, and the tokens that end a text."""

from collections.abc import Collection
from functools import lru_cache
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from sampling.grammar.spelling import compiled
from sampling.tokenizer.converted import ConvertedTokenizer
from utils.errors import UserError
from utils.text import first_line


class GrammarVocabulary:
    """The tokens that grammars are matched against, and those that end a text.

    The bytes of tokens come from a fast tokenizer of Hugging Face, or from llguidance's own wrapper of any other.
    """

    def __init__(self, tokenizer: LLTokenizer, ends: Collection[int]) -> None:
        self.tokenizer, self.ends = tokenizer, frozenset(ends)
        self._matchers: dict[str, LLMatcher] = {}

    def matcher(self, grammar: str) -> LLMatcher:
        """A matcher of this grammar before its first token; the grammar is compiled once. Raises `UserError`."""
        if grammar not in self._matchers:
            limits = LLParserLimits(verbose_errors=False)
            made = LLMatcher(self.tokenizer, compiled(grammar), log_level=0, limits=limits)
            if made.is_error():
                raise UserError(f"grammar: {first_line(made.get_error())}; expected a grammar that fits the tokenizer")
            self._matchers[grammar] = made
        return self._matchers[grammar].deep_copy()

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token stands for; of a special one those of its name."""
        found: bytes = self.tokenizer.decode_bytes([token])
        # The byte 255 begins the names of special tokens there: one that has no name is that byte.
        return found if found or not self.tokenizer.is_special_token(token) else b"\xff"


@lru_cache(maxsize=4)
def vocabulary_of(tokenizer: Any, size: int, stop: frozenset[int]) -> GrammarVocabulary:
    """The vocabulary of a Hugging Face tokenizer, for `size` logits; `stop`: ids that end a text.

    It takes about a second and is kept. Raises `UserError` for a tokenizer that llguidance cannot read.
    """
    known = max(size, len(tokenizer))
    own = tokenizer.eos_token_id
    ends = sorted(end for end in stop if end < known) or ([] if own is None else [own])
    try:
        return GrammarVocabulary(_read(tokenizer, known, ends), ends)
    except Exception as error:
        kind = type(tokenizer).__name__
        raise UserError(
            f"grammar given, and llguidance cannot read the tokenizer {kind}: {first_line(error)}; expected a fast "
            "tokenizer (tokenizer.json) with an end-of-text token, or grammar off"
        ) from None


def _read(tokenizer: Any, size: int, ends: list[int]) -> LLTokenizer:
    if isinstance(tokenizer, ConvertedTokenizer):
        return LLTokenizer(tokenizer.backend_tokenizer.to_str(), n_vocab=size, eos_token=ends)
    from llguidance.hf import from_tokenizer  # with transformers

    return from_tokenizer(tokenizer, n_vocab=size, eos_token=ends)
