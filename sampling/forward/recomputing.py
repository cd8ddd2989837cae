"""A runner without a cache: what runs with one are tested against, and `/cache off`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sampling.forward.caches.cache import refuse_crop
from sampling.forward.causal_model import CausalModel, Output, PromptReading, as_ids
from utils.device.sent import sent


class RecomputingRunner:
    """A runner whose every forward starts from the first token, an encoder's included. Slow, and trivially right."""

    fixed_shapes = False

    def __init__(self, model: CausalModel, vocab_size: int | None = None) -> None:
        self.model = model
        self.vocab_size = vocab_size or model.vocab_size
        self.window = model.window
        self.device = model.device
        self._fed = torch.empty(0, dtype=torch.long, device=self.device)
        self._encoder_ids: tuple[int, ...] = ()
        self.generation = 0

    def on(self, model: CausalModel) -> "RecomputingRunner":
        """See `WholeRunner.on`."""
        return RecomputingRunner(model, self.vocab_size)

    def another(self) -> "RecomputingRunner":
        """See `WholeRunner.another`."""
        return self.on(self.model)

    @property
    def length(self) -> int:
        """See `Runner.length`."""
        return self._fed.shape[0]

    def crop(self, length: int) -> None:
        """See `Runner.crop`."""
        refuse_crop(self.length, length)
        self._fed = self._fed[:length]

    def keep(self, base: int, path: Sequence[int]) -> None:
        """See `Runner.keep`."""
        rows = [*range(base + 1), *(base + 1 + row for row in path)]
        self._fed = self._fed[sent(rows, self.device)]

    @torch.inference_mode()
    def read(self, prompt: Sequence[int]) -> PromptReading:
        """See `Runner.read`."""
        self.crop(0)
        self.generation += 1
        reading = self.model.read(prompt)
        self._encoder_ids = reading.encoder_ids
        return reading

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Output:
        """See `Runner.forward`."""
        new = as_ids(tokens, self.device)
        start, count = self.length, new.shape[0]
        whole = None if parents is None else [*range(-1, start - 1), *(start + parent for parent in parents)]
        ids = torch.cat([self._fed, new])
        output = self._from_the_start(ids, whole, hidden, count if rows is None else rows)
        self._fed = ids
        return Output(output.logits, {layer: states[start:] for layer, states in output.hidden.items()})

    @torch.inference_mode()
    def fork(self, tokens: Sequence[int], base: int, lines: Tensor) -> Output:
        """See `Runner.fork`: each text from its first token on, one after the other."""
        new = as_ids(tokens, self.device)
        rows = torch.cat([torch.arange(base).expand(len(lines), -1), lines], dim=1).to(self.device)
        texts = torch.cat([self._fed[rows], new.unsqueeze(1)], dim=1)
        self._fed = torch.cat([self._fed, new])
        return Output(torch.cat([self._from_the_start(text, None, (), 1).logits for text in texts]))

    def _from_the_start(self, ids: Tensor, parents: Sequence[int] | None, hidden: Sequence[int], rows: int) -> Output:
        """A forward over a whole text. parents: of all tokens but the first."""
        cache = self.model.new_cache()
        if self._encoder_ids:
            cache.memory = self.model.read(self._encoder_ids).memory
        count = ids.shape[0]
        positions, mask = cache.lay_out(count, parents)
        logits, states = self.model.forward(ids, positions, mask, cache, hidden, rows)
        return Output(logits[:, : self.vocab_size], states)
