"""decode_many(): the decode loop of many sequences in lockstep, through the same `propose`, `judged` and `commit`."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from egag.controller import GammaController
from sampling.drafter import Drafter
from sampling.events import Event, Finished, Prefilled, Round
from sampling.forward.rows import BatchRunner, Slot
from sampling.forward.runner import Output, feed
from sampling.loop import begin, commit, fed, judged, learn, propose, timed
from sampling.sequence import Sequence
from sampling.verifier import Verifier
from utils.logits_processor import LogitsProcessor
from utils.timing import PhaseClock


@dataclass(frozen=True, slots=True)
class Request:
    """A text to write. Its draws come from `seed` alone, so that no other text changes it.

    reuse: how many of the prompt's first rows may be taken over from the sequence that had the place before, where
    they are the same; their hidden states are not computed again. tag: what the asker knows it by.
    """

    prompt: list[int]
    processor: LogitsProcessor
    max_new_tokens: int
    seed: int
    stop: Collection[int] = ()
    reuse: int = 0
    tag: Any = None


@torch.inference_mode()
def decode_many(
    target: BatchRunner,
    drafter: Drafter,
    rule: Callable[[], GammaController],
    verifier: Verifier,
    requests: Iterable[Request],
) -> Iterator[tuple[Request, Sequence, Event]]:
    """The events of every request as `decode` tells them, each with its request and its sequence.

    As many requests run at once as the target has slots; one that ends makes room for the next, which is asked for
    after its end was told. A round's seconds are those of the whole batch. Raises what `decode` raises.
    """
    waiting, live = iter(requests), dict[Slot, tuple[Request, Sequence]]()
    clock = PhaseClock(target.model.device)
    while True:
        for slot in [slot for slot in target.slots if slot not in live]:
            if (request := next(waiting, None)) is None:
                break
            clock.start()
            seq = _begin(slot, request, rule(), drafter)
            clock.lap("prefill")
            live[slot] = request, seq
            yield request, seq, Prefilled(len(request.prompt), clock.stop()["prefill"])
        if not live:
            return
        rounds = _play(target, {slot: seq for slot, (_, seq) in live.items()}, drafter, verifier, clock)
        for (slot, (request, seq)), round in zip(list(live.items()), rounds, strict=True):
            seq.last = round
            yield request, seq, round
            if seq.reason is not None:
                seq.control.update(round)
                del live[slot]
                yield request, seq, Finished(seq.reason, seq.new_tokens)


def _play(
    target: BatchRunner, live: Mapping[Slot, Sequence], drafter: Drafter, verifier: Verifier, clock: PhaseClock
) -> list[Round]:
    """A round of every live sequence: one forward over the rows of all."""
    clock.start()
    seqs = list(live.values())
    proposals = [propose(seq, drafter) for seq in seqs]
    clock.lap("draft")
    rows = [fed(seq, proposal) for seq, proposal in zip(seqs, proposals, strict=True)]
    outputs = target.forward(list(live), rows, [proposal.parents for proposal in proposals], drafter.needs_hidden)
    clock.lap("verify")
    rounds = []
    for seq, proposal, output, p in zip(seqs, proposals, outputs, distributions(seqs, outputs), strict=True):
        rounds.append(judged(seq, proposal, verifier.verify(proposal, p, seq.rng)))
        commit(seq, rounds[-1], output)
    clock.lap("other")
    for seq, round in zip(seqs, rounds, strict=True):
        learn(seq, drafter, round)
    clock.lap("draft")
    seconds = clock.stop()
    return [timed(round, seconds) for round in rounds]


def _begin(slot: Slot, request: Request, gamma: GammaController, drafter: Drafter) -> Sequence:
    """A sequence in a free slot, its prompt in the cache."""
    rng = torch.Generator(slot.device).manual_seed(request.seed)
    seq = begin(slot, gamma, request.processor, request.prompt, request.max_new_tokens, request.stop, rng)
    start = slot.resume(seq.tokens[:-1], request.reuse)
    seq.hidden = feed(slot, seq.tokens[start:-1], drafter.needs_hidden)
    drafter.begin(seq)
    return seq


def distributions(seqs: list[Sequence], outputs: list[Output]) -> list[Tensor]:
    """Each sequence's p `[n + 1, V]`: those that share a processor go through it together, row by row as ever."""
    found: dict[int, Tensor] = {}
    for processor in {id(seq.processor): seq.processor for seq in seqs}.values():
        alike = [place for place, seq in enumerate(seqs) if seq.processor is processor]
        logits = [outputs[place].logits for place in alike]
        parts = processor(torch.cat(logits)).split([len(one) for one in logits])
        found.update(zip(alike, parts, strict=True))
    return [found[place] for place in range(len(seqs))]
