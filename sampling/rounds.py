"""The record of a round, made from a proposal and its verdict, and what each of many texts pays of its time."""

from collections.abc import Collection, Iterator
from collections.abc import Sequence as ListOf
from dataclasses import replace

from egag.cost_model import CostModel
from sampling.forward.models.experts import experts_of
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.verify.verdict import Verdict
from utils.device.timing import CAPTURE
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


def shares_of(
    rounds: ListOf[Round | Exception], seconds: dict[str, float], drafting: ListOf[float], plain: CostModel
) -> Iterator[dict[str, float]]:
    """Each sequence's share of the seconds of a round.

    Drafting is shared by the host time of each sequence, the target's forward by the predicted cost of its drafts.
    With equal shares every sequence would pay for the drafts of the others, and drafts would look free.
    """
    drafts = [0 if isinstance(round, Exception) else len(round.drafts) for round in rounds]
    price = plain.among(len(rounds)) if rounds else plain
    verify_s = {count: price.verify_s(count) for count in set(drafts)}
    rows = [verify_s[count] for count in drafts]
    all_rows, all_drafting = sum(rows), sum(drafting) or 1.0
    for own_rows, own_drafting in zip(rows, drafting, strict=True):
        yield {
            "draft": seconds["draft"] * own_drafting / all_drafting,
            "verify": seconds["verify"] * own_rows / all_rows,
            "other": seconds["other"] / len(rounds),
            CAPTURE: seconds[CAPTURE] / len(rounds),
        }
