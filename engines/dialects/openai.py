"""The base of dialects that ask as OpenAI's clients do, and stream what `/v1/completions` streams."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from engines.dialect import OPENAI_SAMPLERS, AnswerPiece, Dialect, Event, TextRequest, spoken


class OpenAiDialect(Dialect):
    """Ids in. ids_key: the key of a choice that has its ids; None where the server tells text alone."""

    samplers = OPENAI_SAMPLERS
    ids_key: ClassVar[str | None] = None

    def body(self, wanted: TextRequest, model: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `Dialect.body`."""
        told = {"logprobs": wanted.logprobs, "return_tokens_as_token_ids": True} if wanted.logprobs else {}
        return {
            "model": model,
            "prompt": list(wanted.prompt),
            "max_tokens": wanted.length,
            "temperature": wanted.temperature,
            "top_p": wanted.top_p,
            "seed": wanted.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"top_k": wanted.top_k} if wanted.top_k else {}),
            **spoken(wanted, self.samplers),
            **told,
            **({"return_token_ids": True} if self.ids_key else {}),
        }

    def piece(self, event: Event) -> AnswerPiece:
        """See `Dialect.piece`."""
        for choice in event.get("choices") or ():
            ids = tuple(choice.get(self.ids_key) or ()) if self.ids_key else None
            return AnswerPiece(ids, choice.get("text") or "", choice.get("finish_reason"))
        return AnswerPiece()


def openai_logprobs(events: Sequence[Event]) -> list[dict[int, float]]:
    """The best tokens of each place from chunks of `/v1/completions` that spell tokens as `token_id:5`."""
    choices = [choice for event in events for choice in event.get("choices") or ()]
    places = [place for choice in choices for place in (choice.get("logprobs") or {}).get("top_logprobs") or ()]
    return [{int(name.removeprefix("token_id:")): float(value) for name, value in place.items()} for place in places]
