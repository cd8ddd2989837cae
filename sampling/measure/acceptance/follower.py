"""A drafter led along a text as if plain decoding wrote it: it knows the text so far, and no rejected draft."""

from collections.abc import Collection, Iterator
from typing import cast

import torch
from torch import Tensor

from egag.length_rule import FixedGamma
from sampling.drafter import Drafter, proposal_of
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.forward.requests import run_single
from sampling.forward.runner import WholeRunner
from sampling.measure.acceptance.met import Met
from sampling.measure.acceptance.reading import GivenText
from sampling.measure.acceptance.target_rows import TargetRows
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.start import begin
from utils.errors import UserError
from utils.events import Round
from utils.logits_processor import LogitsProcessor


class Follower:
    """The sequence of one text, which a drafter reads. layers: see `FedDrafter`."""

    def __init__(
        self,
        drafter: Drafter,
        target: WholeRunner,
        processor: LogitsProcessor,
        stop: Collection[int],
        seed: int,
        depth: int,
    ) -> None:
        self.drafter, self.layers = drafter, drafter.needs_hidden
        self._target, self._processor, self._stop, self._seed = target.another(), processor, stop, seed
        self._depth = depth

    def begin(self, text: GivenText) -> None:
        """Another text, whose blocks follow in order."""
        room = min(len(text.answer) + self._depth + 1, self._target.window - len(text.prompt))
        rule = FixedGamma(self._depth)
        self._seq = begin(self._target, rule, self._processor, text.prompt, room, self._stop, self._seed)
        self._begun = False

    def places(self, block: TargetRows) -> Iterator[tuple[int, Sequence]]:
        """Each place of a block with the sequence behind the text before it."""
        if not self._begun:
            self._seq.hidden = self._states(block, slice(0, len(block.text.prompt) - 1))
            self.drafter.begin(self._seq)
            self._begun = True
        for place in range(block.start, block.stop):
            self._seq.rng.at(self._seq.position)
            yield place, self._seq
            self._commit(block, place)

    def _states(self, block: TargetRows, positions: slice) -> dict[int, Tensor]:
        return {layer: block.states[layer][positions] for layer in self.layers}

    def _commit(self, block: TargetRows, place: int) -> None:
        """The text's token, as a round without drafts gives it."""
        seq, token, at = self._seq, block.text.answer[place], len(block.text.prompt) + place
        round = Round(place, seq.position, self._depth, (), None, (), (), (), token, None, seq.runner.vocab_size)
        seq.tokens.append(token)
        seq.rounds += 1
        seq.logits = block.logits[place - block.start : place - block.start + 1]
        seq.hidden = self._states(block, slice(at - 1, at))
        self.drafter.observe(seq, round)


class FedOneByOne:
    """A drafter that goes token by token, fed the text's own: `FedDrafter` for what has no faster way."""

    by_tokens = False

    def __init__(self, follower: Follower) -> None:
        assert isinstance(follower.drafter, ForwardDrafter)
        self._follower, self.layers = follower, follower.layers

    def begin(self, text: GivenText) -> None:
        """See `FedDrafter`."""
        self._follower.begin(text)

    def rows(self, block: TargetRows, depth: int) -> Iterator[Tensor]:
        """See `FedDrafter`."""
        chains = [self._chain(block, place, seq, depth) for place, seq in self._follower.places(block)]
        for place in range(depth):
            rows = [chain[place] for chain in chains if len(chain) > place]
            if not rows:
                return
            yield torch.cat(rows)

    def _chain(self, block: TargetRows, place: int, seq: Sequence, depth: int) -> list[Tensor]:
        """Logits `[1, V]` at each depth behind one place."""
        drafter = cast(ForwardDrafter, self._follower.drafter)
        most = min(depth, drafter.room(seq), len(block.text.answer) - place)
        if most <= 0:
            return []
        rows = [run_single(drafter.root(seq)).clone()]
        for token in block.text.answer[place : place + most - 1]:
            rows.append(run_single(drafter.feed(seq, torch.tensor([token], device=seq.device))).clone())
        return rows


def meet_own(met: Met, block: TargetRows, follower: Follower) -> None:
    """Enter what a drafter meets whose drafts follow its own: copies, trees and hybrids.

    Raises `UserError` for drafts that were drawn, whose chance no single draw tells.
    """
    for place, seq in follower.places(block):
        proposal = proposal_of(follower.drafter.propose(seq, seq.rule, seq.room))
        if proposal.draft_probs is not None and block.probs is not None:
            raise UserError(
                "under sampling these drafts are drawn, and one draw does not tell the chance of others; "
                "expected greedy, copies, or a drafter model or head alone"
            )
        _along(met, block, place, proposal)


def _along(met: Met, block: TargetRows, place: int, proposal: Proposal) -> None:
    """The path of the text through a proposal; what it leaves out is not known."""
    tokens, parents, node = proposal.tokens.tolist(), proposal.parent_rows, -1
    for depth in range(met.depth):
        at = place + depth
        if at >= met.places:
            return
        children = {token: row for row, token in enumerate(tokens) if parents[row] == node}
        said = block.text.answer[at]
        met.drafted[place, depth] = bool(children)
        masses = _masses(block, at, (*children, said))
        met.accept[place, depth] = min(1.0, sum(masses[token] for token in children))
        met.follow[place, depth] = float(said in children) if masses[said] else float("nan")
        if said not in children or not masses[said]:
            met.accept[place, depth + 1 :] = float("nan")
            return
        node = children[said]


def _masses(block: TargetRows, place: int, tokens: Collection[int]) -> dict[int, float]:
    """The target's probability of each token at a place."""
    row = place - block.start
    if block.probs is None:
        best = int(block.best[row])
        return {token: float(token == best) for token in tokens}
    return {token: float(block.probs[row, token]) for token in tokens}
