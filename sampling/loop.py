"""The decode loop: draft, forward, verify, commit. `decode()` runs it on one text, `sampling/batch.py` on many.

An empty proposal is plain autoregression. Methods differ only in the proposals that they make.
"""

from collections.abc import Iterator, Sequence

import torch

from egag.length_rule import LengthRule
from sampling import sequence
from sampling.arguments import check_generation, check_kinds, check_not_empty
from sampling.drafter import Drafter, stepwise
from sampling.forward.causal_model import Output
from sampling.forward.requests import ForwardRequest, StepGenerator, attempt, run_batched
from sampling.forward.runner import Runner, request_forward
from sampling.handover import Handover, prefilled, read_in
from sampling.proposal import Proposal
from sampling.rounds import make_round
from sampling.start import begin
from sampling.verify.graphed import verification_of
from sampling.verify.verdict import Verdict
from sampling.verify.verifier import Verifier
from sampling.verify.verify import RoundInput, Verification
from utils.device.sent import sent
from utils.device.timing import PhaseClock
from utils.events import Event, Finished, Round
from utils.logits_processor import LogitsProcessor
from utils.token_ids import Ids, OneOrMore, known, one_or_more, token_ids


def step(
    seqs: Sequence[sequence.Sequence], drafter: Drafter, verification: Verification, clock: PhaseClock
) -> tuple[list[Round | Exception], list[float]]:
    """Run one round of each sequence; return the rounds and the host's seconds of drafting per sequence.

    A sequence has the same tokens and random draws as it has alone. If one sequence fails, its result is the error in
    place of a round.
    """
    proposals, drafting_s = run_batched([draft(seq, drafter) for seq in seqs])
    clock.lap("draft")
    drafted = zip(seqs, proposals, strict=True)
    outputs, _ = run_batched([attempt(forward, *pair, drafter.needs_hidden) for pair in drafted])
    clock.lap("verify")
    read = zip(seqs, proposals, outputs, strict=True)
    verdicts, _ = run_batched([attempt(judge, *each, verification) for each in read])
    rounds = [attempt(commit, *each) for each in zip(seqs, proposals, outputs, verdicts, strict=True)]
    clock.lap("other")
    errors = [attempt(drafter.observe, *each) for each in zip(seqs, rounds, strict=True)]
    return [error or round for error, round in zip(errors, rounds, strict=True)], drafting_s


def draft(seq: sequence.Sequence, drafter: Drafter) -> StepGenerator[Proposal]:
    """The drafts of the round. The rule first learns the verdict and the times of the last round."""
    assert seq.runner.length == len(seq.tokens) - 1, "the cache holds every token but the last"
    if seq.last is not None:
        seq.rule.update(seq.last)
    seq.rng.at(seq.position)
    return (yield from stepwise(drafter.propose(seq, seq.rule, seq.room)))


def forward(seq: sequence.Sequence, proposal: Proposal, hidden: Sequence[int]) -> StepGenerator[Output]:
    """The target's forward over the last token and the n drafts: n + 1 rows."""
    last = seq.tokens[-1:]
    tokens = torch.cat([sent(last, seq.device), proposal.tokens]) if len(proposal) else last
    return (yield from request_forward(seq.runner, tokens, proposal.parents, hidden))


def judge(
    seq: sequence.Sequence, proposal: Proposal, output: Output, verification: Verification
) -> StepGenerator[Verdict]:
    """Verify the drafts with the target's logits."""
    logits = output.logits if seq.changes is None else seq.changes.of_round(seq.tokens, proposal, output.logits)
    verdict: Verdict = yield ForwardRequest(verification, RoundInput(seq, proposal, logits))
    return verdict


def commit(seq: sequence.Sequence, proposal: Proposal, output: Output, verdict: Verdict) -> Round:
    """Append the tokens of a round to the sequence, keep their cache rows, and check whether the text has ended."""
    round, base = make_round(seq, proposal, verdict), len(seq.tokens) - 1
    seq.runner.keep(base, round.path)
    seq.runner.crop(base + len(round.emitted))
    seq.tokens.extend(round.emitted)
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
) -> Iterator[Event]:
    """Generate after `prompt` (token ids): one `Prefilled`, one `Round` per round, one `Finished`.

    The clock stops while the consumer holds an event. The sequence is complete at every yield, so a consumer may stop
    at any event. The random draws follow from `seed` and the prompt. A runner holds one text at a time; another text
    needs `target.another()`. handover: the state of the prompt from an earlier prefill, which replaces the prefill.

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
    seq.hidden = read_in(target, seq.tokens, drafter.needs_hidden, handover)
    clock.lap("prefill")
    drafter.begin(seq)
    clock.lap("draft")
    yield prefilled(len(ids), clock.stop(), handover)

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
