"""A drafter model with another tokenizer, whose drafts are re-encoded as text with the target's tokenizer."""

import torch
from torch import Tensor

from egag.draft_distribution import LogitsDistribution
from egag.length_rule import LengthRule
from sampling.drafters.crossings.crossing_drafter import CrossingDrafter
from sampling.drafters.drawing import BEST
from sampling.forward.requests import ForwardRequest, StepGenerator
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.vocabularies.own_text import OwnText
from utils.device.sent import sent
from utils.events import Round
from utils.logits_processor import one_if_finite


class SlemDrafter(CrossingDrafter):
    """String-level exact match (arXiv 2502.05202, section 3): drafts are point masses, also under sampling.

    The drafter's most probable tokens become text, and the text becomes tokens of the target. Each is accepted with its
    probability under the target. The re-encoding depends on the text alone, and nothing is drawn. The rule is asked for
    each of the drafter's own tokens. Its gamma bounds their number and the number of the target's tokens. The drafter's
    ids are read once per round, after its last forward. The entropy of the first draft is not recorded, because it
    belongs to another vocabulary.
    """

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        text: OwnText = seq.drafter_state[self]
        room = min(limit, text.room(seq.tokens))
        if room <= 0 or gamma.gamma == 0:
            return Proposal.empty(seq.device)
        logits = yield from text.request_catch_up(seq.tokens)
        drafted: list[Tensor] = []
        best: list[Tensor] = []
        while gamma.before(len(drafted), distribution := LogitsDistribution(logits[0])):
            token, chance = yield ForwardRequest(BEST, logits)
            drafted.append(token)
            best.append(chance)
            if len(drafted) == room or not gamma.after(len(drafted), distribution, token[0]):
                break
            logits = yield from text.feed(token)
        if not drafted:
            return Proposal.empty(seq.device)
        ids = torch.cat(drafted).tolist()
        text.keep(ids)  # the next read of the text drops the rows of rejected drafts
        tokens = self.crossing.continued(text.word(seq.tokens), ids)[: min(limit, gamma.gamma)]
        chance = one_if_finite(torch.cat(best)).min().to(seq.device)
        return Proposal(sent(tokens, seq.device), None, None, None, chance.expand(len(tokens)))

    def observe(self, seq: Sequence, round: Round) -> None:
        """Nothing: the next read of the text compares its tokens with the cache."""
