"""FastDeploy's server: ids in and out, `speculate_metrics` in the last choice."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from engines.dialect import (
    Event,
    Option,
    last_of_choices,
)
from engines.dialects.openai import OpenAiDialect
from utils.events import Acceptance

_SUFFIX = ("max_tree_depth", "max_cached_requests", "max_spec_factor", "min_token_prob")
_COUNT = ("num_speculative_tokens",)


def _same(*keys: str) -> Option:
    return Option(keys={key: key for key in keys})


class FastDeploy(OpenAiDialect):
    """Its words are those of our `speculative_config`, which is its own."""

    name = "fastdeploy"
    ids_key = "completion_token_ids"
    methods: ClassVar = {
        "naive": Option(),
        "ngram": _same(*_COUNT, "max_ngram_size", "min_ngram_size", "verify_strategy", "accept_policy"),
        "suffix": _same(*_COUNT, *(f"suffix_decoding_{name}" for name in _SUFFIX), "verify_strategy", "accept_policy"),
        "mtp": _same(*_COUNT, "num_model_steps", "mtp_strategy", "model", "verify_strategy", "accept_policy"),
    }

    def options(self, config: Mapping[str, Any]) -> list[str]:
        """See `Dialect.options`. It judges by `topp` where nothing is said, which is not lossless."""
        self.option(config)
        if config["method"] == "naive":
            return []
        return ["--speculative-config", json.dumps({"verify_strategy": "target_match", **config})]

    def acceptance(self, events: Sequence[Event], new_tokens: int) -> Acceptance:
        """Its accepted tokens count the target's own, one a round, and its `accept_ratio` is no acceptance rate.

        Head i counts the rounds that emitted more than i tokens. Its rejected tokens assume full drafts.
        """
        metrics = last_of_choices(events, "speculate_metrics")
        if metrics is None:
            return Acceptance()
        heads = [*metrics["accepted_tokens_per_head"], 0]
        rounds, emitted = heads[0], metrics["accepted_tokens"]
        hist = tuple(more - fewer for more, fewer in pairwise(heads))
        return Acceptance(rounds, emitted + metrics["rejected_tokens"] - rounds, emitted - rounds, hist)
