"""A walk along one answer: what a drafter would have drafted at each of its positions, and with which beliefs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from egag.draft_distribution import RecordedDistribution
from egag.rollback_price import NOTHING_TAKEN, TakenBack
from sampling.methods.tables import METHODS
from utils.errors import UserError
from utils.events import Finished, FinishReason, Prefilled, Round

if TYPE_CHECKING:
    from sampling.logits_probe import ObservedRound
    from sampling.pair.local_engine import LocalEngine

DRAFTS, NODES = 8, 24
"""Drafts of a chain, and nodes of a head's tree, that a walk makes at a position where the settings ask for no more."""

UNKNOWN = -1
"""In place of a draft that is known to be wrong and no more."""

Asking = Literal["each", "once", "never"]


@dataclass(frozen=True, slots=True)
class PositionDraft:
    """What was drafted at one position: the drafts, a belief for each where there was one, parents of a tree.

    most: how many were asked for; fewer are there where the drafter had no more. chances: that a draft and all before
    it are right, as the drafter told it; None where it did not. match: tokens of the text that a copy was found by.
    entropy: nats, of the drafter's raw distribution for the first draft; None where there is none.
    """

    drafts: tuple[int, ...] = ()
    beliefs: tuple[RecordedDistribution | None, ...] = ()
    parents: tuple[int, ...] | None = None
    most: int = DRAFTS
    chances: tuple[float, ...] | None = None
    match: int = 0
    entropy: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one round that was run: what was verified, how many steps its drafting had, where the time went.

    paid: what earlier rounds took back, which its forward paid for. left: what it took back itself.
    """

    nodes: int
    steps: int
    draft_s: float
    verify_s: float
    other_s: float
    paid: TakenBack = NOTHING_TAKEN
    left: TakenBack = NOTHING_TAKEN


@dataclass(frozen=True, slots=True)
class DraftWalk:
    """One answer under greedy decoding and what a method's drafter proposes at each of its positions.

    tokens: the answer. ahead: one a token, `ahead[i]` behind `tokens[:i]`. prompt_tokens: length of the prompt.
    asked: whether the drafter asks its rule for each draft, once a round, or only reads its gamma. samples: rounds
    that were run on this prompt, for what they took.
    """

    method: str
    values: Mapping[str, Any]
    prompt_tokens: int
    tokens: tuple[int, ...]
    reason: FinishReason
    ahead: tuple[PositionDraft, ...]
    asked: Asking = "each"
    vocab_size: int = 0
    prefill_s: float = 0.0
    samples: tuple[Sample, ...] = field(default=(), repr=False)

    @property
    def trees(self) -> bool:
        """Whether trees were drafted."""
        return any(draft.parents is not None for draft in self.ahead)

    def room(self, position: int) -> int:
        """Most drafts that a round may accept there: it adds one token of the target's own."""
        end = int(self.values["length"]) if self.reason == "stop" else len(self.tokens)
        return end - position - 1

    def path(self, position: int, drafts: Sequence[int], parents: Sequence[int] | None) -> tuple[int, ...]:
        """The rows of the drafts that are accepted at a position: those that the answer goes on with."""
        path: list[int] = []
        end = -1
        above = range(-1, len(drafts) - 1) if parents is None else parents
        for row, (token, parent) in enumerate(zip(drafts, above, strict=True)):
            at = position + len(path)
            if parent == end and at < len(self.tokens) and token == self.tokens[at]:
                path.append(row)
                end = row
        return tuple(path)

    def hits(self, position: int) -> int:
        """How many of all drafts there are accepted."""
        ahead = self.ahead[position]
        return len(self.path(position, ahead.drafts, ahead.parents))


def depth(parents: Sequence[int] | None, count: int) -> int:
    """Steps that drafting so many took: the depth of a tree, the length of a chain."""
    if parents is None:
        return count
    deep: list[int] = []
    for parent in parents:
        deep.append(1 if parent < 0 else deep[parent] + 1)
    return max(deep, default=0)


def sample(
    drafts: Sequence[int], parents: Sequence[int] | None, draft_s: float, verify_s: float, other_s: float
) -> Sample:
    """What a round with these drafts took; where there are none, looking for some is part of the rest."""
    if not drafts:
        return Sample(0, 0, 0.0, verify_s, other_s + draft_s)
    return Sample(len(drafts), depth(parents, len(drafts)), draft_s, verify_s, other_s)


def sample_of(round: Round) -> Sample:
    """What a round that was run took."""
    took = sample(round.drafts, round.parents, round.draft_s, round.verify_s, round.other_s)
    return replace(took, paid=TakenBack.paid_by(round), left=TakenBack.of_round(round))


def most_drafts(method: str, values: Mapping[str, Any]) -> int:
    """How many drafts a walk asks for: `DRAFTS` or what the settings say, if that is more; of trees what they say."""
    names = {parameter.name for parameter in METHODS[method].relevant(values)}
    largest = max((values[name] for name in ("gamma", "num_speculative_tokens") if name in names), default=DRAFTS)
    return int(largest) if METHODS[method].drafts_trees(values) else max(DRAFTS, int(largest))


def walked_values(method: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a walk is made with: trees have `NODES` or more, of which smaller ones are the beginning."""
    if METHODS[method].drafts_trees(values) and "tree_tokens" in values:
        return {**values, "tree_tokens": max(NODES, values["tree_tokens"])}
    return dict(values)


def walk(
    engine: "LocalEngine",
    method: str,
    values: Mapping[str, Any],
    prompt: Sequence[int],
    most: int | None = None,
    run: str | None = None,
) -> DraftWalk:
    """Walk along the target's own answer to `prompt` (ids), which costs a draft of `most` and a forward a token.

    The text need not have been generated; nothing is learnt from it. run: whose memory of earlier prompts is drafted
    from, as in `Engine.stream`. Raises `UserError` where the method drafts nothing or cannot run, and for another
    processor than greedy: what was drawn at positions that were not visited is not known.
    """
    if not METHODS[method].drafts:
        raise UserError(f"{method} drafts nothing to walk along; expected a method with a drafter")
    if values["processor"].name != "greedy":
        raise UserError(f"a walk along an answer given under {values['processor'].name}; expected greedy")
    return _collected(method, values, *_steps(engine, method, values, prompt, most, run))


def _steps(
    engine: "LocalEngine",
    method: str,
    values: Mapping[str, Any],
    prompt: Sequence[int],
    most: int | None,
    run: str | None,
) -> tuple[list["Round | Prefilled | Finished"], list["ObservedRound"], int]:
    """The events, what was seen of each round, and how many drafts were asked for."""
    from sampling.logits_probe import LogitsProbe

    raw, asked = LogitsProbe(), most_drafts(method, values) if most is None else most
    events: list[Round | Prefilled | Finished] = []
    seen: list[ObservedRound] = []
    for event in engine.walked(method, walked_values(method, values), prompt, asked, raw, run):
        assert isinstance(event, Round | Prefilled | Finished)
        events.append(event)
        if isinstance(event, Round):
            seen.append(raw.take())
    return events, seen, asked


def _collected(
    method: str,
    values: Mapping[str, Any],
    events: Sequence[Round | Prefilled | Finished],
    seen: Sequence["ObservedRound"],
    most: int,
) -> DraftWalk:
    first, *made, last = events
    assert isinstance(first, Prefilled) and isinstance(last, Finished)
    took = [event for event in made if isinstance(event, Round)]
    return DraftWalk(
        method=method,
        values=dict(values),
        prompt_tokens=first.prompt_tokens,
        tokens=tuple(token for round in took for token in round.emitted),
        reason=last.reason,
        ahead=tuple(ahead(round, visit, most) for round, visit in zip(took, seen, strict=True)),
        asked=how_asked(visit.steps for visit in seen),
        vocab_size=took[0].vocab_size if took else 0,
        prefill_s=first.prefill_s,
        samples=tuple(map(sample_of, took)),
    )


def how_asked(steps: Iterable[int]) -> Asking:
    """From the steps that a rule was asked for in each round, -1 where it was not asked."""
    furthest = max(steps, default=-1)
    return "never" if furthest < 0 else "each" if furthest else "once"


def ahead(round: Round, seen: "ObservedRound", most: int) -> PositionDraft:
    """What was drafted in a round with what was seen of it."""
    return PositionDraft(
        drafts=round.drafts,
        beliefs=beliefs(round, seen),
        parents=round.parents,
        most=most,
        chances=seen.chances,
        match=seen.match,
        entropy=round.entropy,
    )


def beliefs(round: Round, seen: "ObservedRound") -> tuple[RecordedDistribution | None, ...]:
    """The drafter's belief for each draft of a chain; for the first of a tree; none where nobody was asked with one."""
    import torch

    from egag.entropy import entropy

    logits = seen.drafter[: len(round.drafts) if round.parents is None else 1]
    distributions: list[RecordedDistribution | None] = []
    for token, row in zip(round.drafts, logits, strict=False):
        if row is None:
            distributions.append(None)
            continue
        probs = torch.softmax(row.float(), dim=-1)
        figures = torch.stack([entropy(row).float(), probs.max(), probs[token]]).tolist()
        distributions.append(RecordedDistribution(row.shape[-1], figures[0], figures[1], token, figures[2]))
    return tuple(distributions)
