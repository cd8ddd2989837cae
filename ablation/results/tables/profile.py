"""A profile as tables: the target's forwards by rows and context, and the cost and acceptance of each drafter."""

from collections.abc import Sequence

from sampling.pair.profile import NOTHING, LatencyProfile

DRAFTER_HEADERS = ("drafter", "first draft, ms", "each further, ms", "c", "finds a draft", "accepted at 1, 2, ...")
MEANING = (
    "A forward in ms and v(n), in units of a forward of one row; c: a further draft in the same unit. Accepted: the "
    "acceptance rate of judged drafts at each position, on six built-in texts with greedy decoding."
)


def forward_headers(profile: LatencyProfile) -> tuple[str, ...]:
    """A pair of columns for each context."""
    return "rows", *(head for context in profile.forward for head in (f"behind {context:,} tokens, ms", "v(n)"))


def forward_rows(profile: LatencyProfile) -> list[tuple[str, ...]]:
    """One row per number of rows with a time at any context; a dash without a time."""
    known = {context: dict(times) for context, times in profile.forward.items()}
    counts = sorted({count for times in known.values() for count in times})
    return [(str(count), *(cell for times in known.values() for cell in _cells(times, count))) for count in counts]


def _cells(times: dict[int, float], count: int) -> tuple[str, str]:
    if count not in times:
        return "–", "–"
    return f"{times[count] * 1e3:.1f}", f"{times[count] / times[1]:.2f}"


def drafter_rows(profile: LatencyProfile) -> list[tuple[str, ...]]:
    """One row per drafter, in the order of the tables."""
    return [_drafter(profile, name) for name in profile.drafters]


def _drafter(profile: LatencyProfile, name: str) -> tuple[str, ...]:
    times, price = profile.drafters[name], profile.cost_model(name)
    assert price is not None, "a drafter that was timed has a price"
    cells = f"{times.first_s * 1e3:.2f}", f"{times.step_s * 1e3:.2f}", f"{price.c:.3f}", f"{times.found:.0%}"
    return name, *cells, _shares(times.acceptance)


def _shares(shares: Sequence[float]) -> str:
    return ", ".join(f"{share:.2f}" for share in shares) or "–"


def sentences(profile: LatencyProfile) -> list[str]:
    """The notes below the tables."""
    plain = profile.cost_model(NOTHING)
    assert plain is not None, "plain decoding always has a price"
    prefills = ", ".join(f"{tokens:,} tokens {seconds * 1e3:,.0f} ms" for tokens, seconds in profile.prefill)
    return [
        f"Prefill: {prefills}. The rest of a round takes {profile.rest_s * 1e3:.2f} ms. Plain decoding runs at "
        f"{1 / plain.seconds(0):.1f} tokens/s. A tree's forward takes {profile.tree:.2f} times that of an equal chain. "
        f"{_rollback(profile)}Measured {profile.measured}.",
        MEANING,
    ]


def _rollback(profile: LatencyProfile) -> str:
    back = profile.rollback
    if not back:
        return ""
    return (
        f"Taking tokens back costs {back.back_s * 1e3:.1f} ms for each round with a rejection, and "
        f"{back.token_s * 1e3:.2f} ms for each token that is read again. "
    )
