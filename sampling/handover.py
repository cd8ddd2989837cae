"""Prefill apart from decoding: the state of a prompt that this process or another has read, and its arrival.

Decoding can continue from such a state if the model is the same (disaggregated prefill, DistServe, arXiv 2401.09670).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from sampling.forward.runner import Runner, prefill
from sampling.forward.state import State, put
from utils.device.timing import CAPTURE
from utils.errors import UserError
from utils.events import Prefilled


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
    target: Runner, tokens: Sequence[int], layers: Sequence[int], handover: Handover | None
) -> dict[int, Tensor]:
    """Prefill all tokens of a text but the last, or take over their state; return the hidden states of these layers."""
    if handover is None:
        return prefill(target, tokens[:-1], layers)
    return handover.taken_over(target, tokens, layers)


def other_text(held: Sequence[int], tokens: Sequence[int]) -> str:
    """An error message: the position at which a state's tokens differ from a text without its last token."""
    return (
        f"the prefilled state is of {len(held) + 1} tokens and the prompt has {len(tokens)}; they part at token "
        f"{alike(held, tokens[:-1])}: expected the state of this prompt, with the same chat template and system message"
    )


def alike(first: Sequence[int], other: Sequence[int]) -> int:
    """The length of the common prefix of two texts, in tokens."""
    pairs = enumerate(zip(first, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(first), len(other)))


def prefilled(prompt_tokens: int, seconds: Mapping[str, float], handover: Handover | None) -> Prefilled:
    """The `Prefilled` event. After a handover it holds the time of the earlier prefill.

    seconds: the time of this run. `prefill` is the time of the target's prefill or of loading the state. `draft` is the
    time of the drafter's prefill.
    """
    prefill_s, begun, capture_s = seconds["prefill"], seconds.get("draft", 0.0), seconds[CAPTURE]
    if handover is None:
        return Prefilled(prompt_tokens, prefill_s + begun, capture_s=capture_s)
    whole = handover.prefill_s + begun
    if handover.shared:
        return Prefilled(prompt_tokens, whole, shared=True, capture_s=capture_s)
    handed, transfer_s = handover.state.bytes, handover.transfer_s + prefill_s
    told = Prefilled(prompt_tokens, whole, handover.queued_s, handed=handed, transfer_s=transfer_s)
    return replace(told, capture_s=capture_s)
