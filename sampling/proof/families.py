"""Whether a family is batch-invariant on packed products: on its tiny model, operation by operation."""

from typing import cast

import torch

from sampling.forward.invariance import Invariant
from sampling.forward.kernels.formats import FORMATS, FULL
from sampling.forward.kernels.probe import AUTO, use_kernel
from sampling.forward.models import lean
from sampling.loading.adapt import adapted
from sampling.loading.families.configs import VOCABULARY, ModelFamily
from sampling.loading.families.judge import random_model
from sampling.proof.invariance import compare_counts
from utils.errors import UserError

_DTYPES = (torch.float32, torch.bfloat16)
_COUNTS = (2, 3, 5, 9, 17)
_CONTEXT = 20


def invariance_of(family: ModelFamily) -> str:
    """The page's cell: `both`, or of each format `yes` or the first operation that gives a row other bits.

    family: one that runs, decoder-only. Raises `UserError` where torch has no packed products.
    """
    use_kernel("packed")
    try:
        cells = {str(dtype).removeprefix("torch."): _first(family, dtype) for dtype in _DTYPES}
    finally:
        use_kernel(AUTO)
    if not any(cells.values()):
        return "both"
    return "; ".join(f"{name}: {f'`{first}`' if first else 'yes'}" for name, first in cells.items())


def _first(family: ModelFamily, dtype: torch.dtype) -> str | None:
    """The first operation that differs in any number of rows; None where none does."""
    hf = random_model(family.config(), 0).to(dtype)
    try:
        plain = lean.from_transformers(hf, format=FORMATS[FULL]) if lean.fits(hf) else adapted(family.model_type, hf)
    except UserError:
        return "does not run"
    model = cast(Invariant, plain).with_batch_invariance(True)
    text = [(7 * place * place + 3 * place) % VOCABULARY for place in range(_CONTEXT + max(_COUNTS))]
    try:
        results = list(compare_counts(model, text, _COUNTS, _CONTEXT))
    except UserError as error:
        return str(error)
    return next((result.first.operation for result in results if result.first), None)
