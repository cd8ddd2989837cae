"""What `auto` came to where rows were made: who adds to them, and the workers beside, compute the same way."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.plan.grid import Plan
from ablation.results.manifest import read
from sampling.loading.options import DTYPES
from sampling.methods.parameters import WEIGHTS
from utils.parameter import Values


@dataclass(frozen=True, slots=True)
class Chosen:
    """The dtype, the kernel, batch invariance, and whether drafters were in int8. None: nothing was chosen."""

    kernel: str | None = None
    batch_invariant: bool | None = None
    rough: bool | None = None
    dtype: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """The same as options of loading; `rough` is none."""
        alike = None if self.batch_invariant is None else "on" if self.batch_invariant else "off"
        options = {"dtype": self.dtype, "kernel": self.kernel, "batch_invariant": alike}
        return {name: value for name, value in options.items() if value is not None}

    def instead_of_auto(self, pair: Values) -> dict[str, Any]:
        """Options of loading, with what was chosen for each that is left to `auto`."""
        return {**pair, **{name: v for name, v in self.options.items() if pair.get(name, "auto") == "auto"}}


def chosen(path: Path, plan: Plan) -> Chosen:
    """What the rows beside a manifest were made with. Raises `UserError` for a file that is none."""
    return chosen_in(read(path)["fixed"], plan) if path.is_file() else Chosen()


def chosen_in(fixed: Mapping[str, Any], plan: Plan) -> Chosen:
    """The same of what a manifest says is fixed."""
    models = [_inside(fixed, role) for role in ("target", "drafter")]
    kernels = [model.get("kernel") for model in models]
    alike = models[0].get("batch_invariant")
    settings = _inside(_inside(fixed, "grid"), "configurations")
    auto = [c.name for c in plan.configurations if {**plan.values, **dict(c.parameters)}[WEIGHTS.name] == "auto"]
    came_to = [_inside(settings, name).get(WEIGHTS.name) for name in auto]
    return Chosen(
        next((kernel for kernel in kernels if isinstance(kernel, str) and kernel), None),
        alike if isinstance(alike, bool) else None,
        "int8" in came_to if "int8" in came_to or "full" in came_to else None,
        _dtype(models),
    )


def _dtype(models: list[Mapping[str, Any]]) -> str | None:
    """The dtype that all models have, where a trial on a CPU may have chosen it."""
    dtypes = {model.get("dtype") for model in models if model}
    on_cpu = any(model.get("device") == "cpu" for model in models)
    return next((name for name in DTYPES[1:] if on_cpu and dtypes == {name}), None)


def _inside(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A table inside another; an empty one where the file holds something else."""
    inner = table.get(key)
    return inner if isinstance(inner, dict) else {}
