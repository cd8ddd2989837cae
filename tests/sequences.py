"""A sequence by hand, for tests that ask a drafter without a loop."""

from collections.abc import Sequence as Ids

from egag.length_rule import FixedGamma
from sampling.forward.runner import Runner
from sampling.sequence import Sequence
from utils.logits_processor import GreedyProcessor, LogitsProcessor
from utils.numbers.random_numbers import CounterRNG

_FAR = 10**6


def sequence(
    tokens: Ids[int],
    slot: Runner,
    processor: LogitsProcessor | None = None,
    prompt_length: int = 0,
    encoder_ids: tuple[int, ...] = (),
    seed: int = 0,
) -> Sequence:
    """A sequence with these tokens; nothing is fed. By default all of them are the prompt's, and greedy."""
    processor = processor or GreedyProcessor()
    return Sequence(
        [*tokens],
        slot,
        processor,
        CounterRNG(seed, tokens),
        FixedGamma(),
        _FAR,
        encoder_ids=encoder_ids,
        prompt_length=prompt_length,
    )
