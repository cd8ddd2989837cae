"""Our own server: the method goes with the request, and every round is told."""

from collections.abc import Mapping, Sequence
from typing import Any

from engines.dialect import (
    OPENAI_SAMPLERS,
    AnswerPiece,
    Dialect,
    Event,
    TextRequest,
    last_of,
    openai_body,
    openai_logprobs,
    openai_piece,
)
from utils.events import Acceptance


class Workbench(Dialect):
    """config: our method's own name and parameters."""

    name = "workbench"
    samplers = OPENAI_SAMPLERS
    version = ("/health", "version")
    by_request = True

    def options(self, config: Mapping[str, Any]) -> list[str]:
        """See `Dialect.options`."""
        return []

    def body(self, wanted: TextRequest, model: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `Dialect.body`."""
        return {**openai_body(wanted, model), "return_token_ids": True, "speculative": dict(config)}

    def piece(self, event: Event) -> AnswerPiece:
        """See `Dialect.piece`."""
        return openai_piece(event, "token_ids")

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
