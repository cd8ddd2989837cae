"""OpenVINO GenAI behind our worker: ids in and out, and the tokens of each round where drafts are made."""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from engines.dialect import Event, Option, last_of
from engines.dialects.openai import OpenAiDialect
from utils.events import Acceptance


class Openvino(OpenAiDialect):
    """It loads GGUF files, and folders that optimum-intel has exported."""

    name = "openvino"
    ids_key = "token_ids"
    samplers: ClassVar = {}
    version = ("/version", "version")
    folders = False
    methods: ClassVar = {
        "naive": Option(),
        "ngram": Option(
            ("--prompt-lookup",),
            {"num_speculative_tokens": "--num-assistant-tokens", "max_ngram_size": "--max-ngram-size"},
        ),
        "draft_model": Option(
            keys={"num_speculative_tokens": "--num-assistant-tokens", "model": "--draft-model"},
        ),
    }

    def acceptance(self, events: Sequence[Event], new_tokens: int) -> Acceptance:
        """A round's tokens are its accepted drafts and one more; how many were drafted is not told."""
        sizes = (last_of(events, "metrics") or {}).get("tokens_by_round")
        if sizes is None:
            return Acceptance()
        if sum(sizes) != new_tokens or 0 in sizes:
            raise ArithmeticError(f"tokens_by_round: {sizes} in {new_tokens} tokens")
        counts = Counter(size - 1 for size in sizes)
        hist = tuple(counts[number] for number in range(max(sizes)))
        return Acceptance(len(sizes), None, new_tokens - len(sizes), hist)
