"""transformers' `generate` on the same checkpoint, in this process: plain, with an assistant, with prompt lookup."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
import transformers

from engines.checkpoints import drafter_model, target_model
from engines.dialect import spoken
from engines.home import ExternalEngine, wanted
from engines.spec import DRAFTER, refuse_in_generate
from sampling.engine import Description
from sampling.loading.gguf.convert import quiet
from sampling.pair.local_engine import LocalEngine
from sampling.pair.model_info import ModelInfo
from utils.events import Acceptance, Event, WholeAnswer

_WARM = 4
_SAMPLERS = {"min_p": "min_p", "repetition": "repetition_penalty"}


class TransformersEngine(ExternalEngine):
    """`generate` with the pair's checkpoint and its drafter as the assistant.

    What the checkpoint's generation_config holds is left aside. A draft has the length that is asked for in every
    round (schedule "constant", no confidence threshold).
    """

    name = "transformers"
    version = transformers.__version__

    def __init__(self, home: LocalEngine) -> None:
        super().__init__(home)
        self._pair = home.pair
        stop = sorted(self._pair.stop)
        self.model = target_model(self._pair)
        self._warm: set[str] = set()
        self._ends = {"eos_token_id": stop, "pad_token_id": stop[0]}
        self.model.generation_config = transformers.GenerationConfig(**self._ends)

    def describe(self) -> Description:
        """See `Engine.describe`."""
        about = self.home.describe()
        info = ModelInfo(about.target.name, about.target.device, about.target.dtype, "generate", about.target.place)
        return Description(info, about.drafter, about.window, about.device, version=self.version)

    def stream(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], run: str | None = None
    ) -> Iterator[Event]:
        """See `Engine.stream`."""
        refuse_in_generate(name, values)
        with quiet():
            if name not in self._warm:  # a first call pays for what no later one does
                self._warm.add(name)
                self._answered(name, {**values, "length": _WARM}, prompt)
            answered = self._answered(name, values, prompt)
        yield answered

    def _answered(self, name: str, values: Mapping[str, Any], prompt: Sequence[int]) -> WholeAnswer:
        asked = wanted(values, prompt, _SAMPLERS)
        sampling: dict[str, Any] = {"do_sample": False}
        if asked.temperature:
            sampling = {"do_sample": True, "temperature": asked.temperature, "top_k": asked.top_k, "top_p": asked.top_p}
        sampling |= spoken(asked, _SAMPLERS)
        assistant, lookup = self._assistant(name, values), _lookup(name, values)
        ids = torch.tensor([list(prompt)], device=self.model.device)
        torch.manual_seed(values["seed"])
        with _drafts(self.model) as drafts:
            clock = _Clock()
            output = self.model.generate(
                ids,
                transformers.GenerationConfig(max_new_tokens=asked.length, **self._ends, **sampling, **lookup),
                attention_mask=torch.ones_like(ids),
                streamer=clock,
                **assistant,
            )
        new = output[0, len(prompt) :].tolist()
        return WholeAnswer(
            len(prompt),
            tuple(new),
            "stop" if new[-1] in self._pair.stop else "length",
            clock.ttft_s,
            clock.wall_s,
            clock.counts[0],
            clock.acceptance(drafts),
        )

    def _assistant(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The model that drafts, told how many; nothing where none does."""
        if name != DRAFTER:
            return {}
        config = self.assistant.generation_config
        config.num_assistant_tokens, config.num_assistant_tokens_schedule = values["gamma"], "constant"
        config.assistant_confidence_threshold = 0.0
        return {"assistant_model": self.assistant}

    @cached_property
    def assistant(self) -> Any:
        """The pair's drafter as a model of transformers."""
        return drafter_model(self._pair, self.model)


def _lookup(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What makes `generate` copy from the prompt."""
    if name != "prompt_lookup":
        return {}
    count, size = values["num_speculative_tokens"], values["max_ngram_size"]
    return {"prompt_lookup_num_tokens": count, "max_matching_ngram_size": size}


class _Clock:
    """A streamer that looks at the clock: `generate` puts the prompt, then what each round emits, then ends."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._prompted = False
        self.counts: list[int] = []
        self.ttft_s = self.wall_s = 0.0

    def put(self, ids: torch.Tensor) -> None:
        """A round's tokens."""
        if not self._prompted:
            self._prompted = True
            return
        self.counts.append(ids.numel())
        self.wall_s = time.perf_counter() - self._begun
        self.ttft_s = self.ttft_s or self.wall_s

    def end(self) -> None:
        """All is there."""

    def acceptance(self, drafts: Sequence[int]) -> Acceptance:
        """Of plain decoding a round a token; else what each round drafted and kept."""
        if not drafts:
            return Acceptance.none(sum(self.counts))
        by_round = tuple((count - 1, drafted) for count, drafted in zip(self.counts, drafts, strict=True))
        most = max(count for count, _ in by_round)
        hist = tuple(sum(count == place for count, _ in by_round) for place in range(most + 1))
        accepted = sum(count for count, _ in by_round)
        return Acceptance(len(by_round), sum(drafts), accepted, hist, by_round)


@contextmanager
def _drafts(model: Any) -> Iterator[list[int]]:
    """How many drafts each round of `generate` has, as its candidate generator returns them."""
    counts: list[int] = []
    make: Callable[..., Any] = model._get_candidate_generator

    def watched(*args: Any, **options: Any) -> Any:
        generator = make(*args, **options)
        get = generator.get_candidates

        def counted(ids: torch.Tensor, *rest: Any, **more: Any) -> Any:
            candidates = get(ids, *rest, **more)
            counts.append(candidates[0].shape[1] - ids.shape[1])
            return candidates

        generator.get_candidates = counted
        return generator

    model._get_candidate_generator = watched
    try:
        yield counts
    finally:
        del model._get_candidate_generator
