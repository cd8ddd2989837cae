"""A prompt read for runs to come."""

from collections.abc import Sequence

from sampling.arguments import check_room
from sampling.forward.runner import Runner, prefill
from sampling.forward.state import taken
from sampling.handover import Handover
from utils.device.timing import PhaseClock


def read_apart(target: Runner, prompt: Sequence[int], layers: Sequence[int], shared: bool = False) -> Handover:
    """Read a prompt (ids) for runs to come, with the hidden states of these layers; its time is taken.

    The runner then holds the prompt. Raises `UserError` for a prompt that leaves no room for a token, and for a model
    whose text cannot be kept.
    """
    check_room(target, prompt, 1)
    clock = PhaseClock(target.device)
    clock.start()
    tokens = target.read(prompt).tokens[:-1]
    hidden = prefill(target, tokens, layers)
    clock.lap("prefill")
    seconds = clock.stop()["prefill"]
    return Handover(taken(target, tokens, hidden), seconds, shared)
