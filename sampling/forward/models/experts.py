"""A mixture of experts: a router chooses a few MLPs for each token."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.kernels.linear import PLAIN, Arithmetic, Kernel, Prepared, Product

_ROUND = 33


@dataclass(frozen=True, slots=True)
class Router:
    """Which experts a token goes to, and with what weights.

    weight `[experts, H]` and bias give the scores. top: experts a token. renormalised: the weights of those chosen sum
    to 1. chosen_first: the softmax is over the chosen scores alone, in their dtype (gpt-oss); else it is over all of
    them, in float32.
    """

    weight: Tensor
    bias: Tensor | None
    top: int
    renormalised: bool = True
    chosen_first: bool = False

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and numbers of the experts of rows `[n, H]`, `[n, top]` each."""
        scores = self._scores(x)
        if self.chosen_first:
            best, chosen = scores.topk(self.top, dim=-1)
            return torch.softmax(best, dim=-1), chosen
        weights, chosen = torch.softmax(scores.float(), dim=-1).topk(self.top, dim=-1)
        if self.renormalised:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(x.dtype), chosen

    def _scores(self, x: Tensor) -> Tensor:
        """`[n, experts]`. On a CPU the rows of a round go one by one: no row depends on what is fed beside it."""
        parts = x.split(1) if x.device.type == "cpu" and len(x) <= _ROUND else (x,)
        return torch.cat([F.linear(part, self.weight, self.bias) for part in parts])


@dataclass(slots=True)
class Woken:
    """The experts of a layer that the last forward woke, of all that it has, and the seconds that they took.

    Seconds are the host's, which are those of the products on a CPU alone.
    """

    experts: int
    of: int
    seconds: float = 0.0


def experts_of(model: object) -> tuple[tuple[int, int, float], ...]:
    """What the last forward of a model woke, by layer with experts: how many, of how many, and their seconds.

    Empty for a model without experts, and for one that does not count them.
    """
    woken: tuple[Woken, ...] = getattr(model, "woken", ())
    return tuple((layer.experts, layer.of, layer.seconds) for layer in woken)


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """All MLPs of a layer as one product. Only those run that a row chose, each on its rows.

    A row's sum is in the order of its experts' numbers, whatever is fed beside it. gate: of gate and up side by side.
    """

    router: Router
    gate_up: tuple[Product, ...]
    down: tuple[Product, ...]
    gate: Callable[[Tensor], Tensor]
    woken: Woken
    arithmetic: Arithmetic = PLAIN
    added: Tensor | None = None

    def product(self, x: Tensor) -> Tensor:
        """`[n, H]` -> `[n, H]`."""
        begun = perf_counter()
        weights, chosen = self.router(x)
        awake = chosen.unique().tolist()
        self.woken.experts = len(awake)
        out = torch.zeros_like(x)
        for expert in awake:
            rows, place = (chosen == expert).nonzero(as_tuple=True)
            said = self.down[expert](self.gate(self.gate_up[expert](x[rows])))
            out.index_add_(0, rows, (said * weights[rows, place].unsqueeze(1)).to(x.dtype))
        self.woken.seconds = perf_counter() - begun
        return out

    def multiplied(self, entered: Prepared) -> Tensor:
        """See `Product`."""
        return self.product(entered[0])

    def __call__(self, x: Tensor) -> Tensor:
        return self.product(x)

    def with_kernel(self, kernel: Kernel) -> "Experts":
        """The same experts, their products computed by another kernel; the router stays."""
        gate_up, down = (tuple(one.with_kernel(kernel) for one in many) for many in (self.gate_up, self.down))
        return replace(self, gate_up=gate_up, down=down, woken=Woken(0, self.woken.of))
