"""Whether a model says the same in two ways, to rounding: what a few tokens tell."""

from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor

FORWARD_ERRORS = (
    TypeError, AttributeError, ValueError, IndexError, KeyError, NotImplementedError, RuntimeError, AssertionError
)  # fmt: skip
LENGTH = 6
_EXACT = (torch.float32, torch.float64)


def probe_tokens(config: Any) -> list[int]:
    """A few ids that stand for nothing but themselves: padding, say, has another position in some models."""
    special = {value for key, value in config.to_dict().items() if key.endswith("token_id") and isinstance(value, int)}
    tokens = getattr(config, "vocab_size", None) or config.get_text_config().vocab_size
    plain = [id for id in range(min(tokens, 64)) if id not in special]
    return list(islice(cycle(plain or [0]), LENGTH))


def all_close(a: Tensor, b: Tensor) -> bool:
    """Equal to rounding, which a real fault exceeds many times over."""
    exact = a.dtype in _EXACT and torch.get_float32_matmul_precision() == "highest"
    a, b = a.float(), b.float()
    return bool((a - b).norm() <= (1e-3 if exact else 0.05) * a.norm() + 1e-6)
