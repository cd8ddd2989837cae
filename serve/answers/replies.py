"""Answers as OpenAI's clients read them, with what a round of speculation brought beside them."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ablation.results.column import measured
from ablation.results.record import Record
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import Settings, relevant_settings
from sampling.methods.tables import METHODS
from serve.answers.calls import ToolCallPiece
from serve.answers.logprobs import Spelled, TokenLogprob
from serve.answers.parts import AnswerParts
from serve.errors import ApiError
from serve.jobs import AnswerEnd, ParsedRequest, ServedPiece, TextJob, Told

ERROR = "error"
"""Why one of several texts ended that failed; the choice has an error object then."""
NO_ERRORS: Mapping[int, ApiError] = MappingProxyType({})
_ELSEWHERE = ("output_ids", "prompt_tokens", "new_tokens", "finish_reason", "score")


class ReplyObjects:
    """The objects of one request: whole, or chunk by chunk. spelled: how tokens of log-probabilities are shown."""

    def __init__(self, asked: ParsedRequest, jobs: Sequence[TextJob], model: str, spelled: Spelled) -> None:
        self.asked, self.jobs, self.model, self.spelled = asked, jobs, model, spelled
        self.created = int(time.time())
        self.id = f"{'chatcmpl' if asked.kind == 'chat' else 'cmpl'}-{uuid.uuid4().hex}"
        self._parts = [AnswerParts(asked.form) for _ in jobs]
        self._begun = set[int]()

    def whole(
        self, texts: Sequence[str], reasons: Sequence[str], errors: Mapping[int, ApiError] = NO_ERRORS
    ) -> dict[str, Any]:
        """The response once all texts are there. errors: of those that failed, by their numbers."""
        choices = [
            self._choice(number, *text_and_reason, job.metrics.output_ids, job.logprobs)
            for number, (job, text_and_reason) in enumerate(
                zip(self.jobs, zip(texts, reasons, strict=True), strict=True)
            )
        ]
        for number, error in errors.items():
            choices[number] |= error.as_dict()
        return self._object(choices, chunk=False) | self._counts()

    def first(self, number: int) -> dict[str, Any] | None:
        """The chunk that opens a chat's answer: who speaks."""
        if self.asked.kind != "chat":
            return None
        delta = {"role": "assistant", "content": ""}
        return self._object([{"index": number, "delta": delta, "logprobs": None, "finish_reason": None}], chunk=True)

    def told(self, number: int, piece: Told) -> dict[str, Any]:
        """The chunk of what a round added to one text, or of its end; with the counts so far where they are asked.

        Where one of several texts has failed, its choice has the error.
        """
        if isinstance(piece, ServedPiece):
            told = self.chunk(number, piece.text, piece.ids, logprobs=piece.logprobs)
        elif isinstance(piece, AnswerEnd):
            told = self.chunk(number, piece.text, (), piece.reason)
        else:
            told = self.chunk(number, "", (), ERROR)
            told["choices"][0] |= piece.as_dict()
        return {**told, "usage": self._usage()} if self.asked.usage_by_chunk else told

    def chunk(
        self,
        number: int,
        text: str,
        ids: Sequence[int],
        reason: str | None = None,
        logprobs: Sequence[TokenLogprob] = (),
    ) -> dict[str, Any]:
        """What a round added to one text, or its end."""
        choice = self._choice(number, text, reason, ids, logprobs, chunk=True)
        self.reword(choice, number, reason)
        return self._object([choice], chunk=True)

    def reword(self, choice: dict[str, Any], number: int, reason: str | None) -> None:
        """Change what a choice of a stream says to a dialect's words, in place; reason: of the end."""

    def drafts(self, number: int) -> bool:
        """Whether a text's method drafts at all."""
        return bool(METHODS[self.jobs[number].order.configuration.method].drafts)

    def usage(self) -> dict[str, Any]:
        """The last chunk of a stream that was asked for it."""
        return self._object([], chunk=True) | self._counts()

    def _choice(
        self,
        number: int,
        text: str,
        reason: str | None,
        ids: Sequence[int],
        logprobs: Sequence[TokenLogprob],
        chunk: bool = False,
    ) -> dict[str, Any]:
        job = self.jobs[number]
        choice: dict[str, Any] = {"index": number, "logprobs": None, "finish_reason": reason}
        if self.asked.kind == "chat":
            said, choice["finish_reason"] = self._said(number, text, reason, chunk)
            choice["delta" if chunk else "message"] = said
            if logprobs:
                choice["logprobs"] = self.spelled.chat(logprobs)
        else:
            choice["text"], logprobs = self._echoed(number, text, logprobs)
            if logprobs:
                choice["logprobs"] = self.spelled.completion(logprobs)
        if self.asked.samples > 1 and (reason is not None or not chunk):
            choice["seed"] = job.order.seed
        if self.asked.token_ids:
            choice["token_ids"] = list(ids)
            if self.asked.kind == "text" and not chunk:
                choice["prompt_token_ids"] = list(job.order.prompt)
        return choice

    def _said(self, number: int, text: str, reason: str | None, chunk: bool) -> tuple[dict[str, Any], str | None]:
        """The message of a chat's answer, or what is new of it, and why it ends."""
        parts, form = self._parts[number], self.asked.form
        found = parts.push(text, last=reason is not None)
        said: dict[str, Any] = {} if chunk else {"role": "assistant", "content": found.content}
        if chunk and (found.content or not (found.reasoning or found.calls or reason is not None)):
            said["content"] = found.content
        if found.reasoning or (form.thinks and not chunk):
            said["reasoning_content"] = found.reasoning or None
        if found.calls:
            said["tool_calls"] = [_call(piece, chunk) for piece in found.calls]
            if not chunk and not found.content:
                said["content"] = None
        if parts.called and reason == "stop" and form.calls != "arguments":
            reason = "tool_calls"
        return said, reason

    def _echoed(self, number: int, text: str, logprobs: Sequence[TokenLogprob]) -> tuple[str, Sequence[TokenLogprob]]:
        """A completion's text with its prompt before it, where it is asked for and was not told yet."""
        prompt = self.asked.echoed[number // self.asked.samples] if self.asked.echoed else ""
        moved = [replace(each, start=each.start + len(prompt)) for each in logprobs]
        if not prompt or number in self._begun:
            return text, moved
        self._begun.add(number)
        return prompt + text, [*self.jobs[number].of_prompt, *moved]

    def _object(self, choices: list[dict[str, Any]], chunk: bool) -> dict[str, Any]:
        kind = "text_completion"
        if self.asked.kind == "chat":
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        whole = {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}
        if self.asked.token_ids and self.asked.kind == "chat" and not chunk:
            whole["prompt_token_ids"] = list(self.jobs[0].order.prompt)
        return whole

    def _usage(self) -> dict[str, Any]:
        """Tokens of all texts; a prompt counts once, however many samples there are of it."""
        prompt = sum(len(job.order.prompt) for job in self.jobs[:: self.asked.samples])
        new = sum(job.metrics.new_tokens for job in self.jobs)
        kept = sum(job.metrics.prefix_hits or 0 for job in self.jobs[:: self.asked.samples])
        counts = {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}
        return {**counts, "prompt_tokens_details": {"cached_tokens": kept}}

    def _counts(self) -> dict[str, Any]:
        """Tokens of all texts, and how one text was written; of several each would need its own."""
        several = len(self.jobs) > 1
        metrics = None if several else metrics_of(self.jobs[0], self.asked.kind == "chat")
        return {"usage": self._usage(), "metrics": metrics}


def _call(piece: ToolCallPiece, chunk: bool) -> dict[str, Any]:
    """A call of a tool, or what is new of it, as OpenAI's clients put it together."""
    function = (
        {"arguments": piece.arguments} if piece.name is None else {"name": piece.name, "arguments": piece.arguments}
    )
    about = {} if piece.id is None else {"id": piece.id, "type": "function"}
    return {**({"index": piece.index} if chunk else {}), **about, "function": function}


def metrics_of(job: TextJob, chat: bool) -> dict[str, Any]:
    """How a text was written: in vLLM's words, and with the keys of a record of `run --json`. chat: as it was asked."""
    configuration, metrics = job.order.configuration, job.metrics
    values = {**Settings(), **dict(configuration.parameters), "seed": job.order.seed}
    values |= {"processor": job.order.processor, "length": job.order.length, "chat": chat}
    values["grammar"] = job.order.grammar
    metrics_there: dict[str, Any] = {"method": configuration.method, "lossless": job.lossless}
    metrics_there["settings"] = relevant_settings(configuration.method, values)
    metrics_there |= {name: getattr(metrics, name) for name in measured(Record) if name not in _ELSEWHERE}
    drafts = METHODS[configuration.method].drafts
    return {"speculative_decoding": _speculation(metrics) if drafts else None, "workbench": metrics_there}


def by_round(metrics: RunMetrics) -> list[tuple[int, int]]:
    """Accepted and proposed drafts of each round."""
    before = [tokens - 1 for tokens in metrics.tokens_by_round[:-1]]
    accepted = [*before, metrics.accepted - sum(before)]  # the last round may end with an accepted draft
    return list(zip(accepted, metrics.drafted_by_round, strict=False))


def _speculation(metrics: RunMetrics) -> dict[str, Any]:
    """vLLM's per-request metrics (its page on acceptance metrics, 0.32); its steps are the rounds that drafted."""
    steps = [step for step in by_round(metrics) if step[1]]
    accepted, most = sum(count for count, _ in steps), max((drafted for _, drafted in steps), default=0)
    drafted = sum(count for _, count in steps)
    return {
        "mean_acceptance_length": 1 + accepted / len(steps) if steps else 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": [sum(count == place for count, _ in steps) for place in range(most + 1)],
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": most,
        "per_step_accepted": [count for count, _ in steps],
        "per_step_drafted": [count for _, count in steps],
    }
