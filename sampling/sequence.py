"""The state of one sequence. A round reads and changes it. Weights have no state, and drafters keep theirs here."""

from collections import abc
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from egag.length_rule import LengthRule
from sampling.forward.prefixes.use import Prefixes, PrefixUse
from sampling.forward.runner import Runner, feed, prefill
from sampling.forward.tree import is_chain
from sampling.processors.followed import FollowedGrammar
from sampling.processors.with_text import TextChanges
from utils.device.sent import sent
from utils.events import FinishReason, Round
from utils.logits_processor import LogitsProcessor
from utils.numbers.random_numbers import CounterRNG
from utils.parameter import MOST_DRAFTS


@dataclass(slots=True, eq=False)
class Sequence:
    """The tokens of one text and all state that belongs to it.

    tokens: the prompt and the output so far. With an encoder (`encoder_ids`), the decoder's start tokens and the
    output. runner: its rows in the target's cache. rng: its random numbers. rule: its draft-length rule. drafter_state:
    the state of each drafter, by drafter, so an inner drafter has its own. shared_state: the same, of all texts of a
    batch. logits: `[n + 1, V]`, the target's raw
    logits of the last round. Row 0 is the root, row i + 1 follows draft i. hidden: for each layer of `needs_hidden` the
    states `[m, H]` of the positions just committed. last: the last round, with this sequence's share of a batch's
    times. live: the number of sequences that share its forwards. reason: why the text ended; None while it continues.
    most_drafts: the most drafts of a path in one round. taken_back: what the rounds so far took back, see `rollback`.
    matched_s: seconds of the grammar so far.
    changes: what changes logits by the text, before `processor` makes probabilities of a row by itself.
    prefixes: the trees of kept rows, see `use_prefixes`. prefix, drafting: what the target and each drafter took of
    them. drafter_start: the first row of the prompt that a drafter read; None where none did.
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
    shared_state: dict[Any, Any] = field(default_factory=dict)
    logits: Tensor | None = None
    hidden: dict[int, Tensor] = field(default_factory=dict)
    last: Round | None = None
    live: int = 1
    most_drafts: int = MOST_DRAFTS
    taken_back: tuple[float, int] = (0.0, 0)
    changes: TextChanges | None = None
    matched_s: float = 0.0
    prefixes: Prefixes | None = None
    prefix: PrefixUse | None = None
    drafting: dict[Any, PrefixUse] = field(default_factory=dict)
    drafter_start: int | None = None

    def __post_init__(self) -> None:
        self.prompt_length = self.prompt_length or len(self.tokens)
        self.rollback()

    @property
    def text(self) -> list[int]:
        """The tokens that a copy may come from: all tokens, after the encoder's input if there is one."""
        return [*self.encoder_ids, *self.tokens] if self.encoder_ids else self.tokens

    def rollback(self) -> tuple[float, int]:
        """Seconds that taking tokens back took since the last call, and tokens that were read again for it."""
        cache, before = getattr(self.runner, "cache", None), self.taken_back
        self.taken_back = getattr(cache, "rollback_s", 0.0), getattr(cache, "reread", 0)
        return self.taken_back[0] - before[0], self.taken_back[1] - before[1]

    def grammar_s(self) -> float:
        """Seconds that masks and the matcher of the grammar took since the last call."""
        grammar, before = self.changes and self.changes.grammar, self.matched_s
        self.matched_s = grammar.seconds if grammar else 0.0
        return self.matched_s - before

    @property
    def position(self) -> int:
        """Index of the next new token in prompt + output. With an encoder, the prompt is the encoder's input."""
        return (len(self.encoder_ids) or self.prompt_length) + self.new_tokens

    @property
    def device(self) -> torch.device:
        """The device of proposals and probabilities."""
        return self.runner.device

    @property
    def end(self) -> int:
        """The length of `tokens` at which the text ends."""
        return min(self.prompt_length + self.max_new_tokens, self.runner.window)

    @property
    def grammar(self) -> FollowedGrammar | None:
        """The grammar of the text, behind its committed tokens; None without one."""
        grammar = None if self.changes is None else self.changes.grammar
        if grammar is not None:
            grammar.follow(self.tokens[self.prompt_length :])
        return grammar

    def allowed(self, drafts: abc.Sequence[int], pending: abc.Sequence[int] = ()) -> abc.Sequence[int]:
        """The drafts behind the text and `pending` up to the first that the grammar forbids; all without a grammar."""
        grammar = self.grammar
        return drafts if grammar is None else drafts[: grammar.allowed(drafts, pending)]

    def allowed_rows(self, drafts: abc.Sequence[int], parents: abc.Sequence[int]) -> tuple[list[int], tuple[int, ...]]:
        """The rows of a tree behind the text that the grammar allows, and the parents of these among themselves."""
        grammar = self.grammar
        if grammar is None:
            return [*range(len(drafts))], tuple(parents)
        rows = grammar.allowed_rows(drafts, parents)
        place = {-1: -1, **{row: number for number, row in enumerate(rows)}}
        return rows, tuple(place[parents[row]] for row in rows)

    @property
    def room(self) -> int:
        """The most drafts that a round may accept. The round adds one token of the target after them."""
        return min(self.end - len(self.tokens) - 1, self.most_drafts)

    @property
    def new_tokens(self) -> int:
        """The number of generated tokens."""
        return len(self.tokens) - self.prompt_length

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the text ends with its present tokens; None if it continues."""
        if self.tokens[-1] in self.stop:
            return "stop"
        if len(self.tokens) < self.end:
            return None
        return "length" if self.new_tokens == self.max_new_tokens else "context"

    def use_prefixes(self, prefixes: Prefixes | None, layers: abc.Sequence[int]) -> None:
        """Take rows over from these trees and leave rows in them. layers: see `Drafter.needs_hidden`."""
        self.prefixes = prefixes
        self.prefix = None if prefixes is None else prefixes.use(self.runner, layers)

    def keep_prompt(self) -> None:
        """All of the prompt was read: the trees keep its rows."""
        if self.prefix is not None:
            self.prefix.read(self.tokens[:-1], self.hidden)

    def read_drafting(self, drafter: Any, runner: Runner, layers: abc.Sequence[int] = ()) -> dict[int, Tensor]:
        """Let a drafter's model read the text but its last token; the states of these layers."""
        tokens = self.tokens[:-1][: runner.window]
        use = None if self.prefixes is None else self.prefixes.use(runner, layers)
        if use is None:
            self.read_by_drafter(0)
            return prefill(runner, tokens, layers)
        runner.crop(0)
        start = use.resume(tokens)
        states = use.whole(feed(runner, tokens[start:], layers))
        use.read(tokens, states)
        self.drafting[drafter] = use
        self.read_by_drafter(start)
        return states

    def read_by_drafter(self, start: int) -> None:
        """A drafter has read the prompt from this row on."""
        self.drafter_start = start if self.drafter_start is None else min(start, self.drafter_start)

    def release_rows(self, failed: bool = False) -> None:
        """Release the cache rows of a text that is over. What counts of them stays in the trees, unless it failed."""
        for use in (self.prefix, *self.drafting.values()):
            if use is not None and failed:
                use.fail()
            elif use is not None and self.rounds:  # only a verdict has checked the rows
                use.leave(self.tokens)
        self.prefix = None
        self.drafting.clear()
        for drafter in [drafter for drafter in self.drafter_state if drafter.keeps_rows]:
            del self.drafter_state[drafter]


def kept_states(hidden: abc.Mapping[int, Tensor], path: abc.Sequence[int], device: torch.device) -> dict[int, Tensor]:
    """The hidden states of the root and the accepted drafts, copied because the next forward overwrites the output."""
    if not hidden:
        return {}
    if is_chain(path):
        return {layer: states[: len(path) + 1].clone() for layer, states in hidden.items()}
    rows = sent([0, *(row + 1 for row in path)], device)
    return {layer: states.index_select(0, rows) for layer, states in hidden.items()}
