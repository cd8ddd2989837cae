"""Captured forwards with our kernels, as they are called off CUDA, beside the same model's plain ones."""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sampling.forward.cpp.library import use_own_kernels
from sampling.forward.kernels.formats import FORMATS
from sampling.forward.kernels.probe import use_kernel
from sampling.forward.models import blocks, lean
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, feed, prefill
from sampling.forward.sharing import SharedRunner
from sampling.forward.triton.launch import Launch
from sampling.forward.triton.steps import TritonSteps
from tests.pretend_cuda import FREE

TREE = (-1, -1, 0)
VOCAB = 60
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 512,
}  # fmt: skip
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_WINDOWED = {
    "sliding_window": 6, "layer_types": ["sliding_attention"], "query_pre_attn_scalar": 16,
    "attn_logit_softcapping": 2.0, "final_logit_softcapping": None, "hidden_activation": "gelu_pytorch_tanh",
    "rope_parameters": {"sliding_attention": _ROPE, "full_attention": _ROPE},
}  # fmt: skip
CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: SimpleNamespace(**SIZES, model_type="llama"),
    "gemma3": lambda: SimpleNamespace(**SIZES, **_WINDOWED, model_type="gemma3_text"),
}
_NORMS = {"llama": (), "gemma3": ("pre_feedforward_layernorm", "post_feedforward_layernorm")}
_HEAD_NORMS = {"llama": (), "gemma3": ("self_attn.q_norm", "self_attn.k_norm")}


def model(name: str, layers: int = 1) -> LeanModel:
    """A random one, made without transformers' model code, which takes seconds to import."""
    chance, (hidden, inner, heads, dim) = torch.Generator().manual_seed(0), (32, 48, 2, 16)

    def drawn(*size: int) -> Tensor:
        return torch.randn(*size, generator=chance) * size[-1] ** -0.5

    products = {
        "self_attn.q_proj": (heads * dim, hidden), "self_attn.k_proj": (dim, hidden), "self_attn.v_proj": (dim, hidden),
        "self_attn.o_proj": (hidden, heads * dim), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }  # fmt: skip
    norms = dict.fromkeys(("input_layernorm", "post_attention_layernorm", *_NORMS[name]), hidden)
    sizes = {**products, **{norm: (size,) for norm, size in norms.items()}, **dict.fromkeys(_HEAD_NORMS[name], (dim,))}
    weights = {
        f"model.layers.{layer}.{part}.weight": drawn(*size) + (len(size) == 1)
        for layer in range(layers)
        for part, size in sizes.items()
    }
    weights |= {"model.embed_tokens.weight": drawn(VOCAB, hidden), "model.norm.weight": 1.0 + drawn(hidden)}
    return lean.from_weights(SimpleNamespace(**{**vars(CONFIGS[name]()), "num_hidden_layers": layers}), weights)


def _alike(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0.0, atol=2e-5 * float(expected.abs().max()))


def check_alone(name: str) -> None:
    """Prompt, chain, tree with a kept side branch, and what follows."""
    use_own_kernels(False)
    plain = ModelRunner(model(name))
    use_own_kernels(True)
    ours = ModelRunner.with_graphs(model(name))
    assert ours.cache.owner.split_keys and not plain.cache.owner.split_keys
    assert isinstance(ours.model.blocks.steps, TritonSteps)
    for runner in (plain, ours):
        prefill(runner, [5, 9, 2, 7, 7, 30, 4] * 10)
    for tokens, parents, path in (
        ([3, 8, 1, 4], TREE, (0, 2)),
        ([12], None, ()),
        ([3, 8], None, (0,)),
    ):
        base = plain.length
        one, other = (runner.forward(tokens, parents) for runner in (plain, ours))
        _alike(other.logits, one.logits)
        for runner in (plain, ours):
            runner.keep(base, path)


def check_one_graph_a_width(_: Any = None) -> None:
    """A text that grows past a bucket of columns is still fed by the same function."""
    use_own_kernels(True)
    runner = ModelRunner.with_graphs(model("llama"))
    prefill(runner, [5] * 255)
    for token in (1, 2, 3):
        runner.forward([token])
    assert runner.length == 258 and len(runner.graphs._captured.steps) == 1


def check_together(name: str) -> None:
    """Texts of several lengths in one forward, one of them a tree."""
    found = []
    for ours in (False, True):
        use_own_kernels(ours)
        shared = SharedRunner(model(name), fixed_shapes=ours)
        assert shared.cache.split_keys is ours
        slots, logits = [shared.another() for _ in range(2)], list[Tensor]()
        rounds = (
            [([5, 9, 2, 7, 7, 30, 4, 1, 2, 3], None), ([8, 8], None)],
            [([3, 8, 1], None), ([3, 8, 1, 4], TREE)],
        )
        for fed in rounds:
            feeds = [
                slot.feed(torch.tensor(tokens), parents, (), None)
                for slot, (tokens, parents) in zip(slots, fed, strict=True)
            ]
            logits += [output.logits.clone() for output in shared.run(feeds)]
        found.append(torch.cat(logits))
    _alike(found[1], found[0])


def check_blocks(_: Any = None) -> None:
    """Texts that end in different blocks, and go on over the edges of those, one of them as a tree."""
    found = []
    for ours in (False, True):
        use_own_kernels(ours)
        shared = SharedRunner(model("llama"), fixed_shapes=ours, blocks=ours)
        assert shared.cache.split_keys is ours and shared.cache.in_blocks is ours
        slots, logits = [shared.another() for _ in range(3)], list[Tensor]()
        for slot, length in zip(slots, (300, 254, 2), strict=True):
            feed(slot, [(number * number) % VOCAB for number in range(length)])
        for fed in ([([3, 8, 1], None), ([3, 8, 1, 4], TREE), ([5], None)], [([7], None)] * 3):
            feeds = [
                slot.feed(torch.tensor(tokens), parents) for slot, (tokens, parents) in zip(slots, fed, strict=True)
            ]
            logits += [output.logits.clone() for output in shared.run(feeds)]
        found.append(torch.cat(logits))
    _alike(found[1], found[0])


class _Launches(TorchDispatchMode):
    """What a card would be asked for, by name: operations that are no views, and our kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func._schema.name.split("::")[1])
        if not func.is_view and name not in FREE:
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


def in_fp8(ours: bool, layers: int = 1) -> LeanModel:
    """A model in fp8. Our kernels are taken as they are: the interpreter's own rounding is off, see `step_cases`."""
    use_own_kernels(ours)
    made = model("llama", layers).with_format(FORMATS["fp8"])
    with patch.object(blocks, "rounds_to_fp8", lambda *about: True):
        assert getattr(made.blocks.steps, "fp8", False) is ours
    return made


def check_fp8(_: Any = None) -> None:
    """A model in fp8 gives what it gives with plain steps, to that rounding; without a scale it does not."""
    plain, ours = (ModelRunner(in_fp8(which)) for which in (False, True))
    (expected, found) = (runner.forward([5, 9, 2, 7]).logits for runner in (plain, ours))
    assert 0.0 < (found - expected).norm() < 0.1 * expected.norm()
    rounding = TritonSteps.rounding

    def unscaled(steps: TritonSteps, both: Tensor, out: Tensor, scales: Tensor) -> Launch:
        scales.fill_(1.0)
        return rounding(steps, both, out, torch.empty_like(scales))

    ours.crop(0)
    with patch.object(TritonSteps, "rounding", unscaled):
        assert (ours.forward([5, 9, 2, 7]).logits - expected).norm() > 0.5 * expected.norm()


def launches(name: str) -> Counter[str]:
    """Those of one layer for a row, by name, with plain products. Our kernels are counted in place of being run."""
    use_own_kernels(True)
    use_kernel("plain")
    counts = []
    for layers in (2, 3):
        runner = ModelRunner.with_graphs(in_fp8(True, layers) if name == "fp8" else model(name, layers))
        assert isinstance(runner.model.blocks.steps, TritonSteps)
        with _Launches() as seen, patch.object(Launch, "run", lambda call: seen.found.update([call.kernel.__name__])):
            runner.forward([5])
        counts.append(seen.found)
    return counts[1] - counts[0]
