"""A rule on a walk: the rounds that decoding the same answer under it would have had, and what they would have cost."""

from collections.abc import Iterator
from dataclasses import replace

from egag.cost_model import CostModel
from egag.draft_distribution import RecordedDistribution
from egag.length_rule import GrowToGamma, LengthRule
from egag.rollback_price import TakenBack
from sampling.measure.metrics import RunMetrics
from sampling.measure.replay.walk import DraftWalk, PositionDraft, depth
from utils.errors import UserError
from utils.events import Finished, Prefilled, Round

Drafted = tuple[tuple[int, ...], tuple[int, ...] | None]


def replayed(
    walk: DraftWalk, rule: LengthRule, price: CostModel, *, nodes: int | None = None, bounded: bool = False
) -> RunMetrics:
    """The account of decoding the walk's answer under a fresh rule, with predicted seconds: see `rounds`."""
    return account(walk, rounds(walk, rule, price, nodes=nodes, bounded=bounded))


def account(walk: DraftWalk, made: Iterator[Round]) -> RunMetrics:
    """The account of a walk's answer in these rounds."""
    metrics = RunMetrics()
    metrics.add(Prefilled(walk.prompt_tokens, walk.prefill_s))
    for round in made:
        metrics.add(round)
    metrics.add(Finished(walk.reason, len(walk.tokens)))
    return metrics


def rounds(
    walk: DraftWalk, rule: LengthRule, price: CostModel, *, nodes: int | None = None, bounded: bool = False
) -> Iterator[Round]:
    """The rounds of the walk's answer under a fresh rule, asked as its drafter asks, each with predicted seconds.

    price: what a round costs; the rule is told it, and the seconds of each round. nodes: most nodes of a tree, the most
    likely ones. bounded: hold the rule to the drafts that the walk has; else `UserError` says where it asked for more.
    """
    rule.use_cost_model(price)
    rule.begin()
    position, number = 0, 0
    last: Round | None = None
    while position < len(walk.tokens):
        if last is not None:
            rule.update(last)
        drafts, parents = _proposed(walk, position, rule, nodes, bounded)
        last = judged(walk, number, position, rule.gamma, drafts, parents, price)
        yield last
        position += len(last.emitted)
        number += 1
    if last is not None:
        rule.update(last)


def judged(
    walk: DraftWalk,
    number: int,
    position: int,
    gamma: int,
    drafts: tuple[int, ...],
    parents: tuple[int, ...] | None,
    price: CostModel,
) -> Round:
    """The round that verifies these drafts at a position of the answer, with predicted seconds.

    What it takes back is counted as its own, though the next round would pay for it: `rollback_s`, all of it.
    """
    path = walk.path(position, drafts, parents)
    end = position + len(path)
    made = Round(
        number=number,
        position=walk.prompt_tokens + position,
        gamma=gamma,
        drafts=drafts,
        parents=parents,
        q=(1.0,) * len(drafts),
        p=tuple(float(row in path) for row in range(len(drafts))),
        path=path,
        next_token=walk.tokens[end] if end < len(walk.tokens) else None,
        entropy=walk.ahead[position].entropy if drafts else None,
        vocab_size=walk.vocab_size,
        draft_s=price.draft_s(depth(parents, len(drafts))),
        verify_s=price.verify_s(len(drafts)),
        other_s=price.rest_s,
    )
    taken_s = price.rollback_s(TakenBack.of_round(made))
    return replace(made, verify_s=made.verify_s + taken_s, rollback_s=taken_s)


def _proposed(walk: DraftWalk, position: int, rule: LengthRule, nodes: int | None, bounded: bool) -> Drafted:
    """The drafts of a round and their parents, as the walk's drafter would have come to them under the rule."""
    ahead = walk.ahead[position]
    if rule.gamma == 0 or not ahead.most:
        return (), None
    if walk.asked == "each":
        return _kept(ahead, _asked_each(walk, position, rule, bounded), rule)
    if ahead.parents is not None:
        return _tree(walk, position, rule, nodes)
    if walk.asked == "once" and not rule.before(0, _belief(ahead, 0)):
        return (), None
    if rule.gamma > len(ahead.drafts) and _unknown(walk, position) and not bounded:
        raise _beyond(walk, position, f"asked for {rule.gamma}")
    return _kept(ahead, min(rule.gamma, len(ahead.drafts)), rule)


def _asked_each(walk: DraftWalk, position: int, rule: LengthRule, bounded: bool) -> int:
    """How many drafts are drawn where the rule is asked before and after each."""
    ahead = walk.ahead[position]
    for count, token in enumerate(ahead.drafts):
        distribution = _belief(ahead, count)
        if not rule.before(count, distribution):
            return count
        # A drafter that has no more for a round, as heads of so many steps, stops before the rule is asked.
        last = count + 1 == walk.room(position) or count + 1 == len(ahead.drafts) < ahead.most
        if last or not rule.after(count + 1, distribution, token):
            return count + 1
    count = len(ahead.drafts)
    if _unknown(walk, position) and not bounded and rule.before(count, None):
        raise _beyond(walk, position, "asked for one more")
    return count


def _unknown(walk: DraftWalk, position: int) -> bool:
    """Whether there were drafts beyond those that the walk has."""
    ahead = walk.ahead[position]
    return len(ahead.drafts) == ahead.most < walk.room(position)


def _belief(ahead: PositionDraft, row: int) -> RecordedDistribution | None:
    return ahead.beliefs[row] if row < len(ahead.beliefs) else None


def _kept(ahead: PositionDraft, count: int, rule: LengthRule) -> Drafted:
    """The first drafts of a chain, after a rule that leaves out the end of what was copied behind drawn ones."""
    drawn = count if ahead.chances is None else max(0, len(ahead.drafts) - len(ahead.chances))
    if count > drawn and ahead.chances is not None:
        count = drawn + rule.truncation.truncate(ahead.chances[: count - drawn], ahead.match)
    return ahead.drafts[:count], None


def _tree(walk: DraftWalk, position: int, rule: LengthRule, nodes: int | None) -> Drafted:
    """The nodes of a tree, most likely first, as many as the rule keeps and the budget allows."""
    ahead = walk.ahead[position]
    assert ahead.parents is not None
    if rule.gamma != ahead.most:
        raise UserError(
            f"{walk.method} drafted trees for a gamma of {ahead.most}, and those for {rule.gamma} have other nodes; "
            f"expected gamma {ahead.most}, or a trace of the other one"
        )
    if not isinstance(rule.tree_growth, GrowToGamma):
        raise UserError(
            f"{walk.method}: this rule says how deep a tree is grown, and the nodes that a flatter one would have are "
            "not in the trace; expected another rule, or draft_tree chain"
        )
    if not rule.tree_growth.start_tree(_belief(ahead, 0)):
        return (), None
    count = len(ahead.drafts) if nodes is None else min(nodes, len(ahead.drafts))
    if ahead.chances is not None:
        count = rule.truncation.truncate(ahead.chances[:count], ahead.match, ahead.parents[:count])
    return ahead.drafts[:count], ahead.parents[:count]


def _beyond(walk: DraftWalk, position: int, asked: str) -> UserError:
    return UserError(
        f"{walk.method}: behind {position} tokens of the answer the rule {asked}, and the walk holds "
        f"{walk.ahead[position].most} drafts a position; expected a rule with a lower bound, or a longer walk"
    )
