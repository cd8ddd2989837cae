"""A drafter model with another tokenizer, which draws from the tokens that both vocabularies share."""

import torch
from torch import Tensor

from sampling.drafters.crossings.crossing_drafter import CrossingDrafter
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.forward.requests import StepGenerator
from sampling.forward.runner import Runners
from sampling.sequence import Sequence
from sampling.vocabularies.crossing import Crossing
from sampling.vocabularies.own_text import OwnText
from utils.events import Round


class TliDrafter(CrossingDrafter, ForwardDrafter):
    """Token-level intersection (arXiv 2502.05202, section 4): q over the shared tokens, renormalised.

    The drafter's logits of shared tokens are placed at the target's ids. All other ids have the lowest finite logit.
    The processor turns these logits into the distribution that drafts are drawn from, so rejection sampling has its q.
    The text is read in the drafter's own tokens; drafts are fed without re-encoding.
    """

    def __init__(self, runner: Runners, crossing: Crossing) -> None:
        super().__init__(runner, crossing)
        device = runner.model.device
        self._target, self._own = crossing.shared(device)
        self._own_of = torch.zeros(crossing.target.rows, dtype=torch.long, device=device)
        self._own_of[self._target] = self._own

    def observe(self, seq: Sequence, round: Round) -> None:
        """Keep the cache rows of accepted drafts; drafts of another drafter may differ from them."""
        accepted = [round.drafts[row] for place, row in enumerate(round.path) if place == row]
        text: OwnText = seq.drafter_state[self]
        text.keep([self.crossing.own_of[number] for number in accepted if number in self.crossing.own_of])

    def room(self, seq: Sequence) -> int:
        text: OwnText = seq.drafter_state[self]
        return text.room(seq.tokens)

    def root(self, seq: Sequence) -> StepGenerator[Tensor]:
        text: OwnText = seq.drafter_state[self]
        return self._crossed((yield from text.request_catch_up(seq.tokens)))

    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> StepGenerator[Tensor]:
        text: OwnText = seq.drafter_state[self]
        return self._crossed((yield from text.feed(self._own_of[tokens.to(self._own_of.device)])))

    def _crossed(self, logits: Tensor) -> Tensor:
        """Logits over the target's ids `[k, V]`, from logits over the drafter's ids."""
        lowest = torch.finfo(logits.dtype).min
        empty = logits.new_full((logits.shape[0], self.crossing.target.rows), lowest)
        return empty.index_copy_(1, self._target, logits.index_select(1, self._own))
