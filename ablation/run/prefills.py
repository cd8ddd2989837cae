"""A plan's prompts read once for all its configurations."""

from ablation.plan.grid import Plan
from sampling.forward.state import keeping
from sampling.pair.local_engine import LocalEngine
from sampling.prefilled.shared import SharedPrefills


def share_prefills(engine: LocalEngine, plan: Plan) -> None:
    """Let the engine read a prompt once for all that begins with it, in each format, where the plan wants that.

    Raises `UserError` for a target of which a text cannot be kept.
    """
    if not plan.share_prefill:
        return
    for name in plan.formats or (engine.describe().target.stored,):
        rounded = engine.in_format(name)
        keeping(rounded.target)
        rounded.prefills = SharedPrefills()
