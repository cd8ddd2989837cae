"""The commands of this package, for `infer.py` to register."""

from ablation.commands.acceptance import acceptance
from ablation.commands.advise import advise
from ablation.commands.audit.command import audit
from ablation.commands.invariance import invariance
from ablation.commands.methods import methods
from ablation.commands.prefill import prefill
from ablation.commands.profile import profile
from ablation.commands.quality import quality
from ablation.commands.run import run
from ablation.commands.selftest import selftest

__all__ = ["acceptance", "advise", "audit", "invariance", "methods", "prefill", "profile", "quality", "run", "selftest"]
