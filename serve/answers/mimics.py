"""Answers in the shapes of other engines' servers, so that this one can stand in for them where they are read."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sampling.measure.metrics import RunMetrics
from serve.answers.logprobs import TokenLogprob
from serve.answers.replies import ERROR, ReplyObjects, by_round
from serve.errors import ApiError, wrong_field
from utils.errors import UserError, one_of
from utils.json_text import read_json
from utils.registry import Registry
from utils.text import quoted

Body = dict[str, Any]


class FastDeployReply(ReplyObjects):
    """Ids under a name of its own, and counts in the last choice in which the target's own tokens are accepted ones."""

    def reword(self, choice: Body, number: int, reason: str | None) -> None:
        """See `ReplyObjects.reword`."""
        if "token_ids" in choice:
            choice["completion_token_ids"] = choice.pop("token_ids")
        metrics = self.jobs[number].metrics
        if reason not in (None, ERROR) and self.drafts(number):
            emitted = metrics.tokens_by_round
            rejected = sum(drafted - accepted for accepted, drafted in by_round(metrics))
            heads = [sum(count > place for count in emitted) for place in range(max(emitted))]
            choice["speculate_metrics"] = {
                "accepted_tokens": metrics.new_tokens,
                "rejected_tokens": rejected,
                "accept_ratio": 1 - metrics.rounds / metrics.new_tokens,
                "average_accept_length": metrics.new_tokens / metrics.rounds,
                "accepted_tokens_per_head": heads,
                "accept_ratio_per_head": [new / old for old, new in pairwise(heads)],
            }


class TensorRtLlmReply(ReplyObjects):
    """Text alone, with tokens an iteration at the end."""

    def reword(self, choice: Body, number: int, reason: str | None) -> None:
        """See `ReplyObjects.reword`."""
        choice.pop("token_ids", None)
        if reason is not None:
            choice["avg_decoded_tokens_per_iter"] = self.jobs[number].metrics.tokens_per_round


class SglangReply(ReplyObjects):
    """Each event has the whole text so far; the forward over the prompt, the first round, is no verification."""

    text = ""

    def chunk(
        self,
        number: int,
        text: str,
        ids: Sequence[int],
        reason: str | None = None,
        logprobs: Sequence[TokenLogprob] = (),
    ) -> Body:
        """See `ReplyObjects.chunk`."""
        self.text += text
        metrics = self.jobs[number].metrics
        about: Body = {"id": self.id, "prompt_tokens": metrics.prompt_tokens, "completion_tokens": metrics.new_tokens}
        about["finish_reason"] = None if reason is None else {"type": reason}
        if self.drafts(number):
            steps = [accepted for accepted, drafted in by_round(metrics) if drafted]
            about |= {
                "spec_verify_ct": metrics.rounds - 1,
                "spec_num_proposed_drafts": metrics.drafted,
                "spec_num_correct_drafts": metrics.accepted,
                "spec_correct_drafts_histogram": [steps.count(place) for place in range(max(steps, default=-1) + 1)],
            }
        return {"text": self.text, "output_ids": list(ids), "meta_info": about}


class LlamaCppReply(ReplyObjects):
    """Drafts of all rounds in sum, with the end."""

    def chunk(
        self,
        number: int,
        text: str,
        ids: Sequence[int],
        reason: str | None = None,
        logprobs: Sequence[TokenLogprob] = (),
    ) -> Body:
        """See `ReplyObjects.chunk`."""
        chunk_body: Body = {"content": text, "tokens": list(ids), "stop": reason is not None}
        if reason is not None:
            metrics = self.jobs[number].metrics
            chunk_body |= {
                "stop_type": {"stop": "eos", "length": "limit"}[reason],
                "timings": self._timings(number, metrics),
            }
        return chunk_body

    def _timings(self, number: int, metrics: RunMetrics) -> Body:
        times = {"prompt_n": metrics.prompt_tokens, "prompt_ms": metrics.prefill_s * 1e3}
        times |= {"predicted_n": metrics.new_tokens, "predicted_ms": metrics.decode_s * 1e3}
        drafts = {"draft_n": metrics.drafted, "draft_n_accepted": metrics.accepted} if self.drafts(number) else {}
        return {**times, **drafts}


@dataclass(frozen=True, slots=True)
class MimickedServer:
    """A server that this one can stand in for: where it is asked, its request as one of ours, and its answers."""

    name: str
    path: str
    reply: type[ReplyObjects]
    ours: Callable[[Body], Body] = dict


def _sglang(body: Body) -> Body:
    """`sampling_params` are fields of their own here; its words for those of ours."""
    sampling = body.pop("sampling_params", None) or {}
    if not isinstance(sampling, dict):
        raise ApiError(400, "sampling_params: expected an object", "sampling_params")
    words = {"max_new_tokens": "max_tokens", "sampling_seed": "seed", "input_ids": "prompt", "text": "prompt"}
    renamed = _alone(_renamed({**sampling, **body}, words), "prompt")
    return {"max_tokens": 128, **renamed, "return_token_ids": True}


def _llamacpp(body: Body) -> Body:
    """Its own defaults; what asks for no more than what is done anyway is left out."""
    usual = {"max_tokens": 128, "temperature": 0.8, "top_p": 0.95, "top_k": 40}
    idle = {"cache_prompt": (True, False), "return_tokens": (True,)}
    kept = {name: value for name, value in body.items() if value not in idle.get(name, ())}
    renamed = _alone(_renamed(kept, {"n_predict": "max_tokens"}), "prompt")
    return {**usual, **renamed, "return_token_ids": True}


def _alone(body: Body, name: str) -> Body:
    """Raises `ApiError` for several texts, as events of this shape do not say of which they are, and for logprobs."""
    prompt = body.get(name)
    if isinstance(prompt, list) and not all(type(token) is int for token in prompt):
        raise ApiError(400, f"{name}: expected one prompt, a text or its ids", name)
    for field, allowed in (("n", (None, 1)), ("echo", (None, False)), ("logprobs", (None,))):
        if body.get(field) not in allowed:
            raise wrong_field(field, body[field], "none, as these events have no place for it")
    return body


def _renamed(body: Body, words: Mapping[str, str]) -> Body:
    renamed = {words.get(name, name): value for name, value in body.items()}
    if len(renamed) < len(body):
        raise ApiError(400, f"{one_of(words)}: two given that say the same; expected one")
    return renamed


COMPLETIONS = "/v1/completions"
MIMICS = Registry[MimickedServer](
    "dialect",
    MimickedServer("vllm", COMPLETIONS, ReplyObjects),
    MimickedServer("sglang", "/generate", SglangReply, _sglang),
    MimickedServer("llamacpp", "/completion", LlamaCppReply, _llamacpp),
    MimickedServer("fastdeploy", COMPLETIONS, FastDeployReply),
    MimickedServer("trtllm", COMPLETIONS, TensorRtLlmReply),
)


def as_ours(mimic: MimickedServer, content: bytes) -> bytes:
    """A request in a dialect as one for `/v1/completions`. Raises `ApiError` for what is no object."""
    try:
        body = read_json(content.decode("utf-8"))
    except (UnicodeDecodeError, UserError) as error:
        raise ApiError(400, f"the body: {error}") from None
    if not isinstance(body, dict):
        raise ApiError(400, "the body is no JSON object")
    if body.get("stream") is not True:
        raise ApiError(
            400,
            f"stream: {quoted(body.get('stream'))} given; expected true: {mimic.name} is asked for streams here",
            "stream",
        )
    return json.dumps(mimic.ours(body)).encode()
