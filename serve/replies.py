"""Answers as OpenAI's clients read them, with what a round of speculation brought beside them."""

import time
import uuid
from collections.abc import Sequence
from typing import Any

from ablation.results.column import measured
from ablation.results.record import Record
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import Settings, relevant_settings
from sampling.methods.tables import METHODS
from serve.jobs import ParsedRequest, TextJob

_ELSEWHERE = ("output_ids", "prompt_tokens", "new_tokens", "finish_reason", "score")


class ReplyObjects:
    """The objects of one request: whole, or chunk by chunk."""

    def __init__(self, asked: ParsedRequest, jobs: Sequence[TextJob], model: str) -> None:
        self.asked, self.jobs, self.model = asked, jobs, model
        self.created = int(time.time())
        self.id = f"{'chatcmpl' if asked.kind == 'chat' else 'cmpl'}-{uuid.uuid4().hex}"

    def whole(self, texts: Sequence[str], reasons: Sequence[str]) -> dict[str, Any]:
        """The response once all texts are there."""
        choices = [
            self._choice(number, *text_and_reason, self.jobs[number].metrics.output_ids)
            for number, text_and_reason in enumerate(zip(texts, reasons, strict=True))
        ]
        return self._object(choices, chunk=False) | self._counts()

    def first(self, number: int) -> dict[str, Any] | None:
        """The chunk that opens a chat's answer: who speaks."""
        if self.asked.kind != "chat":
            return None
        delta = {"role": "assistant", "content": ""}
        return self._object([{"index": number, "delta": delta, "logprobs": None, "finish_reason": None}], chunk=True)

    def chunk(self, number: int, text: str, ids: Sequence[int], reason: str | None = None) -> dict[str, Any]:
        """What a round added to one text, or its end."""
        return self._object([self._choice(number, text, reason, ids, chunk=True)], chunk=True)

    def drafts(self, number: int) -> bool:
        """Whether a text's method drafts at all."""
        return bool(METHODS[self.jobs[number].order.configuration.method].drafts)

    def usage(self) -> dict[str, Any]:
        """The last chunk of a stream that was asked for it."""
        return self._object([], chunk=True) | self._counts()

    def _choice(
        self, number: int, text: str, reason: str | None, ids: Sequence[int], chunk: bool = False
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": number, "logprobs": None, "finish_reason": reason}
        if self.asked.kind == "text":
            choice["text"] = text
        elif chunk:
            choice["delta"] = {"content": text} if text or reason is None else {}
        else:
            choice["message"] = {"role": "assistant", "content": text}
        if self.asked.token_ids:
            choice["token_ids"] = list(ids)
            if self.asked.kind == "text" and not chunk:
                choice["prompt_token_ids"] = list(self.jobs[number].order.prompt)
        return choice

    def _object(self, choices: list[dict[str, Any]], chunk: bool) -> dict[str, Any]:
        kind = "text_completion"
        if self.asked.kind == "chat":
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        whole = {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}
        if self.asked.token_ids and self.asked.kind == "chat" and not chunk:
            whole["prompt_token_ids"] = list(self.jobs[0].order.prompt)
        return whole

    def _counts(self) -> dict[str, Any]:
        """Tokens of all texts, and how one text was written; of several each would need its own."""
        prompt = sum(len(job.order.prompt) for job in self.jobs)
        new = sum(job.metrics.new_tokens for job in self.jobs)
        usage = {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}
        several = len(self.jobs) > 1
        return {"usage": usage, "metrics": None if several else metrics_of(self.jobs[0], self.asked.kind == "chat")}


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
