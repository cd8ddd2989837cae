"""From the settings that say how tokens are chosen to the processor of a pair's texts."""

from collections.abc import Callable

from sampling.engine import Text
from sampling.grammar.spelling import OFF_WORD
from sampling.methods.choices import make_processor
from sampling.pair.pair import Pair
from sampling.scheduling.live_text import Request
from utils.device.spare import attempt
from utils.logits_processor import GreedyProcessor, LogitsProcessor
from utils.parameter import ChosenPart


def processor_of(pair: Pair, chosen: ChosenPart, grammar: str = OFF_WORD) -> LogitsProcessor:
    """The processor that a setting names, under a grammar over the pair's tokens.

    Raises `UserError` for a tokenizer that llguidance cannot read. The grammar itself is read as a text begins.
    """
    processor = make_processor(chosen)
    if grammar == OFF_WORD:
        return processor
    from sampling.grammar.constraint import constrained  # with llguidance, which nobody else needs
    from sampling.grammar.vocabulary import vocabulary_of

    return constrained(processor, vocabulary_of(pair.tokenizer, pair.target.vocab_size, pair.stop), grammar)


def request_of(make: Callable[[Text], Request], text: Text) -> Request:
    """What is made of a text, or in place of its error a request that fails with it."""
    made = attempt(make, text)
    if isinstance(made, Request):
        return made
    return Request(list(text.prompt), GreedyProcessor(), text.length, 0, tag=text.tag, error=made)
