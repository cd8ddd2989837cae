"""The warm-up of a plan, which also tells about how long the plan will take."""

from dataclasses import replace

from ablation.plan.grid import Plan
from ablation.run.estimate import Estimate, estimate
from ablation.run.execute import warm_up
from sampling.engine import Engine


def estimated(engine: Engine, plan: Plan, one_a_method: bool = False) -> Estimate:
    """Run each configuration once on a prompt that is not measured, and estimate the whole from that.

    one_a_method: only the first configuration of each method, under the first processor: quick, for a look.
    """
    probed = _shortened(plan) if one_a_method else plan
    speeds: dict[str, tuple[float, float]] = {}
    for configuration, comparison in warm_up(engine, probed):
        metrics = comparison.metrics[configuration.name]
        measured = metrics.decode_s / max(metrics.new_tokens, 1), metrics.prefill_s
        speeds[configuration.name] = max(measured, speeds.get(configuration.name, measured))
    by_method = {c.method: speeds[c.name] for c in reversed(probed.configurations)}
    return estimate(plan, {c.name: speeds.get(c.name, by_method[c.method]) for c in plan.configurations})


def _shortened(plan: Plan) -> Plan:
    first = {c.method: c for c in reversed(plan.configurations)}
    return replace(plan, configurations=tuple(reversed(first.values())), processors=plan.processors[:1])
