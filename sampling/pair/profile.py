"""What a pair's forwards and drafts cost on this machine: measured once, kept, and read by whoever weighs them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import accumulate
from operator import mul
from typing import Any, Self

from egag.cost_model import ASSUMED_COSTS, CostModel
from egag.expected_round import expected_tokens
from egag.rollback_price import FREE, RollbackPrice, TakenBack
from utils.errors import wrong_value

ROWS = (*range(1, 18), 24, 32)
"""Rows of the target's forward that are timed, behind each of the contexts."""
CONTEXTS = (128, 512, 1024)
"""Tokens in the cache behind which they are timed, where the window has room for them."""
NOTHING = "none"
"""The name of what drafts nothing: plain autoregression."""

Times = tuple[tuple[int, float], ...]


_NEAR = 0.9
"""A drafter within this factor of the best measured rate may be the best on another text."""
_HOPE = 0.1
"""The most tokens per round that drafts may gain over the texts of the measurement."""
_DRAFTS = 16
"""The largest number of drafts per round that an estimate of a rate considers."""


@dataclass(frozen=True, slots=True)
class TreeTimes:
    """Seconds of the first level of a head's trees, and of each further one.

    gain: the tokens per second of its best tree over those of its best chain, on the texts that it was timed on.
    """

    first_s: float
    level_s: float
    gain: float


@dataclass(frozen=True, slots=True)
class DraftTimes:
    """Seconds of one drafter: the first draft of a round with what it learns of the round before, each further one.

    acceptance: the share of drafts that were accepted of those judged at position 1, 2, ..., on the texts that it was
    timed on: where learning begins. found: the share of rounds in which it had a draft, below 1 for copies. tree: its
    trees, where they were timed.
    """

    first_s: float
    step_s: float
    acceptance: tuple[float, ...] = ()
    found: float = 1.0
    tree: TreeTimes | None = None

    def tokens(self, drafts: int) -> float:
        """Tokens that a round with so many drafts brings on those texts, the target's own included.

        Behind the last position that was judged often enough, its share stands for the others.
        Example: acceptance (0.8, 0.5), found 1 -> 3 drafts: 1 + 0.8 + 0.4 + 0.2 = 2.4.
        """
        return expected_tokens(self.survival(drafts))

    def survival(self, drafts: int) -> tuple[float, ...]:
        """The share of rounds in which draft 1, 2, ... is there, reached and accepted."""
        if not self.acceptance:
            return ()
        shares = (self.acceptance[min(place, len(self.acceptance) - 1)] for place in range(drafts))
        return tuple(accumulate(shares, mul, initial=self.found))[1:]

    def taken(self, drafts: int) -> TakenBack:
        """What a round with so many drafts takes back on those texts."""
        return TakenBack.of_chain(self.survival(drafts), self.found)


@dataclass(frozen=True, slots=True)
class LatencyProfile:
    """Times in seconds. forward: by tokens of context, (rows, seconds) of the target, rows ascending.

    prefill: (tokens, seconds). drafters: by the name of what drafts: `model`, a kind of head, a copier. rest_s: what a
    round costs besides. measured: when, UTC. tree: a forward over two branches, over that of a chain of as many rows.
    rollback: what a rejection costs; free where a crop is all. Profiles of before it was measured lack it.
    """

    forward: Mapping[int, Times]
    prefill: Times
    rest_s: float
    drafters: Mapping[str, DraftTimes] = field(default_factory=dict)
    measured: str = ""
    tree: float = 1.0
    rollback: RollbackPrice = FREE

    def cost_model(
        self,
        drafter: str,
        context: int = 0,
        paid: int | None = None,
        copier: str | None = None,
        branched: bool = False,
    ) -> CostModel | None:
        """What a round costs with this drafter, behind about so many tokens; None where it was not timed.

        paid: see `CostModel`. copier: is asked in every round as well. branched: its drafts are trees.
        """
        forward = self._behind(context)
        if branched:
            forward = tuple((rows, seconds * (self.tree if rows > 1 else 1.0)) for rows, seconds in forward)
        if drafter == NOTHING:
            return CostModel(forward, 0.0, 0.0, self.rest_s, rollback=self.rollback)
        if drafter not in self.drafters:
            return None
        times, copied = self.drafters[drafter], self.drafters.get(copier or "")
        first_s, step_s = times.first_s, times.step_s
        if branched and times.tree is not None:
            first_s, step_s = times.tree.first_s, times.tree.level_s
        first_s += copied.first_s if copied else 0.0
        price = CostModel(forward, first_s, step_s, self.rest_s, paid=paid, acceptance=times.acceptance)
        return replace(price, rollback=self.rollback)

    def worth_trying(self, drafters: Sequence[str]) -> list[str]:
        """Those that may be the best: close to the best measured rate, and not much slower than plain decoding.

        A drafter without a measurement is included.
        """
        rates = {name: rate for name in drafters if (rate := self.rate(name)) is not None}
        best = max(rates.values(), default=0.0)
        return [name for name in drafters if name not in rates or 0.0 < rates[name] >= _NEAR * best]

    def rate(self, drafter: str, texts: int = 1) -> float | None:
        """Tokens per second at the best length; 0 if no length can beat plain decoding, None without a measurement."""
        cost_model, plain = self.cost_model(drafter), self.cost_model(NOTHING)
        if cost_model is None or plain is None:
            return None
        cost_model, plain = cost_model.among(texts), plain.among(texts)
        times = self.drafters[drafter]
        tokens, seconds = max(
            (
                (times.tokens(count), cost_model.seconds(count) + cost_model.rollback_s(times.taken(count)))
                for count in range(1, _DRAFTS + 1)
            ),
            key=lambda item: item[0] / item[1],
        )
        return tokens / seconds if (tokens + _HOPE) / seconds > 1.0 / plain.seconds(0) else 0.0

    def _behind(self, context: int) -> Times:
        """What forwards take behind so many tokens: on a line between the contexts around it that were timed."""
        low = max((tokens for tokens in self.forward if tokens <= context), default=min(self.forward))
        high = min((tokens for tokens in self.forward if tokens >= context), default=max(self.forward))
        share, far = (context - low) / max(1, high - low), dict(self.forward[high])
        between = [(rows, near + share * (far[rows] - near)) for rows, near in self.forward[low] if rows in far]
        return tuple(between) if low < high and between else self.forward[low]

    def prefill_s(self, tokens: int) -> float:
        """Reading a prompt of so many tokens: on lines through (0, 0) and what was timed, along the last one behind."""
        (low, low_s), *others = (0, 0.0), *self.prefill
        slope = 0.0
        for high, high_s in others:
            slope = (high_s - low_s) / (high - low)
            if tokens <= high:
                break
            low, low_s = high, high_s
        return max(0.0, low_s + slope * (tokens - low))

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "forward": {str(context): times for context, times in self.forward.items()}}

    @classmethod
    def from_dict(cls, content: Any) -> Self:
        """What `as_dict` wrote. Raises `UserError` for what no measurement can have come to."""
        names = {field.name: None for field in fields(cls)}
        if not isinstance(content, dict) or {"rollback", *content} != {*names}:
            raise wrong_value("profile", content, f"an object with {', '.join(names)}")
        forward, drafters, measured = content["forward"], content["drafters"], content["measured"]
        if not isinstance(forward, dict) or not forward or not all(text.isdecimal() for text in forward):
            raise wrong_value("profile: forward", forward, "an object with a number of tokens for each key")
        if not isinstance(drafters, dict) or not isinstance(measured, str):
            raise wrong_value("profile: drafters", drafters, "an object with a drafter for each key")
        return cls(
            {int(text): _times("forward", times) for text, times in forward.items()},
            _times("prefill", content["prefill"]),
            _number("rest_s", content["rest_s"]),
            {name: _draft_times(name, times) for name, times in drafters.items()},
            measured,
            _number("tree", content["tree"], above=0.0),
            _rollback(content.get("rollback", asdict(FREE))),
        )


def plain_cost(profile: LatencyProfile | None) -> CostModel:
    """What plain decoding costs, guessed where nobody has measured it."""
    cost = None if profile is None else profile.cost_model(NOTHING)
    return cost or ASSUMED_COSTS


def _times(name: str, content: Any) -> Times:
    pairs = content if isinstance(content, list | tuple) else []
    if not pairs or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise wrong_value(f"profile: {name}", content, "pairs of a count and seconds")
    counts = [count for count, _ in pairs]
    if any(type(count) is not int or count < 1 for count in counts) or sorted(set(counts)) != counts:
        raise wrong_value(f"profile: {name}", content, "counts of 1 or more that ascend")
    return tuple((count, _number(name, seconds, above=0.0)) for count, seconds in pairs)


def _draft_times(name: str, content: Any) -> DraftTimes:
    if not isinstance(content, dict) or {"tree", *content} != {field.name for field in fields(DraftTimes)}:
        raise wrong_value(f"profile: {name}", content, "the times of a drafter")
    shares = content["acceptance"] if isinstance(content["acceptance"], list | tuple) else ["nothing"]
    return DraftTimes(
        _number("first_s", content["first_s"]),
        _number("step_s", content["step_s"]),
        tuple(_number("acceptance", share, most=1.0) for share in shares),
        _number("found", content["found"], most=1.0),
        _tree(content.get("tree")),
    )


def _tree(content: Any) -> TreeTimes | None:
    """None where trees were not timed, as in profiles of before."""
    if content is None:
        return None
    if not isinstance(content, dict) or content.keys() != {field.name for field in fields(TreeTimes)}:
        raise wrong_value("profile: tree", content, "the times of a head's trees")
    return TreeTimes(**{name: _number(f"tree: {name}", value) for name, value in content.items()})


def _rollback(content: Any) -> RollbackPrice:
    if not isinstance(content, dict) or content.keys() != {field.name for field in fields(RollbackPrice)}:
        raise wrong_value("profile: rollback", content, "the seconds of a rejection")
    return RollbackPrice(**{name: _number(f"rollback: {name}", seconds) for name, seconds in content.items()})


def _number(name: str, value: Any, above: float = -1.0, most: float = math.inf) -> float:
    sound = type(value) in (int, float) and math.isfinite(value) and above < value <= most and value >= 0.0
    if not sound:
        raise wrong_value(f"profile: {name}", value, "a number that a clock or a count can have come to")
    return float(value)
