"""A target and its drafter, with the tokenizer they share: everything a method needs from outside."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from transformers import PreTrainedTokenizerBase

from sampling.runner import ModelRunner, RecomputingRunner


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What was loaded, for people and for records: `detail` says what the name does not.

    place: the folder or hub id that the weights came from.
    """

    name: str
    device: str
    dtype: str
    detail: str = ""
    place: str = ""


@dataclass(frozen=True)
class Pair:
    """Two models that speak one vocabulary. `notes` are the mends made at load, in whole sentences."""

    target: ModelRunner
    drafter: ModelRunner | None
    tokenizer: PreTrainedTokenizerBase
    stop: frozenset[int]
    target_info: ModelInfo
    drafter_info: ModelInfo | None = None
    notes: tuple[str, ...] = field(default=())

    def encode(self, turns: Sequence[str], chat: bool) -> list[int]:
        """Ids of a prompt: user turns and answers alternate, the last turn is the user's.

        With `chat` the model's template wraps them and opens the answer; without it, or where the model
        has no template, the turns are joined by newlines and encoded as they are.
        """
        if chat and self.tokenizer.chat_template:
            roles = ("user", "assistant")
            messages = [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)]
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            return list(self.tokenizer.encode(text, add_special_tokens=False))
        return list(self.tokenizer.encode("\n".join(turns)))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of an answer, without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def fresh(self) -> "Pair":
        """The same models with empty caches."""
        return self._with(ModelRunner)

    def recomputing(self) -> "Pair":
        """The same models without a KV cache: the reference that cached runs must agree with."""
        return self._with(RecomputingRunner)

    def _with(self, runner: type[ModelRunner]) -> "Pair":
        drafter = self.drafter and runner(self.drafter.model, self.drafter.vocab_size)
        return replace(self, target=runner(self.target.model, self.target.vocab_size), drafter=drafter)
