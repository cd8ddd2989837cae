"""One sequence, whole: what a round reads and changes. Weights have no state, and drafters keep theirs here."""

from collections import abc
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from egag.length_rule import LengthRule
from sampling.forward.runner import Runner
from sampling.forward.tree import is_chain
from utils.device.sent import sent
from utils.events import FinishReason, Round
from utils.logits_processor import LogitsProcessor
from utils.numbers.random_numbers import CounterRNG
from utils.parameter import MOST_DRAFTS


@dataclass(slots=True, eq=False)
class Sequence:
    """The tokens of one text and everything that is kept for it.

    tokens: prompt and output so far; where an encoder read the prompt (`encoder_ids`), what the decoder began with
    and the output. runner: its rows in the target's cache. rng: its randomness. rule: its draft-length rule.
    drafter_state: what each drafter keeps for it, by the drafter, so that one inside another has its own. logits:
    `[n + 1, V]`, the target's raw rows of the round just verified (row 0 = root, row i + 1 = after draft i). hidden:
    for each layer of `needs_hidden` the states `[m, H]` of the positions just committed. last: the last round, with
    its share of a batch's times. live: how many sequences share its forwards. reason: why it is over; None while it is
    not. most_drafts: of a path in one round.
    """

    tokens: list[int]
    runner: Runner
    processor: LogitsProcessor
    rng: CounterRNG
    rule: LengthRule
    max_new_tokens: int
    stop: abc.Collection[int] = ()
    encoder_ids: tuple[int, ...] = ()
    prompt_length: int = 0
    rounds: int = 0
    reason: FinishReason | None = None
    drafter_state: dict[Any, Any] = field(default_factory=dict)
    logits: Tensor | None = None
    hidden: dict[int, Tensor] = field(default_factory=dict)
    last: Round | None = None
    live: int = 1
    most_drafts: int = MOST_DRAFTS

    def __post_init__(self) -> None:
        self.prompt_length = self.prompt_length or len(self.tokens)

    @property
    def text(self) -> list[int]:
        """What can be copied from: all tokens, behind what an encoder read where there is one."""
        return [*self.encoder_ids, *self.tokens] if self.encoder_ids else self.tokens

    @property
    def position(self) -> int:
        """Index of the next new token in prompt + output; the prompt is what an encoder read, where there is one."""
        return (len(self.encoder_ids) or self.prompt_length) + self.new_tokens

    @property
    def device(self) -> torch.device:
        """Where proposals and probabilities live."""
        return self.runner.device

    @property
    def end(self) -> int:
        """The length of `tokens` at which it is over."""
        return min(self.prompt_length + self.max_new_tokens, self.runner.window)

    @property
    def room(self) -> int:
        """Most drafts that a round may accept: it adds one token of the target's own."""
        return min(self.end - len(self.tokens) - 1, self.most_drafts)

    @property
    def new_tokens(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it is over with the tokens that it has; None where it goes on."""
        if self.tokens[-1] in self.stop:
            return "stop"
        if len(self.tokens) < self.end:
            return None
        return "length" if self.new_tokens == self.max_new_tokens else "context"

    def release_rows(self) -> None:
        """Give up the rows of models that drafters keep for a text that is over."""
        for drafter in [drafter for drafter in self.drafter_state if drafter.keeps_rows]:
            del self.drafter_state[drafter]


def kept_states(hidden: abc.Mapping[int, Tensor], path: abc.Sequence[int], device: torch.device) -> dict[int, Tensor]:
    """The states of the root and the accepted drafts; an output of the target holds until its next forward."""
    if is_chain(path):
        return {layer: states[: len(path) + 1].clone() for layer, states in hidden.items()}
    rows = sent([0, *(row + 1 for row in path)], device)
    return {layer: states.index_select(0, rows) for layer, states in hidden.items()}
