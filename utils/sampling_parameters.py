"""What processors are made of: one definition for the tables and for Python calls."""

from collections.abc import Callable
from typing import Any

from utils.errors import wrong_value
from utils.parameter import LARGEST, Parameter, integer, number, read_integer, read_number, shown_number

# Beyond these logits are no numbers in float32 once they are divided; greedy is what the lower one comes to.
COLDEST, HOTTEST = 1e-10, 1e10

TEMPERATURE = number("temperature", None, "softmax temperature", minimum=COLDEST, maximum=HOTTEST)
TOP_K = integer("top_k", None, "how many tokens stay in", minimum=1, maximum=LARGEST)
TOP_P = number("top_p", None, "mass of the tokens that stay in", above=0.0, maximum=1.0)

MIN_P = number("min_p", None, "share of the most likely token's probability that stays in", above=0.0, maximum=1.0)
TYPICAL_P = number("typical_p", None, "mass of the tokens nearest to the entropy that stay in", above=0.0, maximum=1.0)
EPSILON = number("epsilon", None, "probability from which tokens stay in", above=0.0, below=1.0)
ETA = number("eta", None, "the same, less where the entropy is high", above=0.0, below=1.0)
TOP_N_SIGMA = number("top_n_sigma", None, "standard deviations of the logits below the best that stay in", above=0.0)
REPETITION = number("repetition", None, "factor on tokens of prompt and output", above=0.0, maximum=1e6)
FREQUENCY = number("frequency", None, "taken off for each time in the output", minimum=-1e6, maximum=1e6)
PRESENCE = number("presence", None, "taken off once for a token of the output", minimum=-1e6, maximum=1e6)
NO_REPEAT_NGRAM = integer("no_repeat_ngram", None, "length of runs that never stand twice", minimum=1, maximum=1024)
MIN_TOKENS = integer("min_tokens", None, "tokens before one may end the text", minimum=0, maximum=LARGEST)


def _between_slashes(
    name: str, help: str, usage: str, read: Callable[[str], Any], show: Callable[[Any], str]
) -> Parameter:
    """Several values between slashes, as commas part processors in plans and completions."""

    def parse(text: str) -> tuple[Any, ...]:
        values = tuple(read(part) for part in text.split("/"))
        biased = [value[0] for value in values if isinstance(value, tuple)]
        if None in values or len(biased) > len(set(biased)):
            raise wrong_value(name, text, usage)
        return values

    return Parameter(name, None, help, usage, parse, lambda values: "/".join(map(show, values)))


def _token(text: str) -> int | None:
    token = read_integer(text)
    return token if token is not None and 0 <= token <= LARGEST else None


def _bias(text: str) -> tuple[int, float] | None:
    token, _, value = text.partition(":")
    pair = _token(token), read_number(value)
    return None if None in pair else pair  # type: ignore[return-value]


BANNED = _between_slashes("banned", "ids that never come", "ID/ID/...", _token, str)
FORCED = _between_slashes("forced", "ids that the output begins with", "ID/ID/...", _token, str)
LOGIT_BIAS = _between_slashes(
    "logit_bias",
    "added to the logits of tokens",
    "ID:NUMBER/ID:NUMBER/... (each ID once)",
    _bias,
    lambda pair: f"{pair[0]}:{shown_number(pair[1])}",
)
