"""The start of a text: its prompt is read and checked against the context window."""

from collections.abc import Collection
from collections.abc import Sequence as ListOf

from egag.length_rule import LengthRule
from sampling.arguments import check_room
from sampling.forward.runner import Runner
from sampling.processors.with_text import changes_of, rows_of
from sampling.sequence import Sequence
from utils.device.waiting.choice import look
from utils.logits_processor import LogitsProcessor, one_of_alike
from utils.numbers.random_numbers import CounterRNG


def begin(
    target: Runner,
    gamma: LengthRule,
    processor: LogitsProcessor,
    prompt: ListOf[int],
    max_new_tokens: int,
    stop: Collection[int],
    seed: int,
) -> Sequence:
    """A new sequence for a prompt.

    An encoder has read the prompt, if there is one. The decoder's cache is still empty.
    """
    look()
    reading = target.read(prompt)
    check_room(target, reading.tokens, max_new_tokens)
    gamma.begin()
    tokens, encoder_ids = list(reading.tokens), reading.encoder_ids
    rng, rows = CounterRNG(seed, prompt), one_of_alike(rows_of(processor))
    changes = changes_of(processor, tokens, target.vocab_size, target.device, stop)
    return Sequence(tokens, target, rows, rng, gamma, max_new_tokens, stop, encoder_ids, changes=changes)
