"""Training data that the target writes itself: user turns behind its own chat template, then the answers.

With the text come the hidden states of the positions it was written from, which cost nothing more: they are
what a draft head learns to continue. The idea of letting an aligned model write the user's turn is Magpie's
(arXiv 2406.08464).
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from sampling.forward.batch_cache import BatchCache
from sampling.forward.lean import LeanModel
from sampling.forward.runner import ModelRunner
from utils.errors import UserError
from utils.logits_processor import sample

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


@dataclass(frozen=True, slots=True)
class Writing:
    """How to write: sequences at a time, lengths in tokens, how much is drawn at which temperature.

    greedy: share of the answers that take the most likely token; the others are drawn. User turns are
    always drawn, or they would all be the same.
    """

    batch: int = 64
    columns: int = 640
    user_tokens: int = 96
    answer_tokens: int = 256
    greedy: float = 0.5
    temperature: float = 1.0
    top_k: int = 64
    seed: int = 0


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


@dataclass
class _Slot:
    """A sequence under way: its tokens, those that are forced next, and its rows of states.

    answer: where the answer starts; None while the user speaks, 0 while the rest of the template is forced.
    """

    greedy: bool
    tokens: list[int]
    forced: list[int]
    answer: int | None = None
    rows: list[int] = field(default_factory=list)


class Writer:
    """Lets a lean model write dialogues, a batch at a time. Raises `UserError` where it has no chat template.

    turns: user turns to answer; None = the model writes them itself, without end.
    """

    def __init__(
        self,
        model: LeanModel,
        tokenizer: Any,
        stop: frozenset[int],
        layers: Sequence[int],
        how: Writing,
        turns: Sequence[str] | None = None,
    ):
        if not tokenizer.chat_template:
            raise UserError("the target has no chat template to write dialogues with; allowed: --data FILE")
        self._before, self._between = _template(tokenizer)
        room = model.window - len(self._before) - len(self._between)
        if room < 8:
            raise UserError(f"a context window of {model.window} tokens has no room for a dialogue behind its template")
        self._how = replace(
            how,
            user_tokens=min(how.user_tokens, room // 4),
            answer_tokens=min(how.answer_tokens, room - room // 4),
        )
        self._model, self._stop, self._layers = model, stop, tuple(layers)
        openings = [tokenizer.encode(text, add_special_tokens=False) if text else [] for text in OPENINGS]
        self._openings = [ids[: self._how.user_tokens] for ids in openings]
        self._turns = None if turns is None else [self._ids(tokenizer, turn) for turn in turns][::-1]
        self._choose = random.Random(how.seed)
        self._rng = torch.Generator(model.device).manual_seed(how.seed)

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
        """Dialogues in the order in which they come to their end; unfinished ones count from 16 tokens on."""
        runner = ModelRunner(self._model)
        before = runner.forward(self._before[:-1], hidden=self._layers, rows=0).hidden
        cache = BatchCache(runner.cache, self._how.batch, self._how.columns)
        while self._turns is None or self._turns:
            yield from self._wave(cache, before)
            cache.rewind()

    def _wave(self, cache: BatchCache, before: dict[int, Tensor]) -> Iterator[Dialogue]:
        """Fill the columns once; what is unfinished at their end counts from a few answer tokens on."""
        slots: list[_Slot | None] = [self._slot() for _ in range(self._how.batch)]
        states: list[dict[int, Tensor]] = []
        for column in range(cache.shared, cache.columns):
            cache.column = column
            if not any(slots):
                return
            cache.show(torch.tensor([row for row, slot in enumerate(slots) if slot is not None]))
            logits = self._step(cache, slots, states)
            chosen = self._choices(logits, slots)
            for row, slot in enumerate(slots):
                if slot is None:
                    continue
                slot.rows.append(len(states) - 1)
                if self._ended(slot, chosen[row]):
                    yield self._dialogue(slot, row, before, states)
                    slots[row] = self._slot() if cache.columns - column > self._how.user_tokens else None
                    cache.restart([row])
        for row, slot in enumerate(slots):
            if slot is not None and slot.answer and len(slot.tokens) - slot.answer > 16:
                yield self._dialogue(slot, row, before, states)

    def _slot(self) -> _Slot | None:
        """A new sequence; None where no turn is left."""
        greedy = self._choose.random() < self._how.greedy
        if self._turns is None:
            return _Slot(greedy, list(self._before), list(self._choose.choice(self._openings)))
        return _Slot(greedy, list(self._before), self._turns.pop() + self._between, 0) if self._turns else None

    def _ids(self, tokenizer: Any, turn: str) -> list[int]:
        """A given user turn, cut to the room that the columns leave."""
        ids: list[int] = tokenizer.encode(turn, add_special_tokens=False)
        most = min(self._how.columns, self._model.window)
        return ids[: most - len(self._before) - len(self._between) - self._how.answer_tokens]

    def _step(self, cache: BatchCache, slots: Sequence[_Slot | None], states: list[dict[int, Tensor]]) -> Tensor:
        """One forward for the last token of every sequence; logits `[B, V]`."""
        device = self._model.device
        tokens = torch.tensor([slot.tokens[-1] if slot else 0 for slot in slots], device=device)
        places = torch.tensor([len(slot.tokens) - 1 if slot else 0 for slot in slots], device=device)
        logits, hidden = self._model.forward(tokens, places, None, cache, self._layers, len(slots))
        states.append({layer: rows.to(torch.bfloat16) for layer, rows in hidden.items()})
        return logits

    def _choices(self, logits: Tensor, slots: Sequence[_Slot | None]) -> list[int]:
        """The most likely token for greedy answers, a drawn one for everything else."""
        top, ids = logits.float().topk(self._how.top_k, dim=-1)
        law = torch.softmax(top / self._how.temperature, dim=-1)
        drawn = ids.gather(1, sample(law, self._rng).unsqueeze(1)).squeeze(1).tolist()
        best = ids[:, 0].tolist()
        answers = [slot is not None and slot.greedy and slot.answer is not None for slot in slots]
        return [best[row] if answers[row] else drawn[row] for row in range(len(slots))]

    def _ended(self, slot: _Slot, chosen: int) -> bool:
        """Take the next token; True when the answer is whole."""
        if slot.forced:
            slot.tokens.append(slot.forced.pop(0))
            if not slot.forced and slot.answer == 0:
                slot.answer = len(slot.tokens)
            return False
        if slot.answer is None:
            user = len(slot.tokens) - len(self._before)
            if (chosen in self._stop and user > 2) or user >= self._how.user_tokens:
                slot.forced, slot.answer = list(self._between), 0
                return self._ended(slot, chosen)
            slot.tokens.append(chosen if chosen not in self._stop else self._between[-1])
            return False
        slot.tokens.append(chosen)
        return chosen in self._stop or len(slot.tokens) - slot.answer >= self._how.answer_tokens

    def _dialogue(self, slot: _Slot, row: int, before: dict[int, Tensor], states: list[dict[int, Tensor]]) -> Dialogue:
        assert slot.answer
        own = {
            layer: torch.cat(
                [before[layer].to(torch.bfloat16), torch.stack([states[i][layer][row] for i in slot.rows])]
            )
            for layer in self._layers
        }
        return Dialogue(slot.tokens, slot.answer, slot.greedy, own)


def _template(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Ids before a user's turn, and those between it and the answer, as the chat template writes them."""
    mark = "\u2063turn\u2063"
    text: str = tokenizer.apply_chat_template(
        [{"role": "user", "content": mark}], tokenize=False, add_generation_prompt=True
    )
    before, between = text.split(mark)
    return (
        tokenizer.encode(before, add_special_tokens=False),
        tokenizer.encode(between, add_special_tokens=False),
    )
