"""decode(): the decode loop of one sequence. Autoregression is the empty proposal; a method is what fills it.

A round is three functions, which know nothing of who drives them: `propose`, `judged`, `commit`. The driver of many
sequences (`sampling/batch.py`) calls the same three.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from egag.length_rule import LengthRule
from sampling import sequence
from sampling.arguments import check_generation, check_kinds, check_not_empty, check_room
from sampling.drafter import Drafter
from sampling.forward.runner import Output, Runner
from sampling.forward.tree import is_chain
from sampling.handover import Handover, prefilled, read_in
from sampling.judge import Judge
from sampling.proposal import Proposal
from sampling.verifier import Verdict, Verifier
from utils.coins import Draws
from utils.events import Event, Finished, FinishReason, Round
from utils.logits_processor import LogitsProcessor
from utils.sent import sent
from utils.timing import PhaseClock
from utils.token_ids import Ids, OneOrMore, known, one_or_more, token_ids


@torch.inference_mode()
def decode(
    target: Runner,
    drafter: Drafter,
    gamma: LengthRule,
    verifier: Verifier,
    processor: LogitsProcessor,
    prompt: Ids,
    *,
    max_new_tokens: int,
    stop: OneOrMore = (),
    seed: int,
    handover: Handover | None = None,
) -> Iterator[Event]:
    """Generate after `prompt` (token ids): one `Prefilled`, a `Round` a round, one `Finished`.

    A decoder-only model's text begins with the prompt. An encoder reads the prompt once, and the text is the
    decoder's: what a checkpoint has it begin with, then the output.

    The clock stands still while the consumer holds an event, and the sequence is whole at every yield: a
    consumer may stop at any of them. What is drawn follows from
    `seed` and the prompt. A runner holds one text at a time; another
    one needs `target.another()`. handover: what the prompt left where it was read before, in place of reading it.

    Raises `UserError` for an empty prompt, a prompt that leaves no room in the context window, ids that the target does
    not know, fewer than one new token, a part of another kind, and once another text was begun on the runner.
    """
    check_kinds(target=target, drafter=drafter, gamma=gamma, verifier=verifier, processor=processor)
    check_kinds(max_new_tokens=max_new_tokens, seed=seed)
    ids = known("prompt", token_ids("prompt", prompt), target.vocab_size)
    check_not_empty(ids)
    stop = frozenset(one_or_more("stop", stop))
    clock = PhaseClock(target.device)
    clock.start()
    seq = begin(target, gamma, processor, ids, max_new_tokens, stop, seed)
    generation = target.generation
    judging = Judge(target, verifier, processor)
    seq.hidden = read_in(target, seq.tokens, drafter.needs_hidden, handover)
    clock.lap("prefill")
    drafter.begin(seq)
    clock.lap("draft")
    yield prefilled(len(ids), clock.stop(), handover)

    while seq.reason is None:
        check_generation(target, generation)
        clock.start()
        proposal = propose(seq, drafter)
        clock.lap("draft")
        output = target.forward(fed(seq, proposal), proposal.parents, drafter.needs_hidden)
        clock.lap("verify")
        round = judged(seq, proposal, judging(proposal, output.logits, seq.draws))
        commit(seq, round, output)
        clock.lap("other")
        learn(seq, drafter, round)
        clock.lap("draft")
        seq.last = timed(round, clock.stop())
        yield seq.last
    if seq.last is not None:
        gamma.update(seq.last)
    yield Finished(seq.reason, seq.new_tokens)


def propose(seq: sequence.Sequence, drafter: Drafter) -> Proposal:
    """The round's drafts."""
    prepare(seq)
    return drafter.propose(seq, seq.control, seq.room)


def prepare(seq: sequence.Sequence) -> None:
    """Begin a round. The rule first learns what the last one brought and what it took."""
    assert seq.slot.length == len(seq.tokens) - 1, "the cache holds every token but the last"
    if seq.last is not None:
        seq.control.update(seq.last)
    seq.draws.at(seq.position)


def judged(seq: sequence.Sequence, proposal: Proposal, verdict: Verdict) -> Round:
    """The round that a verdict makes of a proposal; nothing has changed yet."""
    round = Round(
        number=seq.rounds,
        position=seq.position,
        gamma=seq.control.gamma,
        drafts=verdict.drafts,
        parents=verdict.parents,
        q=verdict.q,
        p=verdict.p,
        path=verdict.path,
        next_token=verdict.token,
        entropy=verdict.entropy,
        vocab_size=seq.slot.vocab_size,
        inner=proposal.inner,
        source=proposal.source,
    )
    return _cut(round, seq.stop)


def commit(seq: sequence.Sequence, round: Round, output: Output) -> None:
    """Make the round part of the sequence: its tokens, its rows of the cache, whether it is over."""
    base = len(seq.tokens) - 1
    seq.slot.keep(base, round.path)
    seq.slot.crop(base + len(round.emitted))
    seq.tokens.extend(round.emitted)
    seq.rounds += 1
    seq.logits = output.logits
    seq.hidden = _kept(output.hidden, round.path, seq.device)
    seq.reason = _reason(seq)


def _kept(hidden: Mapping[int, Tensor], path: Sequence[int], device: torch.device) -> dict[int, Tensor]:
    """The states of the root and the accepted drafts; an output of the target holds until its next forward."""
    if is_chain(path):
        return {layer: states[: len(path) + 1].clone() for layer, states in hidden.items()}
    rows = sent([0, *(row + 1 for row in path)], device)
    return {layer: states.index_select(0, rows) for layer, states in hidden.items()}


def learn(seq: sequence.Sequence, drafter: Drafter, round: Round) -> None:
    """Let the drafter learn from a committed round."""
    drafter.observe(seq, round)
    if seq.reason is not None:
        release_rows(seq)
        drafter.finish(seq)
        seq.drafting.clear()


def release_rows(seq: sequence.Sequence) -> None:
    """Give up the rows of models that drafters keep for a text that is over."""
    for drafter in [drafter for drafter in seq.drafting if drafter.keeps_rows]:
        del seq.drafting[drafter]


def begin(
    target: Runner,
    gamma: LengthRule,
    processor: LogitsProcessor,
    prompt: Sequence[int],
    max_new_tokens: int,
    stop: Collection[int],
    seed: int,
) -> sequence.Sequence:
    """A sequence whose prompt was read, by an encoder where there is one, and is not in the cache yet."""
    reading = target.read(prompt)
    check_room(target, reading.tokens, max_new_tokens)
    gamma.begin()
    tokens, encoder_ids = list(reading.tokens), reading.encoder_ids
    return sequence.Sequence(tokens, target, processor, Draws(seed, prompt), gamma, max_new_tokens, stop, encoder_ids)


def fed(seq: sequence.Sequence, proposal: Proposal) -> Tensor:
    """What the target reads in a round: the last token and the drafts, `[n + 1]`."""
    return torch.cat([sent(seq.tokens[-1:], seq.device), proposal.tokens])


def timed(round: Round, seconds: Mapping[str, float]) -> Round:
    """The round with the time of its phases."""
    return replace(round, draft_s=seconds["draft"], verify_s=seconds["verify"], other_s=seconds["other"])


def _cut(round: Round, stop: Collection[int]) -> Round:
    """The round without what follows an accepted stop token: those positions count as not tested."""
    for place, row in enumerate(round.path):
        if round.drafts[row] in stop:
            return replace(round, path=round.path[: place + 1], next_token=None)
    return round


def _reason(seq: sequence.Sequence) -> FinishReason | None:
    if seq.tokens[-1] in seq.stop:
        return "stop"
    if len(seq.tokens) < seq.end:
        return None
    return "length" if seq.new_tokens == seq.max_new_tokens else "context"
