"""Our own server: the method goes with the request, and every round is told."""

from collections.abc import Mapping, Sequence
from typing import Any

from engines.dialect import (
    Event,
    TextRequest,
    last_of,
)
from engines.dialects.openai import OpenAiDialect, openai_logprobs
from utils.events import Acceptance


class Workbench(OpenAiDialect):
    """config: our method's own name and parameters."""

    name = "workbench"
    ids_key = "token_ids"
    version = ("/health", "version")
    by_request = True

    def options(self, config: Mapping[str, Any]) -> list[str]:
        """See `Dialect.options`."""
        return []

    def body(self, wanted: TextRequest, model: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `Dialect.body`."""
        return {**super().body(wanted, model, config), "speculative": dict(config)}

    def top_logprobs(self, events: Sequence[Event]) -> list[dict[int, float]]:
        """See `Dialect.top_logprobs`."""
        return openai_logprobs(events)

    def acceptance(self, events: Sequence[Event], new_tokens: int) -> Acceptance:
        """All of it, as a record has it."""
        metrics = (last_of(events, "metrics") or {}).get("workbench")
        if metrics is None:
            return Acceptance()
        emitted, drafted = metrics["tokens_by_round"], metrics["drafted_by_round"]
        before = [tokens - 1 for tokens in emitted[:-1]]
        accepted = [*before, metrics["accepted"] - sum(before)]
        by_round = tuple(zip(accepted, drafted, strict=True))
        return Acceptance(
            metrics["rounds"], metrics["drafted"], metrics["accepted"], tuple(metrics["accept_hist"]), by_round
        )
