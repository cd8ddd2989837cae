"""The probes in order: what the others stand on first."""

from collections.abc import Iterator

from ablation.gpu_check.probe.attention import attention
from ablation.gpu_check.probe.kernels import fused, products
from ablation.gpu_check.probe.model import capture, models, one_width
from ablation.gpu_check.probe.trial import Probe, ProbeDevice


def probes(on: ProbeDevice) -> Iterator[Probe]:
    """All of them; nothing is computed before one runs."""
    for group in (capture, models, fused, attention, products, one_width):
        yield from group(on)
