"""The decode loop: draft, forward, verify, commit. `decode()` runs it on one text, `sampling/batch.py` on many.

An empty proposal is plain autoregression. Methods differ only in the proposals that they make.
"""

from collections.abc import Iterator, Sequence

import torch

from egag.length_rule import LengthRule
from sampling import sequence
from sampling.arguments import check_generation, check_kinds, check_not_empty
from sampling.drafter import Drafter
from sampling.forward.causal_model import Output
from sampling.forward.prefixes.use import Prefixes
from sampling.forward.runner import Runner
from sampling.handover import Handover, prefilled, read_in
from sampling.phases import draft_all, forward_all, judge_all, observe_all
from sampling.proposal import Proposal
from sampling.rounds import make_round
from sampling.scheduling.reading import Chunk
from sampling.start import begin
from sampling.verify.graphed import verification_of
from sampling.verify.verdict import Verdict
from sampling.verify.verifier import Verifier
from sampling.verify.verify import Verification
from utils.device.spare import attempt
from utils.device.timing import PhaseClock
from utils.device.waiting.choice import look
from utils.events import Event, Finished, Round
from utils.logits_processor import LogitsProcessor
from utils.token_ids import Ids, OneOrMore, known, one_or_more, token_ids


def step(
    seqs: Sequence[sequence.Sequence],
    drafter: Drafter,
    verification: Verification,
    clock: PhaseClock,
    chunks: Sequence[Chunk] = (),
) -> tuple[list[Round | Exception], list[float]]:
    """Run one round of each sequence; return the rounds and the host's seconds of drafting per sequence.

    A sequence has the same tokens and random draws as it has alone. If one sequence fails, its result is the error in
    place of a round. chunks: parts of prompts that the target's forward reads as well.
    """
    proposals, drafting_s = draft_all(seqs, drafter)
    clock.lap("draft")
    forwarded = forward_all(seqs, proposals, drafter.needs_hidden, chunks)
    clock.lap("verify")
    verdicts = judge_all(seqs, proposals, forwarded, verification)
    read = zip(seqs, proposals, forwarded.outputs, verdicts, strict=True)
    rounds = [attempt(commit, *each) for each in read]
    forwarded.keep_states(seqs, rounds)
    for seq in seqs:
        if seq.prefix is not None:
            seq.prefix.note(seq.hidden)
    look()
    clock.lap("other")
    return observe_all(seqs, rounds, drafter), drafting_s


def commit(seq: sequence.Sequence, proposal: Proposal, output: Output, verdict: Verdict) -> Round:
    """Append the tokens of a round to the sequence, keep their cache rows, and check whether the text has ended."""
    round, base = make_round(seq, proposal, verdict), len(seq.tokens) - 1
    emitted = round.emitted
    seq.runner.keep(base, round.path)
    if len(emitted) <= len(round.path):  # an accepted stop token ended the text
        seq.runner.crop(base + len(emitted))
    seq.tokens.extend(emitted)
    seq.rounds += 1
    seq.logits = output.logits
    seq.hidden = sequence.kept_states(output.hidden, round.path, seq.device)
    seq.reason = seq.finish_reason
    return round


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
    prefixes: Prefixes | None = None,
) -> Iterator[Event]:
    """Generate after `prompt` (token ids): one `Prefilled`, one `Round` per round, one `Finished`.

    The clock stops while the consumer holds an event. The sequence is complete at every yield, so a consumer may stop
    at any event. The random draws follow from `seed` and the prompt. A runner holds one text at a time; another text
    needs `target.another()`. handover: the state of the prompt from an earlier prefill, which replaces the prefill.
    prefixes: where rows of the prompt's beginning may be kept, and those of this text are.

    Raises `UserError` for an empty prompt, a prompt that leaves no room in the context window, ids outside the target's
    vocabulary, fewer than one new token, and an argument of the wrong type. It also raises `UserError` if another text
    has begun on the runner.
    """
    check_kinds(target=target, drafter=drafter, gamma=gamma, verifier=verifier, processor=processor)
    check_kinds(max_new_tokens=max_new_tokens, seed=seed)
    ids = known("prompt", token_ids("prompt", prompt), target.vocab_size)
    check_not_empty(ids)
    stop = frozenset(one_or_more("stop", stop))
    clock = PhaseClock(target.device)
    clock.start()
    seq = begin(target, gamma, processor, ids, max_new_tokens, stop, seed)
    generation, verification = target.generation, verification_of(target, verifier, seq.processor)
    seq.use_prefixes(prefixes if handover is None else None, drafter.needs_hidden)
    seq.hidden = read_in(target, seq.tokens, drafter.needs_hidden, handover, seq.prefix)
    clock.lap("prefill")
    drafter.begin(seq)
    seq.keep_prompt()
    clock.lap("draft")
    yield prefilled(len(ids), clock.stop(), handover, seq)

    while seq.reason is None:
        check_generation(target, generation)
        clock.start()
        (round,), _ = step([seq], drafter, verification, clock)
        if isinstance(round, Exception):
            raise round
        if seq.reason is not None:
            finish(seq, drafter)
        clock.lap("draft")
        seq.last = round.timed(clock.stop())
        yield seq.last
    if seq.last is not None:
        gamma.update(seq.last)
    yield Finished(seq.reason, seq.new_tokens)


def finish(seq: sequence.Sequence, drafter: Drafter) -> None:
    """Let the drafter learn from a finished text, then drop its state."""
    seq.release_rows()
    drafter.finish(seq)
    seq.drafter_state.clear()
