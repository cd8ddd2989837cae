"""Drafting with a smaller causal model, token by token."""

from collections import abc
from itertools import takewhile
from typing import Any

from torch import Tensor

from sampling.drafters.chains import ChainSteps
from sampling.drafters.crossings.slem import SlemDrafter
from sampling.drafters.crossings.tli import TliDrafter
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.forward.graphs.further import FurtherForwards
from sampling.forward.kernels.linear import drafted_ids
from sampling.forward.requests import StepGenerator
from sampling.forward.runner import ModelRunner, Runner, Runners, request_catch_up, request_forward
from sampling.forward.sharing import SequenceSlot, SharedRunner
from sampling.pair.drafting_pair import DraftingPair
from sampling.sequence import Sequence
from sampling.vocabularies.crossing import TLI
from utils.device.sent import sent
from utils.events import Round


class _ModelSteps:
    """See `ChainSteps`: each sequence is a slot of one model."""

    def __init__(self, model: SharedRunner, slots: abc.Sequence[SequenceSlot], texts: abc.Sequence[list[int]]) -> None:
        self._model, self._slots, self._texts = model, slots, texts

    def root(self) -> Tensor:
        """The model first reads the tokens that it lacks."""
        unread = [text[slot.length :] for slot, text in zip(self._slots, self._texts, strict=True)]
        rows = [slot.rows(len(tokens)) for slot, tokens in zip(self._slots, unread, strict=True)]
        ids = sent([token for tokens in unread for token in tokens], self._model.device)
        return self._model.run_flat(rows, ids, (), [1] * len(rows)).logits

    def feed(self, numbers: abc.Sequence[int], tokens: Tensor) -> Tensor:
        """See `ChainSteps.feed`."""
        rows = [self._slots[number].rows(1) for number in numbers]
        return self._model.run_flat(rows, tokens.to(self._model.device)).logits


class ModelDrafter(ForwardDrafter):
    """Draws a chain from its own processed distribution q (arXiv 2211.17192, 2302.01318).

    The cache is rolled back to the committed tokens after each round, even if the model does not draft in the next
    round. The model then reads missing tokens before its next draft. A round with gamma 0 costs no forward of the
    drafter.
    """

    def __init__(self, runner: Runners) -> None:
        self.runner = runner
        self.draft_ids = drafted_ids(getattr(runner.model, "head", None))

    @classmethod
    def build(cls, pair: DraftingPair, values: abc.Mapping[str, Any]) -> Any:
        """See `Drafter.build`. A model with another tokenizer gives the drafter that maps its vocabulary."""
        if pair.crossing is None:
            return cls(pair.drafting(values["draft_weights"]))
        across = TliDrafter if pair.crossing.chosen(values["vocabulary"]) == TLI else SlemDrafter
        return across.build(pair, values)

    def begin(self, seq: Sequence) -> None:
        slot = seq.drafter_state[self] = self.runner.another()
        slot.read(seq.encoder_ids)
        seq.read_drafting(self, slot)

    def observe(self, seq: Sequence, round: Round) -> None:
        """Keep the cache rows of the text and of accepted drafts; drafts of another drafter may differ from them."""
        slot: Runner = seq.drafter_state[self]
        accepted = sum(1 for _ in takewhile(lambda place: place[0] == place[1], enumerate(round.path)))
        slot.crop(min(slot.length, len(seq.tokens) - len(round.emitted) + accepted))
        self._roll_back(seq)

    def room(self, seq: Sequence) -> int:
        return self.runner.window - len(seq.tokens)

    def root(self, seq: Sequence) -> StepGenerator[Tensor]:
        return (yield from request_catch_up(self._roll_back(seq), seq.tokens)).logits

    def along(self, seq: Sequence, count: int) -> StepGenerator[Tensor]:
        slot: Runner = seq.drafter_state[self]
        slot.crop(min(slot.length, len(seq.tokens) - count))
        return (yield from request_forward(slot, seq.tokens[slot.length :], rows=count)).logits

    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> StepGenerator[Tensor]:
        slot: Runner = seq.drafter_state[self]
        return (yield from request_forward(slot, tokens)).logits

    def steps_together(self, seqs: abc.Sequence[Sequence]) -> ChainSteps | None:
        slots = [self._roll_back(seq) for seq in seqs]
        if not isinstance(self.runner, SharedRunner):
            return None
        return _ModelSteps(self.runner, slots, [seq.tokens for seq in seqs])  # type: ignore[arg-type]

    def further(self, seq: Sequence, count: int) -> FurtherForwards | None:
        slot: Runner = seq.drafter_state[self]
        graphs = slot.graphs if isinstance(slot, ModelRunner) else None
        return graphs.further(count) if graphs is not None and not graphs.whole else None

    def _roll_back(self, seq: Sequence) -> Runner:
        slot: Runner = seq.drafter_state[self]
        slot.crop(min(slot.length, len(seq.tokens) - 1))
        return slot
