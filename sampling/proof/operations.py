"""What every operation of a forward gives, by name and in order: of a lean model, and of transformers' modules."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from sampling.forward.causal_model import CausalModel
from sampling.forward.kernels.linear import Arithmetic, Kernel, Linear, Prepared
from sampling.forward.kernels.scores import Masks, Scores
from sampling.forward.models.adapter import TransformersWeights
from sampling.forward.models.blocks import Layer
from sampling.forward.models.lean import LeanModel
from sampling.forward.models.steps import Heads, Norm, ProductFormat, StepRows, Steps
from utils.errors import UserError

_NORMS = {
    "qkv": "attention_norm",
    "out": "attention, as it enters out",
    "gate_up": "mlp_norm",
    "experts": "mlp_norm",
    "down": "silu_and_mul",
}


@dataclass(slots=True)
class Recording:
    """The results of the forward under way, `[n, ...]` each, n the number of its rows.

    What has no row for each token, such as the tokens that one expert of a mixture takes, is left out. axes: where a
    module's result has them, known from its first forward: later numbers of rows may be those of its heads as well.
    """

    rows: int = 0
    results: dict[str, Tensor] = field(default_factory=dict)
    axes: dict[str, int] = field(default_factory=dict)

    def begin(self, rows: int) -> None:
        """A forward of so many rows comes next."""
        self.rows, self.results = rows, {}

    def add(self, name: str, result: Tensor) -> None:
        """The next result of a lean model. Parts of a rounded row lie below each other: they count as one."""
        if result.is_floating_point() and not result.shape[0] % self.rows:
            self._keep(name, result.unflatten(0, (-1, self.rows)).transpose(0, 1))

    def add_module(self, name: str, result: Any) -> None:
        """The next result of one of transformers' modules, `[1, n, ...]`, `[1, heads, n, ...]` or `[n, ...]`."""
        if not isinstance(result, Tensor) or not result.is_floating_point() or not result.dim():
            return
        if result.dim() > 2 and result.shape[0] == 1:
            result = result[0]
        sizes = result.shape[:-1] or result.shape
        axis = self.axes.get(name, sizes.index(self.rows) if self.rows in sizes else None)
        if axis is None or axis >= len(sizes) or sizes[axis] != self.rows:
            return
        self.axes[name] = axis
        self._keep(name, result.movedim(axis, 0))

    def _keep(self, name: str, by_row: Tensor) -> None:
        number = 1 + sum(other == name or other.startswith(f"{name} (") for other in self.results)
        self.results[name if number == 1 else f"{name} ({number})"] = by_row.detach().flatten(1).clone()


@contextmanager
def recorded(model: CausalModel) -> Iterator[tuple[CausalModel, Recording]]:
    """The model, and the results of its forwards while the context lasts.

    Raises `UserError` for a model that is neither lean nor of transformers' modules.
    """
    recording = Recording()
    if isinstance(model, LeanModel):
        yield _RecordedModel(model, recording), recording
    elif isinstance(model, TransformersWeights):
        hooks = list(_hooked(model.hf, recording))
        try:
            yield model, recording
        finally:
            for hook in hooks:
                hook.remove()
    else:
        raise UserError(f"the operations of {type(model).__name__} have no names; expected a model in one process")


def _hooked(modules: nn.Module, recording: Recording) -> Iterator[Any]:
    """A module without parts is an operation. What comes between two of them is the input of the second."""
    for name, module in modules.named_modules():
        if next(module.children(), None) is None:

            def entering(module: nn.Module, inputs: tuple[Any, ...], name: str = name) -> None:
                recording.add_module(f"before {name}", inputs[0] if inputs else None)

            def leaving(module: nn.Module, inputs: Any, result: Any, name: str = name) -> None:
                recording.add_module(name, result[0] if isinstance(result, tuple) else result)

            yield module.register_forward_pre_hook(entering)
            yield module.register_forward_hook(leaving)


class _Product:
    """A product, or an output matrix, that notes what it gives."""

    def __init__(self, inner: Any, name: str, recording: Recording) -> None:
        self._inner, self.name, self._recording = inner, name, recording

    @property
    def arithmetic(self) -> Arithmetic:
        arithmetic: Arithmetic = self._inner.arithmetic
        return arithmetic

    @property
    def added(self) -> Tensor | None:
        added: Tensor | None = self._inner.added
        return added

    def product(self, x: Tensor) -> Tensor:
        return self.multiplied((x,))

    def multiplied(self, entered: Prepared) -> Tensor:
        result: Tensor = self._inner.multiplied(entered)
        self._recording.add(self.name, result)
        return result

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = self._inner(x)
        self._recording.add(self.name, result)
        return result

    def with_kernel(self, kernel: Kernel) -> Linear:
        return self._inner.with_kernel(kernel)  # type: ignore[no-any-return]


class _RecordedSteps:
    """The steps between products, with what they give; products know whose they are."""

    def __init__(self, inner: Steps, recording: Recording) -> None:
        self._inner, self._recording = inner, recording

    def enter(self, x: Tensor, into: Any) -> Prepared:
        entered = self._inner.enter(x, into)
        self._entered(into, entered)
        return entered

    def turn(
        self, raw: Tensor, rest: Prepared, of: Any, norms: tuple[Norm | None, Norm | None], cos: Tensor, sin: Tensor
    ) -> Heads:
        heads = self._inner.turn(raw, rest, of, norms, cos, sin)
        self._recording.add(f"{_layer(of)}.rotary turn", torch.cat(heads, dim=1))
        return heads

    def attend(
        self,
        raw: Tensor,
        rest: Prepared,
        of: Any,
        norms: tuple[Norm | None, Norm | None],
        cos: Tensor,
        sin: Tensor,
        rows: StepRows,
        masks: Masks | None,
        scores: Scores,
    ) -> Tensor:
        return rows.attend(*self.turn(raw, rest, of, norms, cos, sin), masks, scores)

    def join(
        self, x: Tensor, raw: Tensor, rest: Prepared, of: Any, norms: tuple[Norm | None, Norm | None], into: Any
    ) -> tuple[Tensor, Prepared]:
        joined, entered = self._inner.join(x, raw, rest, of, norms, into)
        self._recording.add(f"{of.name}, residual", joined)
        self._entered(into, entered)
        return joined, entered

    def leave(self, x: Tensor, raw: Tensor, rest: Prepared, of: ProductFormat, after: Norm | None = None) -> Tensor:
        return self._inner.leave(x, raw, rest, of, after)

    def gate(self, raw: Tensor, rest: Prepared, of: ProductFormat, into: Any) -> Prepared:
        entered = self._inner.gate(raw, rest, of, into)
        self._entered(into, entered)
        return entered

    def _entered(self, into: Any, entered: Prepared) -> None:
        self._recording.add(f"{_layer(into)}.{_NORMS[into.name.rpartition('.')[2]]}", entered[0])


def _layer(product: Any) -> str:
    return str(product.name).rpartition(".")[0]


class _RecordedNorm:
    """The last norm."""

    def __init__(self, inner: Norm, recording: Recording) -> None:
        self.weight, self._inner, self._recording = inner.weight, inner, recording

    def __call__(self, x: Tensor) -> Tensor:
        result = self._inner(x)
        self._recording.add("norm", result)
        return result


class _RecordedLayer:
    """A layer of a cache, which attends."""

    def __init__(self, inner: Any, name: str, recording: Recording) -> None:
        self._inner, self._name, self._recording = inner, name, recording

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Masks | None, scores: Scores) -> Tensor:
        result: Tensor = self._inner.attend(query, keys, values, mask, scores)
        self._recording.add(self._name, result)
        return result


class _RecordedCache:
    """A cache whose layers note what they give."""

    def __init__(self, inner: Any, recording: Recording) -> None:
        self.layers = [
            _RecordedLayer(layer, f"layers.{index}.attention", recording) for index, layer in enumerate(inner.layers)
        ]


class _RecordedModel:
    """A lean model whose parts note what they give."""

    def __init__(self, model: LeanModel, recording: Recording) -> None:
        def noting(layer: Layer, index: int) -> Layer:
            parts: dict[str, Any] = {**layer.products(), **({"experts": layer.experts} if layer.experts else {})}
            noted: dict[str, Any] = {
                name: _Product(part, f"layers.{index}.{name}", recording) for name, part in parts.items()
            }
            return replace(layer, **noted)

        layers = tuple(noting(layer, index) for index, layer in enumerate(model.layers))
        steps: Any = _RecordedSteps(model.blocks.steps, recording)
        norm: Any = _RecordedNorm(model.norm, recording)
        self._model = replace(
            model,
            blocks=replace(model.blocks, layers=layers, compiled=steps),
            norm=norm,
            head=_Product(model.head, "output matrix", recording),
        )
        self._recording = recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(
        self, tokens: Tensor, positions: Tensor, mask: Tensor | None, cache: Any, hidden: Any, rows: Any
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `LeanModel.forward`."""
        return self._model.forward(tokens, positions, mask, _RecordedCache(cache, self._recording), hidden, rows)
