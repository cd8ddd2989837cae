"""The warm-up of a plan, which also tells about how long the plan will take."""

from dataclasses import replace

from ablation.plan.grid import Plan
from ablation.run.estimate import Estimate, estimate
from sampling.engine import Engine
from sampling.measure.metrics import RunMetrics
from sampling.measure.warm_up import warm_up

WARM_UP_TOKENS = 16


def estimated(engine: Engine, plan: Plan, one_a_method: bool = False) -> Estimate:
    """Run each configuration once on a prompt that is not measured, and estimate the whole from that.

    one_a_method: only the first configuration of each method, under the first processor: quick, for a look.
    """
    probed = _shortened(plan) if one_a_method else plan
    runs = [(c.name, c.method, dict(c.parameters)) for c in probed.configurations]
    speeds: dict[str, tuple[float, float]] = {}
    for processor in probed.processors:
        values = {**plan.values, "processor": processor, "length": WARM_UP_TOKENS}
        # Of each run the last account is the whole one.
        for name, account in dict(warm_up(engine, values, runs)).items():
            speeds[name] = max(_speed(account), speeds.get(name, (0.0, 0.0)))
    by_method = {c.method: speeds[c.name] for c in reversed(probed.configurations)}
    return estimate(plan, {c.name: speeds.get(c.name, by_method[c.method]) for c in plan.configurations})


def _speed(account: RunMetrics) -> tuple[float, float]:
    """Seconds a token, and of the prefill."""
    return account.decode_s / max(account.new_tokens, 1), account.prefill_s


def _shortened(plan: Plan) -> Plan:
    first = {c.method: c for c in reversed(plan.configurations)}
    return replace(plan, configurations=tuple(reversed(first.values())), processors=plan.processors[:1])
