"""TensorRT-LLM's server: ids in, text out; tokens a round in the choices, counts where the version has them."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from engines.acceptance import with_draftless
from engines.dialect import (
    Event,
    Option,
    last_of_choices,
)
from engines.dialects.openai import OpenAiDialect
from utils.events import Acceptance


class TensorRtLlm(OpenAiDialect):
    """It is started with a file, `--config`, that says how it speculates; here it is met as it runs."""

    name = "trtllm"
    methods: ClassVar = {"naive": Option()}

    def options(self, config: Mapping[str, Any]) -> list[str]:
        """See `Dialect.options`."""
        self.option(config)
        return []

    def acceptance(self, events: Sequence[Event], new_tokens: int) -> Acceptance:
        """Counts where they are told, else rounds from tokens an iteration; versions that count none say 0."""
        if metrics := last_of_choices(events, "speculative_decoding"):
            accepted = metrics["total_accepted_draft_tokens"]
            rounds, hist = new_tokens - accepted, metrics.get("acceptance_histogram")
            return Acceptance(
                rounds, metrics["total_draft_tokens"], accepted, with_draftless(hist, rounds) if hist else None
            )
        mean = last_of_choices(events, "avg_decoded_tokens_per_iter")
        if not mean:
            return Acceptance()
        rounds = round(new_tokens / mean)
        return Acceptance(rounds, None, new_tokens - rounds)
