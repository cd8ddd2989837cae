"""The record of a round, made from a proposal and its verdict."""

from collections.abc import Collection
from dataclasses import replace

from sampling.forward.models.experts import experts_of
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.verify.verdict import Verdict
from utils.events import Round


def make_round(seq: Sequence, proposal: Proposal, verdict: Verdict) -> Round:
    """The round of a proposal and its verdict. Drafts after an accepted stop token are left out, as if not tested.

    Raises `CannotContinue` where the grammar left no token for the next one.
    """
    rollback_s, reread = seq.rollback()
    grammar = None if seq.changes is None else seq.changes.grammar
    if grammar is not None:
        grammar.check(verdict.path)
    round = Round(
        number=seq.rounds,
        position=seq.position,
        gamma=seq.rule.gamma,
        drafts=verdict.drafts,
        parents=verdict.parents,
        q=verdict.q,
        p=verdict.p,
        path=verdict.path,
        next_token=verdict.token,
        entropy=verdict.entropy,
        vocab_size=seq.runner.vocab_size,
        inner=proposal.inner,
        source=proposal.source,
        rollback_s=rollback_s,
        reread=reread,
        experts=experts_of(seq.runner.model),
        grammar_s=0.0 if grammar is None else seq.grammar_s(),
    )
    return _cut(round, seq.stop)


def _cut(round: Round, stop: Collection[int]) -> Round:
    """The round up to an accepted stop token."""
    for place, row in enumerate(round.path):
        if round.drafts[row] in stop:
            return replace(round, path=round.path[: place + 1], next_token=None)
    return round
