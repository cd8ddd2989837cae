"""Calls from Python: wrong types, wrong values, two texts at once, interruptions."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from itertools import count
from typing import Any

import torch
from transformers import PreTrainedModel, TemperatureLogitsWarper

from egag.length_rule import FixedGamma
from ngram_assisted import NGramStorage, ngram_assisted_speculative_generate
from ngram_assisted.prompt_lookup import PromptLookupDrafter
from sampling import autoregressive_generate, beam_search_generate, decode, speculative_generate
from sampling.api.custom_generate import speculative
from sampling.forward.runner import ModelRunner
from sampling.verify.rejection import RejectionVerifier
from tests.hostile.row import Row
from tests.tiny import gpt2, llama, mamba, random_model, tiny_pair
from utils.errors import UserError
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor, NucleusProcessor

PROMPT = [5, 6, 7, 5, 6]
_MODELS = {
    "target": lambda: random_model(llama()),
    "drafter": lambda: random_model(llama(num_hidden_layers=1), seed=1),
    "wide": lambda: random_model(llama(vocab_size=300)),
    "mamba": lambda: random_model(mamba()),
    "gpt2": lambda: random_model(gpt2(eos_token_id=3, bos_token_id=3)),
}
_pair = cache(tiny_pair)


@cache
def model(name: str) -> PreTrainedModel:
    """One model of each kind, made once."""
    return _MODELS[name]()


class Interrupted(MultinomialProcessor):
    """Ctrl-C in the middle of the second round."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self._calls = count()

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        if next(self._calls) == 2:
            raise KeyboardInterrupt
        return super().__call__(logits)


class Logits(LogitsProcessor):
    """Returns logits for probabilities."""

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


class Silent(LogitsProcessor):
    """Returns nothing."""

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        return None  # type: ignore[return-value]


def plain(*arguments: Any, **more: Any) -> object:
    """autoregressive_generate; a runner where no model is named."""
    return autoregressive_generate(*arguments, **{"model": _pair().target, "max_gen_len": 4, **more})


def drafted(**more: Any) -> object:
    """speculative_generate."""
    given = {"inputs": PROMPT, "drafter": model("drafter"), "target": model("target"), "max_gen_len": 4}
    return speculative_generate(**{**given, **more})


def counted(storage: Any, **more: Any) -> object:
    """ngram_assisted_speculative_generate."""
    return ngram_assisted_speculative_generate(PROMPT, storage, **{"target": model("target"), "max_gen_len": 4, **more})


def beams(**more: Any) -> object:
    """beam_search_generate."""
    return beam_search_generate(PROMPT, model("target"), **{"max_gen_len": 3, **more})


def hooked(ids: Any = None, decoding: Any = None, **more: Any) -> object:
    """transformers' generate with our loop."""
    given = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, **more}
    ids = torch.tensor([PROMPT]) if ids is None else ids
    return model("target").generate(ids, custom_generate=decoding or speculative(model("drafter"), gamma=2), **given)


def events(**more: Any) -> list[Any]:
    """decode, to its end."""
    return list(stream(**more))


def stream(**more: Any) -> Any:
    """decode."""
    parts = (PromptLookupDrafter(), FixedGamma(3), RejectionVerifier(), GreedyProcessor(), PROMPT)
    names = ("drafter", "gamma", "verifier", "processor", "prompt")
    given = {"target": _pair().target, **dict(zip(names, parts, strict=True))}
    return decode(**{**given, "max_new_tokens": 6, "seed": 0, **more})


def interleaved(target: Callable[[], Any]) -> object:
    """Two texts, a round of each in turn."""
    one, other = stream(target=target()), stream(target=target(), prompt=[9, 8, 7, 6, 5])
    return [*zip(one, other, strict=False)]


def again_after(broken: Callable[[], object]) -> object:
    """What comes after a run that ended badly is what came before it."""
    before = drafted()
    with suppress(KeyboardInterrupt, UserError):
        broken()
    if drafted() != before or not model("target").training == model("drafter").training == False:  # noqa: E712
        raise AssertionError("the run left something behind")
    return before


def closed() -> object:
    """A stream that is closed in the middle, and its runner used again."""
    whole, broken = events()[-1], stream()
    next(broken), next(broken)
    broken.close()
    if list(broken) or events()[-1] != whole:
        raise AssertionError("the closed stream left something behind")
    return whole


def type_error(act: Callable[[], object]) -> object:
    """The call, whose `TypeError` counts as an answer."""
    try:
        return act()
    except TypeError as error:
        raise UserError(str(error)) from None


def row(title: str, act: Callable[[], object], *says: object) -> Row:
    """A call that is refused with these data; without any it works."""
    return Row("python", lambda folder: bool(act()), 2 if says else 0, says, name=title)


def refused(call: Callable[..., object], cases: Mapping[str, tuple[Any, ...]]) -> list[Row]:
    """Rows of calls with one wrong argument each."""
    return [row(title, partial(call, **given), *says) for title, (given, *says) in cases.items()]


_LONG = torch.zeros(1, 2, dtype=torch.long)
ROWS = [
    *refused(
        plain,
        {
            "prompt: text": ({"inputs": "the cat"}, "inputs 'the cat'"),
            "prompt: None": ({"inputs": None}, "inputs None"),
            "prompt: an id": ({"inputs": 5}, "inputs 5"),
            "prompt: empty": ({"inputs": []}, "prompt", "token"),
            "prompt: empty tensor": ({"inputs": torch.zeros(1, 0, dtype=torch.long)}, "prompt", "token"),
            "prompt: batch": ({"inputs": _LONG.expand(2, 2)}, "inputs of shape (2, 2)"),
            "prompt: rank 3": ({"inputs": _LONG.unsqueeze(0)}, "inputs of shape (1, 1, 2)"),
            "prompt: rank 0": ({"inputs": torch.tensor(5)}, "inputs of shape ()"),
            "prompt: floats": ({"inputs": torch.ones(3)}, "inputs"),
            "prompt: a mask": ({"inputs": _LONG.bool()}, "inputs"),
            "prompt: meta device": ({"inputs": _LONG.to("meta")}, "inputs"),
            "prompt: set": ({"inputs": {1, 2}}, "inputs {1, 2}"),
            "prompt: encoding": ({"inputs": {"input_ids": PROMPT}}, "inputs"),
            "prompt: unknown id": ({"inputs": [5, 261]}, "inputs: id 261", 0, 260),
            "prompt: negative id": ({"inputs": [-100]}, "inputs: id -100"),
            "prompt: huge id": ({"inputs": [2**80]}, 0, 260),
            "prompt: too long": ({"inputs": [5] * 600}, "the context window of 512 leaves no room"),
            "length: 0": ({"inputs": PROMPT, "max_gen_len": 0}, "max_gen_len: '0'", 1),
            "length: -1": ({"inputs": PROMPT, "max_gen_len": -1}, "max_gen_len: '-1'"),
            "length: None": ({"inputs": PROMPT, "max_gen_len": None}, "max_gen_len: None", "1 <= INT <= 10000000"),
            "length: tensor": ({"inputs": PROMPT, "max_gen_len": torch.tensor(4)}, "max_gen_len: tensor(4)"),
            "length: infinite": ({"inputs": PROMPT, "max_gen_len": math.inf}, "max_gen_len: 'inf'"),
            "stop: text": ({"inputs": PROMPT, "eos_tokens_id": "</s>"}, "eos_tokens_id '</s>'"),
            "stop: True": ({"inputs": PROMPT, "eos_tokens_id": True}, "eos_tokens_id True"),
            "stop: [None]": ({"inputs": PROMPT, "eos_tokens_id": [None]}, "eos_tokens_id [None]"),
            "stop: dict": ({"inputs": PROMPT, "eos_tokens_id": {}}, "eos_tokens_id {}"),
            "stop: unknown id": ({"inputs": PROMPT, "eos_tokens_id": [3, 999]}, "eos_tokens_id: id 999"),
            "cache: text": ({"inputs": PROMPT, "use_cache": "off"}, "use_cache: 'off'", "True", "False"),
            "debug: 1": ({"inputs": PROMPT, "debug": 1}, "debug: 1", "True", "False"),
            "model: name": ({"inputs": PROMPT, "model": "gpt2"}, "'gpt2'", "model"),
            "model: class": ({"inputs": PROMPT, "model": PreTrainedModel}, "model"),
            "model: layer": ({"inputs": PROMPT, "model": torch.nn.Linear(2, 2)}, "model"),
            "processor: class": (
                {"inputs": PROMPT, "logits_processor": GreedyProcessor},
                "logits_processor",
                "GreedyProcessor()",
            ),
            "processor: transformers'": (
                {"inputs": PROMPT, "logits_processor": TemperatureLogitsWarper(0.5)},
                "GreedyProcessor()",
            ),
            "processor: logits": ({"inputs": PROMPT, "logits_processor": Logits()}, "rows that are no probabilities"),
            "processor: None": ({"inputs": PROMPT, "logits_processor": Silent()}, "Silent", "None"),
        },
    ),
    row(
        "model: no head",
        lambda: plain(PROMPT, model=model("target").model),
        "LlamaModel",
        "expected a model of docs/models.md",
    ),
    row("model: recurrent", lambda: plain(PROMPT, model=model("mamba"))),
    row("model: its pair", lambda: plain(PROMPT, model=_pair()), "model"),
    row("other vocabulary", lambda: drafted(target=model("wide")), "vocabularies of 300 and 261 tokens"),
    row("other family, same ids", lambda: drafted(drafter=model("gpt2"))),
    row("no drafter", lambda: drafted(drafter=None), "None", "model"),
    *refused(
        drafted,
        {
            "gamma: -1": ({"gamma": -1}, "gamma: '-1'", 0),
            "gamma: processor": ({"gamma": GreedyProcessor()}, "0 <= INT <= 1024"),
            "egag: processor": ({"use_egag": GreedyProcessor()}, "True", "False"),
            "egag: bounds": ({"use_egag": True, "gamma_min": 5, "gamma_max": 2}, "gamma_min 5 is above gamma_max 2"),
            "egag: NaN": ({"use_egag": True, "egag_ema_beta": math.nan}, "egag_ema_beta: 'nan'"),
            "adjustment: None": ({"skip_sample_adjustment": None}, "skip_sample_adjustment: None"),
            "tokenizer: name": ({"tokenizer": "gpt2"}, "tokenizer 'gpt2'"),
        },
    ),
    row("storage: None", lambda: counted(None), "ngramstorage None"),
    row("storage: class", lambda: counted(NGramStorage), "NGramStorage(3)"),
    row("storage: smaller vocabulary", lambda: counted(NGramStorage(3, 6)), "token: id 6", 0, 5),
    row("filler: 0", lambda: counted(NGramStorage(3), filler_top_k=0), "filler_top_k: '0'"),
    row("storage: order 1", lambda: NGramStorage(1), "n-gram order 1", 2),
    row("storage: batch", lambda: NGramStorage(3).initialize(_LONG.expand(2, 2)), "tokens of shape (2, 2)"),
    row("storage: text", lambda: NGramStorage(3).update("ab", "c"), "context 'ab'"),
    row("beams: 0", lambda: beams(num_beams=0), "num_beams: '0'"),
    row("beams: penalty", lambda: beams(alpha=1e300), "alpha: '1e+300'"),
    row("beams: text", lambda: beams(top_k="3"), "top_k: '3'", "1 <= INT <= 1024"),
    row("generate: batch", lambda: hooked(torch.tensor([PROMPT, PROMPT])), "2 prompts"),
    row("generate: beams", lambda: hooked(num_beams=2), "num_beams 2"),
    row("generate: words", lambda: hooked(bad_words_ids=[[5]]), "NoBadWordsLogitsProcessor"),
    row("generate: gamma", lambda: speculative(model("drafter"), gamma=-1), "gamma: '-1'"),
    row("generate: drafter", lambda: speculative("gpt2"), "'gpt2'", "model"),
    *refused(
        events,
        {
            "decode: text": ({"prompt": "the cat"}, "prompt 'the cat'"),
            "decode: empty": ({"prompt": []}, "prompt", "token"),
            "decode: unknown id": ({"prompt": [261]}, "prompt: id 261", 0, 260),
            "decode: length 0": ({"max_new_tokens": 0}, "0 new tokens", 1),
            "decode: length None": ({"max_new_tokens": None}, "max_new_tokens None"),
            "decode: stop None": ({"stop": None}, "stop None"),
            "decode: stop text": ({"stop": "ab"}, "stop 'ab'"),
            "decode: drafter class": ({"drafter": PromptLookupDrafter}, "Drafter"),
            "decode: gamma": ({"gamma": 4}, "gamma 4", "LengthRule"),
            "decode: verifier": ({"verifier": RejectionVerifier}, "Verifier"),
            "decode: processor": ({"processor": GreedyProcessor}, "LogitsProcessor"),
            "decode: seed": ({"seed": "x"}, "seed 'x'"),
        },
    ),
    row("decode: transformers' model", lambda: events(target=model("target")), "target LlamaForCausalLM", "Runner"),
    row("decode: rule", lambda: FixedGamma(-1), "gamma: '-1'", 0),
    row("decode: one runner, two texts", lambda: interleaved(lambda: _pair().target), "another text was begun"),
    row("decode: a runner a text", lambda: interleaved(lambda: ModelRunner(_pair().target.model))),
    row("decode: closed", closed),
    row("interrupted", lambda: again_after(lambda: drafted(logits_processor=Interrupted()))),
    row("refused", lambda: again_after(lambda: drafted(gamma=None))),
    row(
        "class with _process",
        lambda: type_error(lambda: type("Mine", (GreedyProcessor,), {"_process": abs})),
        "Mine._process",
    ),
    row("temperature 0", lambda: NucleusProcessor(0.0, 0.9), "temperature: '0.0'", "1e-10"),
    row("tensor prompt", lambda: plain(torch.tensor([PROMPT], dtype=torch.int32))),
    row("tensor of stops", lambda: plain(PROMPT, eos_tokens_id=torch.tensor([[3, 4]]))),
    row("no stops", lambda: plain(PROMPT, eos_tokens_id=[])),
    row("more than fits", lambda: plain(PROMPT, model=model("target"), max_gen_len=10**7)),
]
