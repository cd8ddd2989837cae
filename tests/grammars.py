"""Grammars over the toy model's tokens, and what llguidance itself makes of a text: a matcher that was never moved."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from llguidance import LLTokenizer, TokenizerWrapper
from torch import Tensor

from sampling.grammar.constraint import constrained
from sampling.grammar.spelling import read_grammar
from sampling.grammar.vocabulary import GrammarVocabulary
from utils.logits_processor import LogitsProcessor

TOKENS = (b"a", b"b", b"ab", b"c", b"bc", b"<end>")
END = TOKENS.index(b"<end>")
GRAMMARS = {
    "letters": "regex:[abc]{1,3}",
    "end late": "regex:(a|b)+c",
    "forced": "regex:abc(b|ca?){0,2}",
    "nested": 'lark:start: "a" start "c" | "b"',
    "choice": 'choice:["abcab", "abb", "c"]',
}


class _Toy:
    """The toy's tokenizer: the longest token that the text begins with."""

    eos_token_id, bos_token_id, tokens, special_token_ids = END, None, list(TOKENS), [END]

    def __call__(self, text: str | bytes) -> list[int]:
        left, ids = text.encode() if isinstance(text, str) else text, list[int]()
        while left:
            begins = [token for token in range(END) if left.startswith(TOKENS[token])]
            ids.append(max(begins, key=lambda token: len(TOKENS[token])))
            left = left[len(TOKENS[ids[-1]]) :]
        return ids


@cache
def toy_vocabulary() -> GrammarVocabulary:
    """The toy model's tokens as llguidance reads them."""
    return GrammarVocabulary(LLTokenizer(TokenizerWrapper(_Toy()), n_vocab=len(TOKENS), eos_token=[END]), [END])


def under(grammar: str, processor: LogitsProcessor) -> LogitsProcessor:
    """The processor under a grammar of the toy's tokens."""
    return constrained(processor, toy_vocabulary(), read_grammar(grammar))


def mask_of(grammar: str, output: Sequence[int]) -> np.ndarray:
    """The tokens `[V]` that may follow this output, by a new matcher."""
    matcher = toy_vocabulary().matcher(read_grammar(grammar))
    assert matcher.consume_tokens([token for token in output if token != END])
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    assert not matcher.is_error(), matcher.get_error()
    return bits[: len(TOKENS)].astype(bool)


def masked(grammar: str, output: Sequence[int], logits: Tensor) -> Tensor:
    """Logits `[1, V]` behind this output without what the grammar forbids."""
    return logits.masked_fill(torch.from_numpy(~mask_of(grammar, output)), -torch.inf)
