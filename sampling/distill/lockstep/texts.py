"""Texts that all stand at the same place: a step of all of them is one CUDA graph.

A step feeds each text its next token, which was given or was chosen by the step before, keeps the states, and chooses.
The host draws random numbers and replays it. Prompts are fed token by token as well, so texts of like length are
written side by side.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import proxy

import torch
from torch import Tensor

from sampling.distill.shards import TrainingRow
from sampling.distill.writing import WritingOptions
from sampling.forward.kernels.attention import grouped_attention
from sampling.forward.kernels.scores import Masks, Scores
from sampling.forward.models.lean import LeanModel
from utils.device.graph_pool import Tensors
from utils.device.graphed import Graphed

_COLUMNS = 64
"""A step attends over a multiple of so many columns, each with a graph of its own."""
_LOOK = 16
"""Steps between looks at whether all texts are over."""
_MOST_TEXTS, _SHARE = 4096, 0.3


@dataclass(frozen=True, slots=True)
class Started:
    """The beginning of a text, and whether its most likely tokens follow, or drawn ones."""

    tokens: list[int]
    greedy: bool


class Lockstep:
    """Texts of at most `columns` tokens side by side. layers: whose states are kept.

    ids: `[B, columns + 1]`. given: `[B]`, how many of a text's tokens are its beginning.
    """

    def __init__(
        self,
        model: LeanModel,
        texts: int,
        columns: int,
        layers: Sequence[int],
        how: WritingOptions,
        stop: frozenset[int],
    ) -> None:
        self._model, self._layers, self._how, device = model, tuple(layers), how, model.device
        shape, width = model.blocks.shape, model.embedding.shape[1]
        self.columns = -(-columns // _COLUMNS) * _COLUMNS
        self.ids = torch.zeros(texts, self.columns + 1, dtype=torch.long, device=device)
        self.given = torch.ones(texts, dtype=torch.long, device=device)
        self._greedy = torch.zeros(texts, dtype=torch.bool, device=device)
        self._over = torch.zeros(texts, dtype=torch.bool, device=device)
        self._place = torch.zeros(1, dtype=torch.long, device=device)
        self._stop = torch.tensor(sorted(stop), device=device)
        self.states = {
            layer: torch.zeros(texts, self.columns, width, dtype=torch.bfloat16, device=device) for layer in layers
        }
        stored = torch.zeros(
            2, model.num_layers, texts, shape.kv_heads, self.columns, shape.head_dim, device=device, dtype=model.dtype
        )
        self._cache = _Cache([_LockstepLayer(keys, values, self._place) for keys, values in zip(*stored, strict=True)])
        self._columns = torch.arange(self.columns, device=device)
        self._coins = torch.ones(texts, min(how.top_k, model.vocab_size), device=device)
        feed, changes = partial(Lockstep._feed, proxy(self)), (self._place, self.ids, self._over)
        # Which experts are computed follows from the numbers, which no graph holds.
        self._fed: Callable[[Tensor, Tensor], Tensors] = feed if model.woken else Graphed(feed, device, changes=changes)

    @torch.inference_mode()
    def write(self, starts: Sequence[Started], room: int) -> list[list[int]]:
        """The texts with what follows them: at most `room` tokens, up to a token that stops, which is the last one."""
        self._begin(starts)
        longest = max(len(start.tokens) for start in starts)
        for place in range(longest - 1 + room):
            self._step(place)
            if place >= longest and place % _LOOK == 0 and bool((self._over | self._full(room)).all()):
                break
        ids, stop = self.ids.tolist(), set(self._stop.tolist())
        return [_ended(row, len(start.tokens), room, stop) for row, start in zip(ids, starts, strict=False)]

    def _begin(self, starts: Sequence[Started]) -> None:
        """Put the beginnings in place; where there are fewer than texts, the last one is repeated."""
        texts = [*starts, *[starts[-1]] * (len(self.ids) - len(starts))]
        lengths = [len(start.tokens) for start in texts]
        padded = [start.tokens + [0] * (max(lengths) - len(start.tokens)) for start in texts]
        self.ids[:, : max(lengths)] = torch.tensor(padded, device=self.ids.device)
        self.given.copy_(torch.tensor(lengths))
        self._greedy.copy_(torch.tensor([start.greedy for start in texts]))
        self._over.zero_()
        self._place.zero_()

    def _full(self, room: int) -> Tensor:
        return self._place >= self.given + room - 1

    def _step(self, place: int) -> None:
        """Feed the tokens at this place, which the device counts for itself."""
        columns = (place // _COLUMNS + 1) * _COLUMNS
        self._fed(self._columns[:columns], self._coins.exponential_())

    def _feed(self, columns: Tensor, coins: Tensor) -> Tensors:
        """One token of each text. columns: the numbers of those that are attended over. coins: see `_chosen`."""
        place, texts = self._place, len(self.ids)
        hidden = columns > place
        mask = torch.zeros_like(hidden, dtype=self._model.dtype).masked_fill(hidden, float("-inf")).view(1, 1, 1, -1)
        tokens = self.ids.index_select(1, place).flatten()
        logits, states = self._model.forward(tokens, place.expand(texts), mask, self._cache, self._layers, texts)
        for layer, rows in states.items():
            self.states[layer].index_copy_(1, place, rows.to(torch.bfloat16).unsqueeze(1))
        chosen, following = self._chosen(logits, coins), place + 1
        free = following >= self.given
        chosen = torch.where(free, chosen, self.ids.index_select(1, following).flatten())
        self._over |= free & (chosen.unsqueeze(1) == self._stop).any(dim=1)
        self.ids.index_copy_(1, following, chosen.unsqueeze(1))
        place += 1
        return ()

    def _chosen(self, logits: Tensor, coins: Tensor) -> Tensor:
        """The most likely token of greedy texts; of the others one of the likeliest, drawn (the Gumbel trick).

        coins: `[B, k]` of an exponential distribution, one for each of the k likeliest.
        """
        likely, ids = logits.topk(coins.shape[1])
        drawn = (likely.float() / self._how.temperature - coins.log()).argmax(dim=1)
        return ids.gather(1, torch.where(self._greedy, 0, drawn).unsqueeze(1)).flatten()

    def rows(self, texts: Sequence[list[int]], starts: Sequence[Started]) -> Iterator[TrainingRow]:
        """What was just written, with the states: on the model's device, one behind the other."""
        lengths = torch.tensor([len(text) for text in texts], device=self.ids.device)
        written = torch.arange(self.columns, device=self.ids.device) < lengths.unsqueeze(1)
        flat = {layer: kept[: len(texts)][written] for layer, kept in self.states.items()}
        parts = {layer: states.split([len(text) for text in texts]) for layer, states in flat.items()}
        for number, (text, start) in enumerate(zip(texts, starts, strict=True)):
            states = {layer: each[number] for layer, each in parts.items()}
            yield TrainingRow(torch.tensor(text), len(start.tokens), start.greedy, states)


def texts_side_by_side(model: LeanModel, columns: int, layers: int) -> int:
    """How many fit into a part of the free memory of the model's card, with their keys, values and states."""
    gc.collect()
    torch.cuda.empty_cache()
    shape, size = model.blocks.shape, model.embedding.element_size()
    a_token = 2 * model.num_layers * shape.kv_heads * shape.head_dim * size + 2 * layers * model.embedding.shape[1]
    free, _ = torch.cuda.mem_get_info(model.device)
    return max(1, min(_MOST_TEXTS, int(_SHARE * free) // (a_token * columns)))


@dataclass(frozen=True, slots=True)
class _Cache:
    """Keys and values of all texts, as blocks see them."""

    layers: Sequence["_LockstepLayer"]


@dataclass(frozen=True, slots=True)
class _LockstepLayer:
    """One layer: keys and values `[B, kv_heads, columns, D]`, and the place `[1]` at which all texts stand."""

    keys: Tensor
    values: Tensor
    place: Tensor

    def destination(self) -> None:
        """See `StepRows`: the rows come to `attend`."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Masks | None, scores: Scores) -> Tensor:
        """See `StepRows`; the mask has the columns that are attended over."""
        assert mask is not None
        for stored, new in ((self.keys, keys), (self.values, values)):
            stored.index_copy_(2, self.place, new.unsqueeze(2))
        hidden = mask.within(scores.window)
        known, meant = (stored[:, :, : hidden.shape[-1]] for stored in (self.keys, self.values))
        return grouped_attention(query, known, meant, hidden, scores)


def _ended(ids: list[int], given: int, room: int, stop: set[int]) -> list[int]:
    """A text up to the token that ended it."""
    for place in range(given, given + room):
        if ids[place] in stop:
            return ids[: place + 1]
    return ids[: given + room]
