"""The pace of configurations by the prices of a profile, without a run."""

from collections.abc import Mapping
from typing import Any

from ablation.plan.grid import Configuration
from ablation.run.progress.estimate import TokenPace
from egag.cost_model import CostModel
from egag.rollback_price import TakenBack
from sampling.methods.method import FIXED, Method
from sampling.methods.tables import METHODS
from sampling.pair.profile import DraftTimes, LatencyProfile
from utils.parameter import Values

# Where a rule has no bound of its own.
_MOST = 8


def priced_pace(
    profile: LatencyProfile, configuration: Configuration, values: Values, prompt: int, text: int
) -> TokenPace | None:
    """The pace behind a prompt of so many tokens, expected behind a text of so many; None for what was not timed.

    Trees are none of what was timed, and cost otherwise.
    """
    method = METHODS[configuration.method]
    values = {**values, **dict(configuration.parameters), **method.preset}
    short, usual = (method.cost_model(profile, values, context) for context in (prompt, text))
    if short is None or usual is None or method.drafts_trees(values):
        return None
    lengths = _lengths(method, values)
    return TokenPace(
        prefill_s=profile.prefill_s(prompt),
        accepted_s=min(short.seconds(drafts) / (drafts + 1) for drafts in lengths),
        rejected_s=max(short.seconds(drafts) + short.rollback_s(TakenBack.of_rate(0.0, drafts)) for drafts in lengths),
        rounds=0,
        expected_s=min(_expected(usual, _times(profile, method, values), drafts) for drafts in _tried(method, lengths)),
    )


def _lengths(method: Method, values: Mapping[str, Any]) -> range:
    """How many drafts a round may have."""
    if not method.drafts:
        return range(1)
    read = {p.name: values[p.name] for p in method.relevant(values)}
    if method.controller == "fixed" and read.get("draft_rule", "own") == "own":
        return range(read["gamma"], read["gamma"] + 1)
    bounds = [value for name, value in read.items() if name.endswith("gamma_max") or name == "num_speculative_tokens"]
    return range(max(bounds, default=_MOST) + 1)


def _tried(method: Method, lengths: range) -> range:
    """The lengths whose expected times count: of a rule that chooses the best, which it is after; of a budget it."""
    return lengths if method.controller not in FIXED else lengths[-1:]


def _times(profile: LatencyProfile, method: Method, values: Values) -> DraftTimes | None:
    """What drafts: of a hybrid its model, without what copies add."""
    hybrid = method.parts[0].hybrid
    return profile.drafters.get(method.drafter if hybrid is None else hybrid.named(values)[0])


def _expected(price: CostModel, times: DraftTimes | None, drafts: int) -> float:
    """Seconds a token with so many drafts, where as many are found and accepted as on the profile's texts."""
    if times is None or not drafts:
        return price.seconds(0)
    drafts = drafts if price.paid is None else min(drafts, price.paid)
    without_s = price.verify_s(0) + price.first_s + price.rest_s
    round_s = times.found * price.seconds(drafts) + (1.0 - times.found) * without_s
    return (round_s + price.rollback_s(times.taken(drafts))) / times.tokens(drafts)
