"""Attention: each kernel over few rows and many, short texts and long, beside the same in float64."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ablation.gpu_check.probe.trial import Numbers, Probe, ProbeDevice, compared
from ablation.gpu_check.record import LeftOut
from sampling.forward.caches.cache import additive
from sampling.forward.kernels.attention import folded_mask, grouped_attention
from sampling.forward.triton.attention import SplitKeys
from sampling.forward.triton.choice import may_use
from utils.text import first_line

ROWS, COLUMNS = (1, 5, 17, 64), (512, 2048, 8192, 32_768)
OURS, CHOSEN = "split keys", "as torch chooses"
BACKENDS = {
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
_ON_CARDS = {"efficient", "cudnn"}
_LOUD = 12.0
_STALE = 32
"""Columns behind the text that nobody may see."""


@dataclass(frozen=True, slots=True)
class Case:
    """A chain of fed rows behind a text. query: `[n, heads, D]`; keys, values: `[1, kv_heads, columns, D]`.

    length: columns that all rows see. expected: `[n, heads * D]` in float64, of the chain and of rows that see all.
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    length: int
    expected: Tensor
    unmasked: Tensor

    @property
    def seen(self) -> Tensor:
        """Which columns each row sees, `[n, columns]`."""
        return _chain(len(self.query), self.length, self.keys.shape[2], self.query.device)


def attention(on: ProbeDevice) -> Iterator[Probe]:
    """A probe for each kernel, number of rows and number of columns; ours first."""
    for kernel in (OURS, CHOSEN, *BACKENDS):
        for rows in ROWS:
            for columns in COLUMNS:
                of = SplitKeys.attend if kernel == OURS else grouped_attention
                name = f"attention, {kernel}: {rows} x {columns}"
                yield Probe(name, of, partial(_probe, on, kernel, rows, columns))


def _probe(on: ProbeDevice, kernel: str, rows: int, columns: int) -> Numbers:
    if kernel == OURS:
        if not may_use(on.device):
            raise LeftOut("needs Triton and a card of compute capability 8.0")
        case = drawn_case(on, rows, columns)
        return compared(partial(_split, case), case.expected, on)
    if kernel in _ON_CARDS and not on.card:
        raise LeftOut("a kernel of cards")
    case = drawn_case(on, rows, columns)
    masked = kernel != "flash"  # the one kernel that takes no mask; it serves rows that see all
    call = partial(_grouped, case, masked)
    if kernel != CHOSEN:
        call = partial(_forced, BACKENDS[kernel], call)
    return compared(call, case.expected if masked else case.unmasked, on)


def _split(case: Case) -> Tensor:
    count, device = len(case.query), case.query.device
    among = torch.ones(1, count, count, dtype=torch.bool, device=device).tril()
    length = torch.tensor([case.length], device=device)
    return SplitKeys.of(length, among).attend(case.query, case.keys, case.values)


def _grouped(case: Case, masked: bool) -> Tensor:
    group = case.query.shape[1] // case.keys.shape[1]
    mask = folded_mask(additive(case.seen, case.query.dtype), group) if masked else None
    return grouped_attention(case.query, case.keys, case.values, mask)


def _forced(backend: SDPBackend, call: Callable[[], Tensor]) -> Tensor:
    """With this kernel of torch's and no other. Raises `LeftOut` where it says that it does not serve."""
    with warnings.catch_warnings(record=True) as said, sdpa_kernel([backend]):
        warnings.simplefilter("always")
        try:
            return call()
        except RuntimeError as error:
            if "kernel" not in (told := first_line(error)).lower() and "backend" not in told.lower():
                raise
            reasons = [first_line(str(one.message)) for one in said]
            raise LeftOut("; ".join([told, *reasons[:2]])) from error


@lru_cache(maxsize=len(ROWS) * len(COLUMNS))
def drawn_case(on: ProbeDevice, rows: int, columns: int) -> Case:
    """In the shape of an 8B model, or of a tiny one.

    The key of a fed row is what the second head of each group asks for in that row, which must not miss it, and the
    first head in the row as far from the other end: half of the rows see it, and the other half must not find it. What
    lies behind the text has the key that the first row asks for.
    """
    heads, kv_heads, dim = (4, 2, 16) if on.tiny or not on.card else (32, 8, 128)
    length, group = columns - _STALE - rows, heads // kv_heads
    if length < 1:
        raise ValueError(f"{columns} columns hold no text beside {rows} rows")
    query = on.drawn(rows, heads, dim, seed=1)
    keys, values = (on.drawn(1, kv_heads, columns, dim, seed=seed) for seed in (2, 3))
    mirrored, own = (_asked_by(query[:, head::group]) for head in (0, 1))
    keys[0, :, length : length + rows] = mirrored.flip(1) + own
    keys[0, :, length + rows :] = mirrored[:, :1]
    seen = _chain(rows, length, columns, query.device)
    whole = (_precise(query, keys, values, mask) for mask in (seen, torch.ones_like(seen)))
    return Case(query, keys, values, length, *whole)


def _asked_by(query: Tensor) -> Tensor:
    """Keys that rows `[n, kv_heads, D]` score so high that they outweigh a long text: `[kv_heads, n, D]`."""
    wide = query.transpose(0, 1).float()
    keys: Tensor = wide * (_LOUD * wide.shape[-1] ** 0.5) / wide.square().sum(-1, keepdim=True)
    return keys


def _precise(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """`[n, heads * D]` in float64, a head at a time."""
    group, out = query.shape[1] // keys.shape[1], []
    for head in range(query.shape[1]):
        known, meant = (stored[0, head // group].double() for stored in (keys, values))
        scores = query[:, head].double() @ known.T * query.shape[2] ** -0.5
        out.append(scores.masked_fill(~seen, -torch.inf).softmax(1) @ meant)
    return torch.cat(out, 1)


def _chain(rows: int, length: int, columns: int, device: torch.device) -> Tensor:
    last = length + torch.arange(rows, device=device).unsqueeze(1)
    return torch.arange(columns, device=device) <= last
