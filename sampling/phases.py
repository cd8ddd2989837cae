"""The phases of a round, for one sequence or many: what can be asked of all at once is asked once.

An error in one sequence is its result, which passes through the phases behind it, and the others do not notice. Where
what is asked of all at once fails, each is asked by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from sampling import sequence
from sampling.drafter import Drafter, stepwise
from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.causal_model import Output
from sampling.forward.requests import StepGenerator, run_batched, run_single
from sampling.forward.runner import request_forward
from sampling.forward.sharing import SequenceSlot, SharedRunner
from sampling.proposal import Proposal
from sampling.scheduling.reading import Chunk, ids_of, keep_parts, read_each, read_together
from sampling.verify.verdict import Verdict
from sampling.verify.verify import RoundInput, Verification
from utils.device.sent import sent
from utils.device.spare import attempt, note_shared_failure
from utils.events import Round


def draft_all(seqs: Sequence[sequence.Sequence], drafter: Drafter) -> tuple[list[Proposal | Exception], list[float]]:
    """The drafts of the round, and the host's seconds for each sequence.

    Those that are drafted together share the time of that by their forwards.
    """
    begun = perf_counter()
    results: list[Proposal | Exception | None] = [attempt(_begin, seq) for seq in seqs]
    able = [number for number, error in enumerate(results) if error is None]
    for number, proposal in zip(able, _together([seqs[number] for number in able], drafter), strict=True):
        results[number] = proposal
    weights = [1 + len(one) if isinstance(one, Proposal) else 1 for one in results]
    share = (perf_counter() - begun) / sum(weights)
    seconds = [share * weight for weight in weights]
    rest = [number for number, result in enumerate(results) if result is None]
    asked, own_s = run_batched([_draft(seqs[number], drafter) for number in rest])
    for number, one, own in zip(rest, asked, own_s, strict=True):
        results[number] = one
        seconds[number] += own
    return [result for result in results if result is not None], seconds


def _begin(seq: sequence.Sequence) -> None:
    """The rule first learns the verdict and the times of the last round."""
    assert seq.runner.length == len(seq.tokens) - 1, "the cache holds every token but the last"
    if seq.last is not None:
        seq.rule.update(seq.last)
    seq.rng.at(seq.position)


def _together(seqs: Sequence[sequence.Sequence], drafter: Drafter) -> Sequence[Proposal | None]:
    """What the drafter proposes for many at once."""
    found = attempt(drafter.propose_together, seqs)
    if isinstance(found, Exception):
        note_shared_failure("draft", found)
        _draw_again(seqs)
        return [None] * len(seqs)
    return found


def _draw_again(seqs: Sequence[sequence.Sequence]) -> None:
    """The numbers that were drawn in this round are drawn once more."""
    for seq in seqs:
        seq.rng.at(seq.position)


def _draft(seq: sequence.Sequence, drafter: Drafter) -> StepGenerator[Proposal]:
    return (yield from stepwise(drafter.propose(seq, seq.rule, seq.room)))


_NOTHING = Output(torch.empty(0, 0))


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What the target says of each sequence's rows.

    flat: of all rows that went through one forward, one sequence's behind the other's; their states are there alone.
    starts: for each sequence where its rows begin there; -1 where it has none.
    """

    outputs: list[Output | Exception]
    flat: Output | None = None
    starts: tuple[int, ...] = ()

    def keep_states(self, seqs: Sequence[sequence.Sequence], rounds: Sequence[Round | Exception]) -> None:
        """Give each sequence the hidden states of its root and its accepted drafts, see `kept_states`."""
        if self.flat is None or not self.flat.hidden:
            return
        kept = [
            (seq, [start, *(start + 1 + row for row in round.path)])
            for seq, start, round in zip(seqs, self.starts, rounds, strict=True)
            if not isinstance(round, Exception)
        ]
        if kept:
            rows = sent([row for _, mine in kept for row in mine], seqs[0].device)
            counts = [len(mine) for _, mine in kept]
            parts = {layer: states.index_select(0, rows).split(counts) for layer, states in self.flat.hidden.items()}
            for number, (seq, _) in enumerate(kept):
                seq.hidden = {layer: states[number] for layer, states in parts.items()}


def forward_all(
    seqs: Sequence[sequence.Sequence],
    proposals: Sequence[Proposal | Exception],
    hidden: Sequence[int],
    chunks: Sequence[Chunk] = (),
) -> Forwarded:
    """The target's forward over the last token and the n drafts of each sequence: n + 1 rows.

    chunks: parts of prompts of other sequences, which the same forward reads. All have slots of one model then.
    """
    if (owner := _owner(seqs)) is not None:
        return _forward_flat(owner, seqs, proposals, hidden, chunks)
    outputs, _ = run_batched([attempt(_forward, *each, hidden) for each in zip(seqs, proposals, strict=True)])
    return Forwarded(outputs)


def _forward(seq: sequence.Sequence, proposal: Proposal, hidden: Sequence[int]) -> StepGenerator[Output]:
    last = seq.tokens[-1:]
    tokens = torch.cat([sent(last, seq.device), proposal.tokens]) if len(proposal) else last
    return (yield from request_forward(seq.runner, tokens, proposal.parents, hidden))


def _owner(seqs: Sequence[sequence.Sequence]) -> SharedRunner | None:
    """The model that all sequences share; None where each has a runner of its own."""
    owners = [seq.runner.owner if isinstance(seq.runner, SequenceSlot) else None for seq in seqs]
    return owners[0] if all(owner is owners[0] for owner in owners) else None


def _forward_flat(
    owner: SharedRunner,
    seqs: Sequence[sequence.Sequence],
    proposals: Sequence[Proposal | Exception],
    hidden: Sequence[int],
    chunks: Sequence[Chunk],
) -> Forwarded:
    """One forward over the rows of all sequences and behind them those of prompts; ids and layout travel together."""
    outputs, fine = list[Output | Exception](), list[tuple[int, QueryRows, Tensor]]()
    for number, each in enumerate(zip(seqs, proposals, strict=True)):
        laid = attempt(_laid, *each)
        outputs.append(laid if isinstance(laid, Exception) else _NOTHING)
        if not isinstance(laid, Exception):
            fine.append((number, *laid))
    if not fine:
        read_together(chunks, hidden)
        return Forwarded(outputs)
    numbers, rows, drafts = zip(*fine, strict=True)
    roots = [seqs[number].tokens[-1] for number in numbers]
    whole = attempt(lambda: _run(owner, rows, _roots_and_drafts(roots, drafts, owner.device), hidden, chunks))
    if isinstance(whole, Exception):
        note_shared_failure("forward", whole)
        read_each(chunks, hidden)
        return Forwarded([attempt(_forward_alone, *each, hidden) for each in zip(seqs, proposals, strict=True)])
    starts, start = [-1] * len(seqs), 0
    for number, logits in zip(numbers, whole.logits.split([feed.count for feed in rows]), strict=True):
        outputs[number], starts[number] = Output(logits), start
        start += logits.shape[0]
    return Forwarded(outputs, whole, tuple(starts))


def _run(
    owner: SharedRunner, rows: Sequence[QueryRows], ids: Tensor, hidden: Sequence[int], chunks: Sequence[Chunk]
) -> Output:
    """The forward. It has logits of the rounds alone, and the prompts keep their own states."""
    if not chunks:
        return owner.run_flat(rows, ids, hidden)
    read = [chunk.reading.slot.prompt_rows(chunk.count) for chunk in chunks]
    wanted = [*(feed.count for feed in rows), *[0] * len(read)]
    whole = owner.run_flat([*rows, *read], torch.cat([ids, ids_of(chunks, owner.device)]), hidden, wanted)
    keep_parts(chunks, whole.hidden)
    return whole


def _forward_alone(seq: sequence.Sequence, proposal: Proposal, hidden: Sequence[int]) -> Output:
    """A forward over the rows of one sequence, whose result outlives the next one."""
    output = run_single(_forward(seq, proposal, hidden))
    return Output(output.logits.clone(), {layer: states.clone() for layer, states in output.hidden.items()})


def _laid(seq: sequence.Sequence, proposal: Proposal) -> tuple[QueryRows, Tensor]:
    """The rows of a sequence, and its drafts."""
    assert isinstance(seq.runner, SequenceSlot)
    return seq.runner.rows(1 + len(proposal), proposal.parents), proposal.tokens


def _roots_and_drafts(roots: Sequence[int], drafts: Sequence[Tensor], device: torch.device) -> Tensor:
    """Each root with its drafts behind it, `[N]`; the roots and the order are sent at once."""
    counts = [one.shape[0] for one in drafts]
    if not any(counts):
        return sent(roots, device)
    order, behind = list[int](), len(roots)
    for number, count in enumerate(counts):
        order.append(number)
        order.extend(range(behind, behind + count))
        behind += count
    there = sent([*roots, *order], device)
    return torch.cat([there[: len(roots)], *drafts]).index_select(0, there[len(roots) :])


def judge_all(
    seqs: Sequence[sequence.Sequence],
    proposals: Sequence[Proposal | Exception],
    forwarded: Forwarded,
    verification: Verification,
) -> list[Verdict | Exception]:
    """Verify the drafts of all sequences with the target's logits, which are read once."""
    inputs = [attempt(_input, *each) for each in zip(seqs, proposals, forwarded.outputs, strict=True)]
    feeds = [one for one in inputs if not isinstance(one, Exception)]
    lie_flat = all(seq.changes is None for seq in seqs) and len(feeds) == sum(start >= 0 for start in forwarded.starts)
    flat = forwarded.flat.logits if forwarded.flat is not None and lie_flat else None
    verdicts = iter(_verdicts(feeds, flat, verification) if feeds else ())
    return [one if isinstance(one, Exception) else next(verdicts) for one in inputs]


def _verdicts(
    feeds: Sequence[RoundInput], flat: Tensor | None, verification: Verification
) -> Sequence[Verdict | Exception]:
    found = attempt(verification.run, feeds, flat)
    if not isinstance(found, Exception):
        return found
    note_shared_failure("verification", found)
    _draw_again([feed.seq for feed in feeds])
    alone = [attempt(verification.run, [feed]) for feed in feeds]
    return [one if isinstance(one, Exception) else one[0] for one in alone]


def _input(seq: sequence.Sequence, proposal: Proposal, output: Output) -> RoundInput:
    logits = output.logits if seq.changes is None else seq.changes.of_round(seq.tokens, proposal, output.logits)
    return RoundInput(seq, proposal, logits)


def observe_all(
    seqs: Sequence[sequence.Sequence], rounds: Sequence[Round | Exception], drafter: Drafter
) -> list[Round | Exception]:
    """The rounds, from which the drafter has learnt; in place of one the error of learning from it."""
    fine = [(seq, round) for seq, round in zip(seqs, rounds, strict=True) if not isinstance(round, Exception)]
    learnt = attempt(drafter.observe_together, [seq for seq, _ in fine], [round for _, round in fine])
    if isinstance(learnt, Exception):
        note_shared_failure("lesson", learnt)
        learnt = [attempt(drafter.observe, *each) for each in fine]
    errors = iter(learnt)
    return [round if isinstance(round, Exception) else next(errors) or round for round in rounds]
