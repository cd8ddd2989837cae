"""Training data that the target writes itself: user turns behind its own chat template, then the answers.

With the text come the hidden states of the positions it was written from, which cost nothing more: they are
what a draft head learns to continue. The idea of letting an aligned model write the user's turn is Magpie's
(arXiv 2406.08464).
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from egag.length_rule import FixedGamma
from sampling import sequence as decoding
from sampling.batch import Batch, decode_many
from sampling.drafter import NullDrafter
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, prefill
from sampling.forward.sharing import SharedRunner
from sampling.scheduling.live_text import Request
from sampling.verify.rejection import RejectionVerifier
from utils.errors import UserError
from utils.events import Prefilled, Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, TopKProcessor

OPENINGS = (
    "",
    "",
    "",
    "",
    "Write a Python function that",
    "Write a JavaScript function",
    "Write a program in",
    "Write a SQL query",
    "Complete this function:\n\ndef",
    "Fix the bug in this code:\n\n",
    "Explain",
    "What is",
    "What are",
    "Why do",
    "How can I",
    "How does",
    "Can you",
    "I am",
    "Tell me about",
    "Give me",
    "List",
    "Compare",
    "Describe",
    "Summarize the following text:\n\n",
    "Rewrite",
    "Translate",
    "Correct the grammar of",
    "Extract",
    "Continue this story:",
    "Write a short story about",
    "Write a letter",
    "Write an essay about",
    "Write a poem",
    "Plan",
    "Suggest",
    "Calculate",
    "Solve",
    "Is it true that",
)

_LEAST_ROOM = 8
FEW = 2
"""A user who has said no more tokens has said nothing."""


@dataclass(frozen=True, slots=True)
class WritingOptions:
    """How to write: sequences at a time, lengths in tokens, how much is drawn at which temperature.

    greedy: share of the answers that take the most likely token; the others are drawn. User turns are
    always drawn, or they would all be the same.
    """

    batch: int = 64
    user_tokens: int = 96
    answer_tokens: int = 256
    greedy: float = 0.5
    temperature: float = 1.0
    top_k: int = 64
    seed: int = 0

    def within(self, room: int) -> "WritingOptions":
        """The same for a window with room for so many tokens beside the template. Raises `UserError` for too few."""
        if room < _LEAST_ROOM:
            raise UserError(f"a context window with room for {room} tokens beside its template is too short")
        user = min(self.user_tokens, room // 4)
        return replace(self, user_tokens=user, answer_tokens=min(self.answer_tokens, room - room // 4))


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One user turn and its answer: ids, where the answer starts, and states `{layer: [n - 1, H]}`.

    greedy: every token of the answer is the target's most likely one.

    Row t of a layer belongs to token t; the last token was never fed, so it has none.
    """

    tokens: list[int]
    answer: int
    greedy: bool
    states: dict[int, Tensor]


@dataclass(slots=True)
class _DraftedText:
    """A dialogue under way: whose answer is greedy, where it starts (None while the user speaks), states so far."""

    greedy: bool
    states: dict[int, list[Tensor]]
    answer: int | None = None


class _Listening(NullDrafter):
    """Plain decoding that asks for hidden states."""

    def __init__(self, layers: Sequence[int]) -> None:
        self.needs_hidden = tuple(layers)


class Writer:
    """Lets a lean model write dialogues, a batch at a time. Raises `UserError` where it has no chat template.

    turns: user turns to answer; None = the model writes them itself, without end. What it writes does not depend on
    how many it writes at a time.
    """

    def __init__(
        self,
        model: LeanModel,
        tokenizer: Any,
        stop: frozenset[int],
        layers: Sequence[int],
        how: WritingOptions,
        turns: Sequence[str] | None = None,
    ):
        self._before, self._between = template(tokenizer)
        room = model.window - len(self._before) - len(self._between)
        self._how = how.within(room)
        self._model, self._stop, self._layers = model, stop, tuple(layers)
        self._openings = openings_of(tokenizer, self._how)
        longest = room - self._how.answer_tokens
        opening_ids = (tokenizer.encode(turn, add_special_tokens=False)[:longest] for turn in turns or ())
        self._turns = None if turns is None else list(opening_ids)[::-1]
        self._choose = random.Random(how.seed)
        self._drawn, self._greedy = TopKProcessor(how.temperature, how.top_k), GreedyProcessor()
        self._answers: list[Request] = []

    def user_turn(self, dialogue: Dialogue) -> list[int]:
        """What the user says in it, without the template."""
        return self._said(dialogue.tokens, dialogue.answer)

    def leave_out(self, answers: Iterable[tuple[list[int], int]]) -> None:
        """Given turns that were answered before: tokens of the dialogue, and where its answer starts."""
        answered = Counter(tuple(self._said(tokens, answer)) for tokens, answer in answers)
        left = []
        for turn in self._turns or ():
            answered[tuple(turn)] -= 1
            if answered[tuple(turn)] < 0:
                left.append(turn)
        self._turns = left

    def _said(self, tokens: list[int], answer: int) -> list[int]:
        return tokens[len(self._before) : answer - len(self._between)]

    @torch.inference_mode()
    def write(self) -> Iterator[Dialogue]:
        """Dialogues in the order in which they come to their end."""
        plain = prefill(ModelRunner(self._model), self._before[:-1], self._layers)
        self._opened = {layer: rows.to(torch.bfloat16) for layer, rows in plain.items()}
        size = self._how.batch if self._turns is None else min(self._how.batch, max(1, len(self._turns)))
        drafter, verifier = _Listening(self._layers), RejectionVerifier()
        batch = Batch(SharedRunner(self._model), drafter, lambda: FixedGamma(0), verifier, size)
        for live, event in decode_many(batch, self._requests()):
            if live.error is not None:
                raise live.error
            request, seq = live.request, live.seq
            if isinstance(event, Prefilled):
                self._take_over(request, seq)
            elif isinstance(event, Round):
                self._add(request.tag, seq)
            elif request.tag.answer is not None:
                yield self._dialogue(request.tag, seq)
            else:
                self._hear(request, seq)

    def _requests(self) -> Iterator[Request]:
        """What to write next: the answer to a turn that was just heard, else a new dialogue."""
        while True:
            if self._answers:
                yield self._answers.pop()
            elif self._turns is None:
                prompt = [*self._before, *self._choose.choice(self._openings)]
                room = self._how.user_tokens + len(self._before) - len(prompt)
                yield self._request(prompt, self._drawn, room, self._draft(), len(self._before) - 1)
            elif self._turns:
                yield self._answer([*self._before, *self._turns.pop()], self._draft(), len(self._before) - 1)
            else:
                return

    def _draft(self) -> _DraftedText:
        return _DraftedText(
            self._choose.random() < self._how.greedy, {layer: [rows] for layer, rows in self._opened.items()}
        )

    def _answer(self, spoken: list[int], draft: _DraftedText, reuse: int) -> Request:
        """The answer to what was spoken so far, the template's opening included."""
        prompt = [*spoken, *self._between]
        draft.answer = len(prompt)
        processor = self._greedy if draft.greedy else self._drawn
        return self._request(prompt, processor, self._how.answer_tokens, draft, reuse)

    def _request(
        self, prompt: list[int], processor: LogitsProcessor, room: int, draft: _DraftedText, reuse: int
    ) -> Request:
        return Request(prompt, processor, room, self._choose.getrandbits(62), self._stop, reuse, tag=draft)

    def _hear(self, request: Request, seq: decoding.Sequence) -> None:
        """A user turn is over: have it answered, unless next to nothing was said."""
        spoken = seq.tokens[:-1] if seq.reason == "stop" else list(seq.tokens)
        if len(spoken) - len(self._before) > FEW:
            self._answers.append(self._answer(spoken, request.tag, len(spoken)))

    def _take_over(self, request: Request, seq: decoding.Sequence) -> None:
        """States of a prompt: those of the rows that were taken over, then those of the others."""
        draft = request.tag
        for layer in self._layers:
            fed = seq.hidden[layer].to(torch.bfloat16) if layer in seq.hidden else self._opened[layer][:0]
            kept = torch.cat(draft.states[layer])[: len(request.prompt) - 1 - len(fed)]
            draft.states[layer] = [kept, fed]

    def _add(self, draft: _DraftedText, seq: decoding.Sequence) -> None:
        for layer in self._layers:
            draft.states[layer].append(seq.hidden[layer].to(torch.bfloat16))

    def _dialogue(self, draft: _DraftedText, seq: decoding.Sequence) -> Dialogue:
        assert draft.answer is not None
        states = {layer: torch.cat(parts) for layer, parts in draft.states.items()}
        return Dialogue(list(seq.tokens), draft.answer, draft.greedy, states)


def openings_of(tokenizer: Any, how: WritingOptions) -> list[list[int]]:
    """Ids that a user's turn may begin with, each with room for what the user goes on to say."""
    openings = (tokenizer.encode(text, add_special_tokens=False) if text else [] for text in OPENINGS)
    return [ids[: how.user_tokens - 1] for ids in openings]


def template(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Ids before a user's turn, and those between it and the answer, as the chat template writes them.

    Raises `UserError` where there is none.
    """
    if not tokenizer.chat_template:
        raise UserError("the target has no chat template to write dialogues with; use --data FILE")
    mark = "\u2063turn\u2063"
    text: str = tokenizer.apply_chat_template(
        [{"role": "user", "content": mark}], tokenize=False, add_generation_prompt=True
    )
    before, between = text.split(mark)
    return (
        tokenizer.encode(before, add_special_tokens=False),
        tokenizer.encode(between, add_special_tokens=False),
    )
