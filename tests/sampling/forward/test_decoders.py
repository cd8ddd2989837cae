"""Every decoder that the lean forward describes: its logits are those of transformers, in float64, to 1e-10."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import PretrainedConfig, PreTrainedModel

from sampling.forward.caches.cache import RollbackCache
from sampling.forward.kernels import int4, int8
from sampling.forward.kernels.formats import FORMATS
from sampling.forward.models import lean
from sampling.forward.models.decoders.table import DECODERS
from sampling.forward.models.experts import experts_of
from sampling.forward.models.flat import examples
from sampling.forward.runner import ModelRunner
from sampling.forward.sharing import SharedRunner
from sampling.loading.adapt import adapted
from sampling.loading.families.configs import ModelFamily
from sampling.loading.families.judge import random_model

_PATTERN = {"num_hidden_layers": 4}
_ROPE = {"rope_type": "default", "rope_theta": 1e4}
_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
_UNSCALED = {**_ROPE, "llama_4_scaling_beta": 0.0, "original_max_position_embeddings": 128}
_FACTORS = {
    "embedding_multiplier": 12.0,
    "attention_multiplier": 0.3,
    "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
}
_PART = {"head_dim": 16, "rope_parameters": {**_ROPE, "partial_rotary_factor": 0.75}}
_LAST = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}
_PLAIN = (
    "llama",
    "internlm3",
    "iquestcoder",
    "qwen2",
    "qwen3",
    "seed_oss",
    "gemma",
    "phi3",
    "olmo2",
    "glm4",
    "mixtral",
)
_WINDOWS = ("mistral", "ministral", "smollm3", "gemma2", "olmo3", "exaone4", "cohere2", "gpt_oss")
SETTINGS: list[ModelFamily] = [
    *map(ModelFamily, _PLAIN),
    *(ModelFamily(name, "published layers", _PATTERN) for name in _WINDOWS),
    ModelFamily("gemma3_text", "published layers", {"num_hidden_layers": 7}),
    ModelFamily("granite", "four factors", _FACTORS),
    ModelFamily("qwen3_moe", "a dense layer", {**_PATTERN, "mlp_only_layers": [1], "norm_topk_prob": True}),
    ModelFamily("qwen3_moe", "weights as they are", {"norm_topk_prob": False}),
    ModelFamily("ministral3", "no scaled queries", {"rope_parameters": _UNSCALED}),
    ModelFamily("phi3", "a part of a head turns", _PART),
    ModelFamily("glm4", "yarn on a part of a head", {"rope_parameters": {**_YARN, "partial_rotary_factor": 0.5}}),
    ModelFamily("mistral", "yarn", {"sliding_window": None, "rope_parameters": _YARN}),
    ModelFamily("qwen2", "a window in the last layers", {**_PATTERN, **_LAST}),
]
IDS = list(map(str, SETTINGS))


class _Wide(TorchFunctionMode):
    """What asks for float32 gets float64: what transformers widens on the way is as wide as all else."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        wider = {torch.float32: torch.float64}
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        kwargs = {key: wider.get(value, value) if key == "dtype" else value for key, value in (kwargs or {}).items()}
        if function is torch.Tensor.to:
            args = [wider.get(arg, arg) if isinstance(arg, torch.dtype) else arg for arg in args]
        return function(*args, **kwargs)


@contextmanager
def _in_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Wide():
            yield
    finally:
        torch.set_default_dtype(before)


def _tokens(count: int) -> list[int]:
    return torch.randint(3, 128, (count,), generator=torch.Generator().manual_seed(1)).tolist()


def _both(family: ModelFamily) -> tuple[PreTrainedModel, lean.LeanModel]:
    model = random_model(family.config(), 0).double()
    for name, buffer in type(model)(model.config).named_buffers():  # a cast of the model casts its frequencies as well
        model.get_buffer(name).data = buffer.double()
    model.config._attn_implementation = model.config._experts_implementation = "eager"
    assert lean.fits(model)
    return model, lean.from_transformers(model)


def _near(ours: Tensor, theirs: Tensor) -> bool:
    return torch.allclose(ours, theirs, rtol=0, atol=1e-10)


def _disagrees(family: ModelFamily, spoil: Callable[[lean.LeanModel], lean.LeanModel] = lambda model: model) -> str:
    """Where our logits are not transformers': fed at once, in parts, as a chain that is taken back, and as a tree."""
    tokens = _tokens(30)
    with _in_float64(), torch.inference_mode():
        model, ours = _both(family)
        expected, runner = model(torch.tensor([tokens])).logits[0], ModelRunner(spoil(ours))
        if not _near(runner.forward(tokens[:20]).logits, expected[:20]):
            return "at once"
        wrong = [(token + 1) % 128 for token in tokens]
        runner.forward([tokens[20], *wrong[21:24]])
        runner.crop(20)
        if not _near(runner.forward(tokens[20:24]).logits, expected[20:24]):
            return "as a chain behind drafts that were taken back"
        drafts = [wrong[25], tokens[25], wrong[26], tokens[26], tokens[27]]
        tree = runner.forward([tokens[24], *drafts], (-1, -1, 1, 1, 3))
        if not _near(tree.logits[[0, 2, 4, 5]], expected[24:28]):
            return "as a tree"
        runner.keep(24, (1, 3, 4))
        return "" if _near(runner.forward([tokens[28]]).logits, expected[28:29]) else "alone, behind a tree"


@pytest.mark.parametrize("family", SETTINGS, ids=IDS)
def test_the_logits_are_those_of_transformers(family: ModelFamily) -> None:
    """Of a text of three windows."""
    assert _disagrees(family) == ""


def test_every_decoder_has_a_setting() -> None:
    assert {family.model_type for family in SETTINGS} == {*DECODERS}


def _layers(**changes: Any) -> Callable[[lean.LeanModel], lean.LeanModel]:
    """A model whose layers' scores are others."""

    def spoil(model: lean.LeanModel) -> lean.LeanModel:
        layers = tuple(replace(layer, scores=replace(layer.scores, **changes)) for layer in model.layers)
        return replace(model, blocks=replace(model.blocks, layers=layers))

    return spoil


def _narrower(model: lean.LeanModel) -> lean.LeanModel:
    layers = tuple(
        replace(layer, scores=replace(layer.scores, window=layer.scores.window and layer.scores.window - 1))
        for layer in model.layers
    )
    return replace(model, blocks=replace(model.blocks, layers=layers))


def _other_tables(model: lean.LeanModel) -> lean.LeanModel:
    return replace(model, blocks=replace(model.blocks, tables=model.blocks.tables[::-1]))


FAULTS: dict[str, tuple[str, Callable[[lean.LeanModel], lean.LeanModel]]] = {
    "a window off by one": ("mistral", _narrower),
    "no window": ("ministral", _layers(window=None)),
    "no sinks": ("gpt_oss", _layers(sinks=None)),
    "no cap on scores": ("gemma2", _layers(cap=None)),
    "no cap on logits": ("gemma2", lambda model: replace(model, logit_cap=None)),
    "another scale of scores": ("granite", _layers(scale=None)),
    "another scale of embeddings": ("gemma", lambda model: replace(model, embedding_scale=1.0)),
    "another scale of logits": ("cohere2", lambda model: replace(model, logit_scale=1.0)),
    "the rotary table of the other layers": ("gemma3_text", _other_tables),
    "positions where there are none": ("smollm3", _other_tables),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    name, spoil = FAULTS[fault]
    family = next(family for family in SETTINGS if family.model_type == name)
    assert _disagrees(family, spoil) != ""


def _small(family: ModelFamily) -> PretrainedConfig:
    """Of sizes that int4 takes."""
    config = family.config()
    sizes = {"hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 64, "head_dim": 16}
    for name, size in sizes.items():
        if hasattr(config, name):
            setattr(config, name, size)
    return config


ROUNDED = ("float32 int8", "float32 int4", "bfloat16 int8")
# Every family in one of them, in turn; what is unlike a Llama in its products or scores in each.
IN_FORMATS = [
    pytest.param(family, setting, id=f"{setting}-{family}")
    for place, family in enumerate(SETTINGS)
    for turn, setting in enumerate(ROUNDED)
    if place % 3 == turn or family.model_type in ("llama", "gpt_oss", "qwen3_moe", "gemma2")
]


@pytest.mark.parametrize(("family", "setting"), IN_FORMATS)
def test_a_row_is_the_same_alone_and_among_others(family: ModelFamily, setting: str) -> None:
    """In rounded formats, whose products are batch-invariant: to the bit, in chains, in trees and in batches."""
    dtype, weights = setting.split()
    if not (int8.runs() and int4.runs()):
        pytest.skip("no products in int8 or int4")
    whole = random_model(_small(family), 0).to(getattr(torch, dtype))
    model = lean.from_transformers(whole, format=FORMATS[weights])
    assert model.batch_invariant and model.layers[0].out.arithmetic.name != "plain"
    tokens = _tokens(30)
    with torch.inference_mode():
        one, many = ModelRunner(model), ModelRunner(model)
        for runner in (one, many):
            runner.forward(tokens[:12])
        alone = torch.cat([one.forward([token]).logits for token in tokens[12:18]])
        assert torch.equal(many.forward(tokens[12:18]).logits, alone)
        many.crop(12)
        tree = many.forward([tokens[12], 5, tokens[13], 7, tokens[14]], (-1, -1, 1, 1))
        assert torch.equal(tree.logits[[0, 2, 4]], alone[:3])
        many.keep(12, (1, 3))
        assert torch.equal(many.forward(tokens[15:18]).logits, alone[3:])
        shared = SharedRunner(model)
        texts = [tokens[:12], tokens[3:20]]
        slots = [shared.another() for _ in texts]
        for slot, text in zip(slots, texts, strict=True):
            slot.forward(text)
        beside, _ = shared.run([slots[0].feed(tokens[12:15]), slots[1].feed(tokens[20:21])])
        assert torch.equal(beside.logits, alone[:3])


@pytest.mark.parametrize("family", SETTINGS, ids=IDS)
def test_fixed_shapes_and_batches_say_the_same(family: ModelFamily) -> None:
    """In float32, to rounding, chains and trees."""
    model = lean.from_transformers(random_model(family.config(), 0))
    tokens, parents = _tokens(40), (-1, -1, 1, 1)
    fed = [tokens[20], 5, tokens[21], 7, tokens[22]]
    with torch.inference_mode():
        plain, fixed, shared = ModelRunner(model), ModelRunner.with_graphs(model), SharedRunner(model)
        slots = [shared.another(), shared.another()]
        for runner in (plain, fixed, *slots):
            runner.forward(tokens[:20])
        slots[1].forward(tokens[20:33])
        expected = plain.forward(fed, parents).logits
        close = {"rtol": 1e-4, "atol": 1e-4}
        assert torch.allclose(fixed.forward(fed, parents).logits, expected, **close)
        beside, _ = shared.run([slots[0].feed(fed, parents), slots[1].feed(tokens[33:34])])
        assert torch.allclose(beside.logits, expected, **close)


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "gpt_oss", "qwen2_moe"])
def test_the_experts_that_a_round_wakes_are_counted(name: str) -> None:
    """Of all rows together, each expert once: by layer, as transformers' router chooses for the same rows."""
    hf = random_model(ModelFamily(name).config(), 0)
    tokens, chosen = _tokens(24), []
    model = lean.from_transformers(hf) if lean.fits(hf) else adapted(name, hf)
    routers = [module for path, module in hf.named_modules() if path.endswith(("mlp.gate", "mlp.router"))]
    for router in routers:
        router.register_forward_hook(lambda _, given, result: chosen.append(result[2][-4:].unique()))
    with torch.inference_mode():
        hf(torch.tensor([tokens]))
        runner = ModelRunner(model)
        runner.forward(tokens[:20])
        runner.forward(tokens[20:])
    woken = experts_of(model)
    assert [two[:2] for two in woken] == [(len(experts), 4) for experts in chosen[: len(routers)]]
    assert len(woken) == len(routers) > 0 and all(0 < seconds < 1 for *_, seconds in woken)
    assert any(awake > 2 for awake, *_ in woken), "one token's choice is not the round's"


@pytest.mark.parametrize("family", SETTINGS, ids=IDS)
def test_formulas_and_a_cache_of_one_sequence_say_the_same(family: ModelFamily) -> None:
    """The formulas are what a compiler takes; the cache is that of a process with a part of a model."""
    model = lean.from_transformers(random_model(family.config(), 0))
    tokens, parents, fed = _tokens(40), (-1, -1, 1, 1), [7, 5, 9, 7, 11]
    with torch.inference_mode():
        runner = ModelRunner(model)
        runner.forward(tokens[:20])
        expected = runner.forward(fed, parents).logits
        cache = RollbackCache(model.num_layers, model.device, model.dtype)
        steps = replace(model, blocks=replace(model.blocks, compiled=examples(model.blocks)))
        for ids, tree in ((tokens[:20], None), (fed, parents)):
            positions, mask = cache.lay_out(len(ids), tree)
            logits, _ = steps.forward(torch.tensor(ids), positions, mask, cache, (), len(ids))
            cache.advance(len(ids))
        assert torch.allclose(logits, expected, rtol=1e-4, atol=1e-4)
        for kept in (runner, cache):
            kept.keep(20, (1, 3))
        positions, mask = cache.lay_out(1)
        alone, _ = steps.forward(torch.tensor([3]), positions, mask, cache, (), 1)
        assert torch.allclose(alone, runner.forward([3]).logits, rtol=1e-4, atol=1e-4)
