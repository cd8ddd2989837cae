"""The decode loop: draft, forward, verify, commit. `decode()` runs it on one text, `sampling/batch.py` on many.

Autoregression is the empty proposal; a method is what fills it.
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
    """A round of each sequence, which has the tokens and draws that it has alone; the host's seconds of drafting.

    What goes wrong with one of them is its own result, an error in place of a round.
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
    """The round's drafts. The rule first learns what the last round brought and what it took."""
    assert seq.runner.length == len(seq.tokens) - 1, "the cache holds every token but the last"
    if seq.last is not None:
        seq.rule.update(seq.last)
    seq.rng.at(seq.position)
    return (yield from stepwise(drafter.propose(seq, seq.rule, seq.room)))


def forward(seq: sequence.Sequence, proposal: Proposal, hidden: Sequence[int]) -> StepGenerator[Output]:
    """The target reads the last token and the drafts, n + 1 rows."""
    tokens = torch.cat([sent(seq.tokens[-1:], seq.device), proposal.tokens])
    return (yield from request_forward(seq.runner, tokens, proposal.parents, hidden))


def judge(
    seq: sequence.Sequence, proposal: Proposal, output: Output, verification: Verification
) -> StepGenerator[Verdict]:
    """The drafts are verified by the target's logits."""
    verdict: Verdict = yield ForwardRequest(verification, RoundInput(seq, proposal, output.logits))
    return verdict


def commit(seq: sequence.Sequence, proposal: Proposal, output: Output, verdict: Verdict) -> Round:
    """Make the round part of the sequence: its tokens, its rows of the cache, whether it is over."""
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
    """Generate after `prompt` (token ids): one `Prefilled`, a `Round` a round, one `Finished`.

    The clock stands still while the consumer holds an event, and the sequence is whole at every yield: a consumer may
    stop at any of them. What is drawn follows from `seed` and the prompt. A runner holds one text at a time; another
    text needs `target.another()`. handover: what the prompt left where it was read before, in place of reading it.

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
    generation, verification = target.generation, verification_of(target, verifier, processor)
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
    """Let the drafter learn from a whole text; then nothing is kept for it."""
    seq.release_rows()
    drafter.finish(seq)
    seq.drafter_state.clear()
