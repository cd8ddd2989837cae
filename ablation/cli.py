"""The commands of this package, for `infer.py` to register."""

from ablation.methods_command import methods
from ablation.run_command import run
from ablation.selftest_command import selftest

__all__ = ["methods", "run", "selftest"]
