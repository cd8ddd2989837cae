"""Whether kernels of our own may compute, in Triton on cards and in C++ on CPUs, or torch's operations alone."""

_allowed = True


def use_own_kernels(answer: bool) -> None:
    """Whether what is made from now on may have them."""
    global _allowed
    _allowed = answer


def own_kernels() -> bool:
    """Whether they are allowed."""
    return _allowed
