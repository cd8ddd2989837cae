"""Numbers by text, place and purpose: as fine as their format, and below one."""

import pytest
import torch

from utils.numbers.random_numbers import CounterRNG


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 24), (torch.float64, 53)])
def test_numbers_are_as_fine_as_the_fraction_of_their_format(dtype: torch.dtype, bits: int) -> None:
    """A finer one would be rounded, to one itself at the worst, which no coin may be."""
    rng = CounterRNG(3, [1, 2])
    rng.at(7)
    numbers = rng.uniform((4096,), dtype, "coin").double() * 2.0**bits
    assert bool((numbers == numbers.round()).all()) and float(numbers.min()) >= 0.0 and float(numbers.max()) < 2.0**bits
    assert float(numbers.remainder(2.0).mean()) == pytest.approx(0.5, abs=0.05), "the last bit is in use"
