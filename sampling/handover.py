"""Prefill apart from decoding: the state of a prompt that this process or another has read, and its arrival.

Decoding can continue from such a state if the model is the same (disaggregated prefill, DistServe, arXiv 2401.09670).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from sampling import sequence
from sampling.forward.prefixes.use import PrefixUse
from sampling.forward.runner import Runner, feed, prefill
from sampling.forward.state import State, put
from utils.device.timing import CAPTURE
from utils.errors import UserError
from utils.events import Prefilled
from utils.token_ids import alike


@dataclass(frozen=True, slots=True)
class Handover:
    """The state of a prefilled prompt and the time that the prefill took.

    prefill_s: the seconds of the target's forwards over the prompt. shared: the prefill ran in this process, for
    several runs. transfer_s: for a state from another process, the seconds from the request to the arrival. transfer_s
    leaves out prefill_s and queued_s. queued_s: the seconds in which the other process read other prompts.
    """

    state: State
    prefill_s: float
    shared: bool = False
    transfer_s: float = 0.0
    queued_s: float = 0.0

    def taken_over(self, target: Runner, tokens: Sequence[int], layers: Sequence[int]) -> dict[int, Tensor]:
        """Load the state into the target and return the hidden states of these layers.

        tokens: the whole text. Its last token is fed later. Raises `UserError` if the state belongs to another text.
        """
        if self.state.tokens != tuple(tokens[:-1]):
            raise UserError(other_text(self.state.tokens, tokens))
        return put(self.state, target, layers)


def read_in(
    target: Runner,
    tokens: Sequence[int],
    layers: Sequence[int],
    handover: Handover | None,
    prefix: PrefixUse | None = None,
) -> dict[int, Tensor]:
    """Prefill all tokens of a text but the last, or take over their state; return the hidden states of these layers.

    prefix: rows of the prompt's beginning that are kept are taken over, too.
    """
    if handover is not None:
        return handover.taken_over(target, tokens, layers)
    if prefix is None:
        return prefill(target, tokens[:-1], layers)
    target.crop(0)
    start = prefix.resume(tokens[:-1])
    return prefix.whole(feed(target, tokens[start:-1], layers))


def other_text(held: Sequence[int], tokens: Sequence[int]) -> str:
    """An error message: the position at which a state's tokens differ from a text without its last token."""
    return (
        f"the prefilled state is of {len(held) + 1} tokens and the prompt has {len(tokens)}; they part at token "
        f"{alike(held, tokens[:-1])}: expected the state of this prompt, with the same chat template and system message"
    )


def prefilled(
    prompt_tokens: int, seconds: Mapping[str, float], handover: Handover | None, seq: sequence.Sequence | None = None
) -> Prefilled:
    """The `Prefilled` event. After a handover it holds the time of the earlier prefill. seq: whose prompt it is.

    seconds: the time of this run. `prefill` is the time of the target's prefill or of loading the state. `draft` is the
    time of the drafter's prefill.
    """
    prefill_s, begun, capture_s = seconds["prefill"], seconds.get("draft", 0.0), seconds[CAPTURE]
    told = Prefilled(prompt_tokens, prefill_s + begun, capture_s=capture_s)
    if handover is not None and handover.shared:
        told = replace(told, prefill_s=handover.prefill_s + begun, shared=True)
    elif handover is not None:
        handed, transfer_s = handover.state.bytes, handover.transfer_s + prefill_s
        told = replace(told, prefill_s=handover.prefill_s + begun, queued_s=handover.queued_s)
        told = replace(told, handed=handed, transfer_s=transfer_s)
    return told if seq is None else taken_over(told, seq, prefill_s)


def taken_over(told: Prefilled, seq: sequence.Sequence, prefill_s: float) -> Prefilled:
    """The same with what the text took from the trees of prefixes. prefill_s: of the rows that the target read."""
    told, prefix = replace(told, drafter_start=seq.drafter_start), seq.prefix
    if prefix is None:
        return told
    return replace(told, prefix_hits=prefix.hits, saved_s=prefix.saved_s(len(seq.tokens) - 1, prefill_s))
