"""Log-probabilities of an answer's tokens: the target's own, of its raw logits, whatever drafted the tokens.

They come before temperature, penalties, biases and grammars, as vLLM's `raw_logprobs` do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

import torch
from torch import Tensor

from sampling.forward.runner import Runner
from utils.errors import NoDistribution, UserError
from utils.events import Round

_LEAST = -9999.0
_BLOCK = 64


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its ln p, and the most likely tokens of its place, the best first.

    ln p is None for the first token of a prompt. start: characters of the text before it.
    """

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()
    start: int = 0


def emitting_rows(logits: Tensor, round: Round) -> Tensor:
    """The rows `[m, V]` that a round's m tokens were chosen from, of its `[n + 1, V]`: a copy."""
    rows = [0, *(row + 1 for row in round.path)][: len(round.emitted)]
    return logits[rows].clone()


@torch.inference_mode()
def token_logprobs(logits: Tensor, tokens: Sequence[int], most: int) -> list[TokenLogprob]:
    """Of each token, by its row of raw logits `[m, V]`; with the `most` best of each row.

    Raises `NoDistribution` where logits are NaN.
    """
    exact = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
    own = exact.gather(1, torch.tensor(list(tokens), device=exact.device).unsqueeze(1)).squeeze(1).tolist()
    if any(map(isnan, own)):
        raise NoDistribution("model")
    best = exact.topk(min(most, exact.shape[1]))
    found = []
    for token, value, ids, values in zip(tokens, own, best.indices.tolist(), best.values.tolist(), strict=True):
        pairs = sorted(zip(ids, map(_finite, values), strict=True), key=lambda pair: (-pair[1], pair[0]))
        found.append(TokenLogprob(token, _finite(value), tuple(pairs)))
    return found


@torch.inference_mode()
def prompt_logprobs(runner: Runner, prompt: Sequence[int], most: int) -> list[TokenLogprob]:
    """Of each token of a prompt behind those before it. The runner's text is gone then.

    Raises `UserError` for a prompt that an encoder reads.
    """
    if list(runner.read(prompt).tokens) != list(prompt):
        raise UserError("logprobs of the prompt asked for, which an encoder reads; expected no echo")
    found = [TokenLogprob(prompt[0], None)]
    for begin in range(0, len(prompt) - 1, _BLOCK):
        some = prompt[begin : min(begin + _BLOCK, len(prompt) - 1)]
        logits = runner.forward(some, rows=len(some)).logits
        found += token_logprobs(logits, prompt[begin + 1 : begin + 1 + len(some)], most)
    runner.crop(0)
    return found


def placed(found: Sequence[TokenLogprob], starts: Sequence[int]) -> tuple[TokenLogprob, ...]:
    """The same with the place of each token in the text."""
    return tuple(replace(each, start=start) for each, start in zip(found, starts, strict=True))


def _finite(value: float) -> float:
    return max(value, _LEAST)


@dataclass(frozen=True, slots=True)
class Spelled:
    """How tokens are shown. bytes_of: the bytes of a token. as_ids: `token_id:5` in place of texts."""

    bytes_of: Callable[[int], bytes]
    as_ids: bool = False

    def text(self, token: int) -> str:
        """The token's text; bytes that are no text alone as `bytes:` and an escape each."""
        if self.as_ids:
            return f"token_id:{token}"
        raw = self.bytes_of(token)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def chat(self, found: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The object `logprobs` of a chat's choice."""
        content = [
            {**self._entry(each.token, each.logprob), "top_logprobs": [self._entry(*pair) for pair in each.top]}
            for each in found
        ]
        return {"content": content, "refusal": None}

    def completion(self, found: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The object `logprobs` of a completion's choice; the token itself is among the best of its place."""
        return {
            "tokens": [self.text(each.token) for each in found],
            "token_logprobs": [each.logprob for each in found],
            "top_logprobs": [self._best(each) for each in found],
            "text_offset": [each.start for each in found],
        }

    def _best(self, each: TokenLogprob) -> dict[str, float] | None:
        if each.logprob is None:
            return None
        texts = dict[str, float]()
        for token, value in (*each.top, (each.token, each.logprob)):
            texts.setdefault(self.text(token), value)
        return texts

    def _entry(self, token: int, logprob: float | None) -> dict[str, Any]:
        return {"token": self.text(token), "logprob": logprob, "bytes": list(self.bytes_of(token))}
