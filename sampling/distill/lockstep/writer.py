"""What `Writer` writes, by the thousand on a card, where it stays: nothing is kept on disk.

How many texts stand side by side depends on the memory that is free, and with it what is drawn.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from sampling.distill.lockstep.texts import Lockstep, Started, texts_side_by_side
from sampling.distill.shards import TrainingRow, answer_tokens
from sampling.distill.writing import FEW, WritingOptions, openings_of, template
from sampling.forward.models.lean import LeanModel

Told = Callable[..., None]


class LockstepWriter:
    """Dialogues with the states of these layers. The model's own, or answers to given turns."""

    def __init__(
        self, model: LeanModel, tokenizer: Any, stop: frozenset[int], layers: Sequence[int], how: WritingOptions
    ) -> None:
        self._model, self._tokenizer, self._stop, self._layers = model, tokenizer, stop, tuple(layers)
        self._before, self._between = template(tokenizer)
        self._how = how.within(model.window - len(self._before) - len(self._between))
        self._chance = random.Random(how.seed)

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        """Draws follow from the seed, and leave the random numbers of others as they were."""
        device = self._model.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(self._how.seed)
            yield

    def converse(self, tokens: int, refused: Callable[[str], bool], say: Told) -> list[TrainingRow]:
        """Dialogues with at least so many answer tokens. refused: user turns that must not be learned from."""
        openings = openings_of(self._tokenizer, self._how)
        users = self._lockstep(len(self._before) + self._how.user_tokens, ())
        answers = self._lockstep(len(self._before) + self._how.user_tokens + self._answer_room, self._layers)
        rows, done = list[TrainingRow](), 0
        with self._seeded():
            while done < tokens:
                say(done, tokens)
                starts = [Started([*self._before, *self._chance.choice(openings)], greedy=False) for _ in users.ids]
                spoken = [self._spoken(text) for text in users.write(starts, self._how.user_tokens)]
                turns = [turn for turn in spoken if self._says(turn) and not refused(self._decoded(turn))]
                new = [row for part in _parts(turns, len(answers.ids)) for row in self._answered(answers, part)]
                rows += new
                done += answer_tokens(new)
        say(done, tokens)
        return rows

    def answer(self, turns: Sequence[str], say: Told) -> list[TrainingRow]:
        """One answer to each turn, the shortest turn first. One that leaves no room for its answer is cut."""
        room = self._model.window - self._answer_room
        encoded = (self._tokenizer.encode(turn, add_special_tokens=False) for turn in turns)
        spoken = sorted(([*self._before, *ids][:room] for ids in encoded), key=len)
        answers = self._lockstep(len(spoken[-1]) + self._answer_room, self._layers)
        rows = list[TrainingRow]()
        with self._seeded():
            for part in _parts(spoken, len(answers.ids)):
                say(len(rows), len(spoken))
                rows += self._answered(answers, part)
        say(len(rows), len(spoken))
        return rows

    @property
    def _answer_room(self) -> int:
        return len(self._between) + self._how.answer_tokens

    def _lockstep(self, columns: int, layers: Sequence[int]) -> Lockstep:
        on_card = self._model.device.type == "cuda"
        texts = texts_side_by_side(self._model, columns, len(layers)) if on_card else self._how.batch
        return Lockstep(self._model, texts, columns, layers, self._how, self._stop)

    def _spoken(self, text: list[int]) -> list[int]:
        """A user's turn with what stands before it, without the token that ended it."""
        said = text[:-1] if text[-1] in self._stop else text
        return said[: len(self._before) + self._how.user_tokens]

    def _decoded(self, spoken: list[int]) -> str:
        said: str = self._tokenizer.decode(spoken[len(self._before) :])
        return said

    def _says(self, spoken: list[int]) -> bool:
        return len(spoken) - len(self._before) > FEW

    def _answered(self, answers: Lockstep, spoken: Sequence[list[int]]) -> Iterator[TrainingRow]:
        starts = [Started([*turn, *self._between], self._chance.random() < self._how.greedy) for turn in spoken]
        yield from answers.rows(answers.write(starts, self._how.answer_tokens), starts)


def _parts(turns: Sequence[list[int]], size: int) -> Iterator[Sequence[list[int]]]:
    return (turns[first : first + size] for first in range(0, len(turns), size))
