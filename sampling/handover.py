"""A prompt that was read before, by this process or another: what it left, what that took, and how it arrives.

Decoding can go on from it wherever the model is the same (prefill apart from decoding, as DistServe has it, arXiv
2401.09670).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from sampling.forward.runner import Runner, prefill
from sampling.forward.state import State, put
from utils.errors import UserError
from utils.events import Prefilled


@dataclass(frozen=True, slots=True)
class Handover:
    """What a prompt left where it was read.

    prefill_s: the seconds of the target's forwards over it. shared: made here, for several runs. transfer_s: of a
    state from elsewhere, from asking for it until it was here, without those seconds and without queued_s, in which
    prompts of others were read there.
    """

    state: State
    prefill_s: float
    shared: bool = False
    transfer_s: float = 0.0
    queued_s: float = 0.0

    def taken_over(self, target: Runner, tokens: Sequence[int], layers: Sequence[int]) -> dict[int, Tensor]:
        """Let the target go on from it; the states of these layers. Raises `UserError` for the state of another text.

        tokens: the whole text, of which the last one is still to be fed.
        """
        if self.state.tokens != tuple(tokens[:-1]):
            raise UserError(other_text(self.state.tokens, tokens))
        return put(self.state, target, layers)


def read_in(
    target: Runner, tokens: Sequence[int], layers: Sequence[int], handover: Handover | None
) -> dict[int, Tensor]:
    """Let the target know a text but its last token, by reading it or by taking it over; the states of these layers."""
    if handover is None:
        return prefill(target, tokens[:-1], layers)
    return handover.taken_over(target, tokens, layers)


def other_text(held: Sequence[int], tokens: Sequence[int]) -> str:
    """Where a state's tokens are not those of a text without its last one, in words."""
    return (
        f"the prefilled state is of {len(held) + 1} tokens and the prompt has {len(tokens)}; they part at token "
        f"{alike(held, tokens[:-1])}: expected the state of this prompt, with the same chat template and system message"
    )


def alike(first: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with in common."""
    pairs = enumerate(zip(first, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(first), len(other)))


def prefilled(prompt_tokens: int, seconds: Mapping[str, float], handover: Handover | None) -> Prefilled:
    """The event: of a prompt that was read before, with the seconds that this took then.

    seconds: of this run, `prefill` for the target, or for taking over, and `draft` for what drafts, if anything does.
    """
    prefill_s, begun = seconds["prefill"], seconds.get("draft", 0.0)
    if handover is None:
        return Prefilled(prompt_tokens, prefill_s + begun)
    whole = handover.prefill_s + begun
    if handover.shared:
        return Prefilled(prompt_tokens, whole, shared=True)
    handed, transfer_s = handover.state.bytes, handover.transfer_s + prefill_s
    return Prefilled(prompt_tokens, whole, handover.queued_s, handed=handed, transfer_s=transfer_s)
