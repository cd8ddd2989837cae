"""The ledger: where the time of a token goes, and how many tokens a round would pay for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

from egag.cost_model import CostModel
from egag.rollback_price import FREE, RollbackPrice, TakenBack

PARTS: Mapping[str, str] = {
    "verify": "the target's forwards, as if each fed one row",
    "growth": "the cost of their other rows",
    "draft": "drafting, and learning from verdicts",
    "judging": "checking drafts: time outside forwards beyond AR's",
    "rest": "processor and bookkeeping, as in a round of AR",
}
"""The parts of a ledger and what is in them, in the order in which tables and bars have them."""

_EXTRA = {"growth": "verifying more rows takes", "draft": "drafting takes", "judging": "judging takes"}
# Drafts beyond so many do not change what is expected.
_DEEPEST = 64
_HALVINGS = 40


class RunAccount(Protocol):
    """What is asked of a run: counts, and mean times of a round in ms; None is unknown."""

    @property
    def new_tokens(self) -> int | None: ...
    @property
    def rounds(self) -> int | None: ...
    @property
    def drafted(self) -> int | None: ...
    @property
    def draft_ms(self) -> float | None: ...
    @property
    def verify_ms(self) -> float | None: ...
    @property
    def other_ms(self) -> float | None: ...
    @property
    def rollback_ms(self) -> float | None: ...
    @property
    def experts_per_round(self) -> float | None: ...
    @property
    def expert_share(self) -> float | None: ...
    @property
    def experts_ms(self) -> float | None: ...
    @property
    def reread(self) -> int | None: ...
    @property
    def tokens_per_round(self) -> float | None: ...
    @property
    def alpha(self) -> float | None: ...
    @property
    def accept_hist(self) -> list[int] | None: ...
    @property
    def tested_at(self) -> list[int] | None: ...
    @property
    def mean_gamma(self) -> float | None: ...
    @property
    def max_gamma(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class PlainRound:
    """A round of plain autoregression (AR), in seconds: the target's forward over one row, and the rest."""

    forward: float
    rest: float

    @property
    def seconds(self) -> float:
        """The round, which is a token."""
        return self.forward + self.rest


@dataclass(frozen=True, slots=True)
class Ledger:
    """Seconds of a token by part (`PARTS`), which add up to what was measured; AR's token beside them.

    plain: seconds of a token of AR. rows: what the target verifies in a round, the last token and the drafts.
    tokens: what a round emits. alpha: accepted of the judged positions, None where none was judged. needed_alpha: the
    alpha at which it would be as fast as AR (see `needed_alpha`). rollback: of growth, taking tokens back: restoring
    states and reading accepted tokens again, as a price tells; without one, what saving and restoring took.
    experts, expert_share: of a layer, that a round wakes; expert_s: seconds of a token that they take.

    From the parts follows, as in arXiv 2211.17192 but with the costs as they were measured, the speedup plain / total;
    a method is as fast as AR where a round emits `break_even` tokens.

    Example: 1.22 tokens a round of 9.6 ms drafting, 52.4 ms verifying 5 rows and 0.8 ms else, where AR's round has a
    forward of 40 ms and 0.4 ms else: verify 32.8, growth 10.2, draft 7.9, judging 0.3 and rest 0.3 ms a token, which
    are 51.5; break-even 1.55.
    """

    verify: float
    growth: float
    draft: float
    judging: float
    rest: float
    plain: float
    rows: float
    tokens: float
    alpha: float | None = None
    needed_alpha: float | None = None
    rollback: float = 0.0
    experts: float | None = None
    expert_share: float | None = None
    expert_s: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of a token."""
        return self.verify + self.growth + self.draft + self.judging + self.rest

    @property
    def speedup(self) -> float:
        """Tokens a second over AR's."""
        return self.plain / self.total

    @property
    def break_even(self) -> float:
        """Tokens a round at which it is as fast as AR: what its round takes in rounds of AR."""
        return self.tokens * self.total / self.plain

    @property
    def saved(self) -> float:
        """Seconds of AR's token that are not spent because a forward emits several."""
        return self.plain - self.verify - self.rest

    def __str__(self) -> str:
        """Where the time goes, in a sentence: what fewer rounds save, and what takes it back, most first."""
        taken = sorted(((getattr(self, part), words) for part, words in _EXTRA.items()), reverse=True)
        costs = ", ".join(
            f"{words} {ms(seconds)}{' (noise)' if seconds < 0 else ''}"
            for seconds, words in taken
            if ms(seconds) != "0.0"
        )
        net = self.plain - self.total
        verdict = f"{ms(abs(net))} ms {'faster' if net > 0 else 'slower'}"
        back = f"taking tokens back is {ms(self.rollback)} of it" if ms(self.rollback) != "0.0" else ""
        return "; ".join(filter(None, (self._earned(), costs, back, self._awake()))) + f": {verdict}{self._lacking()}"

    def _awake(self) -> str:
        if not self.experts or not self.expert_share:
            return ""
        return f"a round wakes {self.experts:.1f} experts a layer ({self.expert_share:.0%}), {ms(self.expert_s)} of it"

    def _earned(self) -> str:
        accepted = "" if self.alpha is None else f", {self.alpha:.0%} of what was judged accepted,"
        return f"{self.tokens:.2f} tokens a round{accepted} save {ms(self.saved)} of AR's {ms(self.plain)} ms a token"

    def _lacking(self) -> str:
        if self.total <= self.plain:
            return ""
        at = "" if self.needed_alpha is None else f" (alpha {self.needed_alpha:.2f})"
        return f"; break-even needs {self.break_even:.2f} tokens a round{at}"


def ms(seconds: float) -> str:
    """Seconds as milliseconds with a digit; no minus before a zero."""
    return f"{round(seconds * 1e3, 1) + 0.0:.1f}"


def plain_of(reference: RunAccount) -> PlainRound | None:
    """A round of AR as a run of it had it; None where it is unknown or made no round."""
    times = (reference.draft_ms, reference.verify_ms, reference.other_ms)
    if None in times or not reference.rounds or not reference.verify_ms:
        return None
    draft, verify, other = (value or 0.0 for value in times)
    return PlainRound(verify / 1e3, (draft + other) / 1e3)


def plain_at(price: CostModel) -> PlainRound:
    """A round of AR as a profile has it."""
    return PlainRound(price.verify_s(0), price.rest_s)


def ledger(run: RunAccount, plain: PlainRound, rollback: RollbackPrice = FREE) -> Ledger | None:
    """The ledger of a run beside AR on the same prompt; None where its times are unknown or it made no round.

    rollback: what taking tokens back costs by a profile; it is part of the measured times already.
    """
    times = (run.draft_ms, run.verify_ms, run.other_ms)
    if None in times or not run.rounds or not run.new_tokens or run.tokens_per_round is None:
        return None
    draft, verify, other = (value / 1e3 for value in times if value is not None)
    return _split(run, plain, (draft, verify, other), rollback)


def predicted(run: RunAccount, price: CostModel) -> Ledger | None:
    """The ledger that a profile's prices give for the rounds of a run: its counts, not its times.

    A round is taken at the mean number of drafts; the levels of a head's tree count as its draft steps.
    """
    if not run.rounds or not run.new_tokens or run.tokens_per_round is None:
        return None
    drafts = (run.drafted or 0) / run.rounds
    steps = drafts if run.mean_gamma is None else min(drafts, run.mean_gamma)
    begun = min(1.0, steps) if not run.tested_at else run.tested_at[0] / run.rounds
    draft = begun * price.first_s + max(0.0, steps - begun) * price.step_s
    verify = price.verify_s(drafts) + price.rollback_s(taken_back(run))
    return _split(run, plain_at(price), (draft, verify, price.rest_s), price.rollback)


def taken_back(run: RunAccount) -> TakenBack:
    """What a run's rounds took back, as a mean: rejections, and tokens that were read again for them."""
    rounds, hist = run.rounds or 1, run.accept_hist or []
    rejections = sum(run.tested_at or []) - sum(accepted * count for accepted, count in enumerate(hist))
    return TakenBack(rejections / rounds, (run.reread or 0) / rounds)


def _split(run: RunAccount, plain: PlainRound, seconds: tuple[float, float, float], rollback: RollbackPrice) -> Ledger:
    """The parts a token, from seconds of the mean round: drafting, verifying, other."""
    rounds, tokens, (draft, verify, other) = run.rounds or 0, run.tokens_per_round or 0.0, seconds
    break_even = sum(seconds) / plain.seconds
    back_s = rollback.seconds(taken_back(run)) if rollback else (run.rollback_ms or 0.0) / 1e3
    judged = run.accept_hist or [], run.tested_at or [], run.max_gamma or 0
    return Ledger(
        verify=plain.forward / tokens,
        growth=(verify - plain.forward) / tokens,
        draft=draft / tokens,
        judging=(other - plain.rest) / tokens,
        rest=plain.rest / tokens,
        plain=plain.seconds,
        rows=1.0 + (run.drafted or 0) / rounds,
        tokens=tokens,
        alpha=run.alpha,
        needed_alpha=needed_alpha(break_even, *judged, rollback.scaled(1.0 / plain.seconds)),
        rollback=back_s / tokens,
        experts=run.experts_per_round,
        expert_share=run.expert_share,
        expert_s=(run.experts_ms or 0.0) / 1e3 / tokens,
    )


def needed_alpha(
    tokens: float,
    accept_hist: Sequence[int],
    tested_at: Sequence[int],
    max_gamma: int,
    rollback: RollbackPrice = FREE,
) -> float | None:
    """The alpha at which rounds like these would emit `tokens`; None where none would, or nothing was drafted.

    rollback: what taking tokens back costs, in rounds of AR. It changes with alpha, and the rest of a round does not.
    E: tokens a round, B: taking back, both at the alpha that is sought: E = tokens - B(now) + B.

    As many rounds as now have a draft at position i, of those that come so far; each position's acceptance moves the
    same part of its way to 1, or to 0. What no round reached is as the last position that one did.

    Example: one draft a round, always judged, accepted in 2 of 10 rounds: for 1.5 tokens a round alpha is 0.5. Where a
    rejection costs .25 rounds, 1.5 - .8 x .25 = 1.3 is the rest of a round: 1 + a = 1.3 + .25 (1 - a), alpha .44.
    """
    reached, accepted = _positions(accept_hist, tested_at)
    if not reached:
        return None
    deeper = max(0, min(max_gamma, _DEEPEST) - len(reached))
    reached, accepted = [*reached, *[reached[-1]] * deeper], [*accepted, *[accepted[-1]] * deeper]
    rest = tokens - rollback.seconds(_expected(reached, accepted, 0.0)[2])

    def enough(move: float) -> bool:
        emitted, _, taken = _expected(reached, accepted, move)
        return emitted >= rest + rollback.seconds(taken)

    low, high = -1.0, 1.0
    if not enough(high):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return _expected(reached, accepted, high)[1]


def _positions(accept_hist: Sequence[int], tested_at: Sequence[int]) -> tuple[list[float], list[float]]:
    """By position: the share of the rounds that come so far which judge a draft there, and which accept it."""
    before = [sum(accept_hist[place:]) for place in range(len(tested_at) + 1)]
    reached, accepted = [], []
    for came, judged, kept in zip_longest(before[:-1], tested_at, before[1:], fillvalue=0):
        if not came or not judged:
            break
        reached.append(judged / came)
        accepted.append(kept / judged)
    return reached, accepted


def _expected(reached: Sequence[float], accepted: Sequence[float], move: float) -> tuple[float, float, TakenBack]:
    """Tokens a round, alpha and what is taken back, each acceptance moved by this part of its way to 1, or to 0.

    A rejection at position i leaves the root and i - 1 drafts to be read again. move: below 0 it is the way to 0.
    """
    here, judged, kept, rejections, reread = 1.0, 0.0, 0.0, 0.0, 0.0
    for place, (share, chance) in enumerate(zip(reached, accepted, strict=True), 1):
        moved = chance + move * (1.0 - chance if move > 0 else chance)
        judged += here * share
        rejections += here * share * (1.0 - moved)
        reread += place * here * share * (1.0 - moved)
        here *= share * moved
        kept += here
    return 1.0 + kept, kept / judged, TakenBack(rejections, reread)
