"""llama.cpp's server, route `/completion`: ids in and out, drafts in `timings`."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from engines.dialect import AnswerPiece, Dialect, Event, Option, TextRequest, last_of, spoken
from utils.events import Acceptance

_REASONS = {"eos": "stop", "word": "stop", "limit": "length"}


class LlamaCpp(Dialect):
    """`cache_prompt` is off: taking over rows of an earlier prompt can change the answer, says its own page.

    Its penalties by count and by presence count the prompt, too, which ours do not: it is not asked for them.
    """

    name = "llamacpp"
    samplers: ClassVar = {"min_p": "min_p", "repetition": "repeat_penalty"}
    version = ("/props", "build_info")
    path = "/completion"
    folders = False
    methods: ClassVar = {
        "naive": Option(),
        "ngram": Option(
            ("--spec-type", "ngram-simple"),
            {"num_speculative_tokens": "--spec-ngram-simple-size-m", "max_ngram_size": "--spec-ngram-simple-size-n"},
        ),
        "draft_model": Option(
            ("--spec-type", "draft-simple"), {"num_speculative_tokens": "--spec-draft-n-max", "model": "-md"}
        ),
        "eagle": Option(
            ("--spec-type", "draft-eagle3"), {"num_speculative_tokens": "--spec-draft-n-max", "model": "-md"}
        ),
        "mtp": Option(("--spec-type", "draft-mtp"), {"num_speculative_tokens": "--spec-draft-n-max"}),
    }

    def body(self, wanted: TextRequest, model: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `Dialect.body`."""
        return {
            "prompt": list(wanted.prompt),
            "n_predict": wanted.length,
            "temperature": wanted.temperature,
            "top_k": wanted.top_k,
            "top_p": wanted.top_p,
            "min_p": 0.0,
            "seed": wanted.seed,
            "stream": True,
            "return_tokens": True,
            "cache_prompt": False,
            **({"repeat_last_n": -1} if "repetition" in wanted.options else {}),
            **spoken(wanted, self.samplers),
        }

    def piece(self, event: Event) -> AnswerPiece:
        """See `Dialect.piece`."""
        reason = _REASONS.get(event.get("stop_type") or "") if event.get("stop") else None
        return AnswerPiece(tuple(event.get("tokens") or ()), event.get("content") or "", reason)

    def acceptance(self, events: Sequence[Event], new_tokens: int) -> Acceptance:
        """Drafts of all rounds in sum; a server without a drafter has no such keys."""
        timings = last_of(events, "timings") or {}
        if "draft_n" not in timings:
            return Acceptance.none(new_tokens)
        accepted = timings["draft_n_accepted"]
        return Acceptance(timings["predicted_n"] - accepted, timings["draft_n"], accepted)
