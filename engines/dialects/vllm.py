"""vLLM's server (0.32): ids out with `return_token_ids`, rounds with `--per-request-spec-decode-metrics detailed`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from engines.acceptance import with_draftless
from engines.dialect import (
    Event,
    Option,
    last_of,
)
from engines.dialects.openai import OpenAiDialect, openai_logprobs
from utils.events import Acceptance

_SUFFIX = ("max_tree_depth", "max_cached_requests", "max_spec_factor", "min_token_prob")
_COUNT = {"num_speculative_tokens": "num_speculative_tokens"}
_MODEL = Option(keys={**_COUNT, "model": "model"})


class Vllm(OpenAiDialect):
    """Its options are the keys of its own JSON."""

    name = "vllm"
    ids_key = "token_ids"
    version = ("/version", "version")
    methods: ClassVar = {
        "naive": Option(),
        "ngram": Option(keys={**_COUNT, "max_ngram_size": "prompt_lookup_max", "min_ngram_size": "prompt_lookup_min"}),
        "suffix": Option(keys={**_COUNT, **{f"suffix_decoding_{name}": f"suffix_decoding_{name}" for name in _SUFFIX}}),
        "draft_model": _MODEL,
        **dict.fromkeys(("medusa", "eagle", "mtp"), _MODEL),
    }

    def options(self, config: Mapping[str, Any]) -> list[str]:
        """See `Dialect.options`."""
        option, method = self.option(config), config["method"]
        if method == "naive":
            return []
        assignments = {option.keys[key]: value for key, value in config.items() if key != "method"}
        spoken = json.dumps({"method": method, **assignments})
        return ["--speculative-config", spoken, "--per-request-spec-decode-metrics", "detailed"]

    def top_logprobs(self, events: Sequence[Event]) -> list[dict[int, float]]:
        """See `Dialect.top_logprobs`."""
        return openai_logprobs(events)

    def acceptance(self, events: Sequence[Event], new_tokens: int) -> Acceptance:
        """Its steps leave out the rounds without drafts, the one over the prompt among them.

        In the last step it counts accepted drafts behind the end of the text, too: those are taken off.
        """
        metrics = (last_of(events, "metrics") or {}).get("speculative_decoding")
        if metrics is None:
            return Acceptance()
        accepted, hist = metrics["num_accepted_draft_tokens"], [*metrics["acceptance_histogram"]]
        steps = list(metrics.get("per_step_accepted") or ())
        over = max(0, 1 + metrics["num_spec_steps"] + accepted - new_tokens)
        if steps and over:
            hist[steps[-1]] -= 1
            hist[max(0, steps[-1] - over)] += 1
        rounds = new_tokens - (accepted - over)
        return Acceptance(rounds, metrics["num_draft_tokens"], accepted - over, with_draftless(hist, rounds))
