"""decode(): the one decode loop. Autoregression is the empty proposal; a method is what fills it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import torch

from egag.controller import GammaController
from sampling.drafter import Context, Drafter
from sampling.events import Event, Finished, FinishReason, Prefilled, Step
from sampling.forward.runner import ModelRunner
from sampling.verifier import Verdict, Verifier
from utils.errors import UserError
from utils.logits_processor import LogitsProcessor
from utils.timing import PhaseClock


@torch.inference_mode()
def decode(
    target: ModelRunner,
    drafter: Drafter,
    gamma: GammaController,
    verifier: Verifier,
    processor: LogitsProcessor,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    stop: Collection[int] = (),
    rng: torch.Generator,
) -> Iterator[Event]:
    """Generate after `prompt` (token ids): one `Prefilled`, a `Step` a round, one `Finished`.

    A decoder-only model's text begins with the prompt. An encoder reads the prompt once, and the text is the
    decoder's: what a checkpoint has it begin with, then the output.

    The clock stands still while the consumer holds an event, and the sequence is whole at every yield: a
    consumer may stop at any of them. `rng` lives on the target's device. Raises `UserError` for an empty
    prompt, a prompt that leaves no room in the context window, or fewer than one new token.
    """
    _refuse_empty(prompt)
    clock = PhaseClock(target.device)
    clock.start()
    reading = target.read(prompt)
    start = reading.tokens
    check_room(target, start, max_new_tokens)
    ctx = Context(list(start), len(start), target, processor, rng, source=reading.source)
    ctx.hidden = target.prefill(start[:-1], drafter.needs_hidden)
    gamma.begin()
    drafter.begin(ctx)
    clock.lap("prefill")
    yield Prefilled(len(prompt), clock.stop()["prefill"])

    end = min(len(start) + max_new_tokens, target.window)
    reason: FinishReason | None = None
    number = 0
    while reason is None:
        clock.start()
        proposal = drafter.propose(ctx, gamma, end - len(ctx.tokens) - 1)
        asked = gamma.gamma
        clock.lap("draft")

        base = target.length
        assert base == len(ctx.tokens) - 1, "the cache holds every token but the last"
        root = torch.tensor(ctx.tokens[-1:], device=target.device)
        output = target.forward(torch.cat([root, proposal.tokens]), proposal.parents, drafter.needs_hidden)
        clock.lap("verify")

        verdict = verifier.verify(proposal, processor(output.logits), rng)
        step = _cut(_step(ctx, number, asked, proposal.tokens.tolist(), proposal.parents, verdict), stop)
        target.keep(base, step.path)
        target.crop(len(ctx.tokens) + len(step.emitted) - 1)
        ctx.tokens.extend(step.emitted)
        ctx.logits = output.logits
        ctx.hidden = {layer: states[[0, *(row + 1 for row in step.path)]] for layer, states in output.hidden.items()}
        if proposal.entropy is not None:
            step = replace(step, entropy=proposal.entropy.item())
        clock.lap("other")

        gamma.update(step)
        drafter.observe(ctx, step)
        reason = _reason(ctx, step, stop, len(start) + max_new_tokens, target.window)
        if reason is not None:
            drafter.finish(ctx)
        clock.lap("draft")
        seconds = clock.stop()
        number += 1
        yield replace(step, draft_s=seconds["draft"], verify_s=seconds["verify"], other_s=seconds["other"])
    yield Finished(reason, len(ctx.tokens) - len(start))


def check_room(target: ModelRunner, start: Sequence[int], max_new_tokens: int) -> None:
    """Raises `UserError` for an empty text, one that fills the context window, or fewer than one new token."""
    _refuse_empty(start)
    if len(start) >= target.window:
        raise UserError(
            f"the prompt has {len(start)} tokens; the context window of {target.window} leaves no room for one more"
        )
    if max_new_tokens < 1:
        raise UserError(f"{max_new_tokens} new tokens asked for; allowed: 1 or more")


def _refuse_empty(prompt: Sequence[int]) -> None:
    if not prompt:
        raise UserError("the prompt is empty; allowed: at least one token")


def _step(
    ctx: Context, number: int, gamma: int, drafts: list[int], parents: tuple[int, ...] | None, verdict: Verdict
) -> Step:
    return Step(
        round=number,
        position=len(ctx.tokens),
        gamma=gamma,
        drafts=tuple(drafts),
        parents=parents,
        q=verdict.q,
        p=verdict.p,
        path=verdict.path,
        tested=verdict.tested,
        next_token=verdict.token,
        entropy=None,
        vocab_size=ctx.target.vocab_size,
    )


def _cut(step: Step, stop: Collection[int]) -> Step:
    """The step without what follows an accepted stop token: on a chain those drafts count as not tested."""
    for place, row in enumerate(step.path):
        if step.drafts[row] in stop:
            tested = place + 1 if step.parents is None else step.tested
            return replace(step, path=step.path[: place + 1], next_token=None, tested=tested)
    return step


def _reason(ctx: Context, step: Step, stop: Collection[int], end: int, window: int) -> FinishReason | None:
    if step.emitted[-1] in stop:
        return "stop"
    if len(ctx.tokens) >= end:
        return "length"
    return "context" if len(ctx.tokens) >= window else None
