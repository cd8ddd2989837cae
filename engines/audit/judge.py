"""Draws judged: against the target's distribution, and with speculation against without."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple

from scipy.stats import binomtest

from engines.audit.expected import ExpectedRow
from utils.numbers.cells import Cells, alike
from utils.numbers.holm import holm
from utils.numbers.power import detectable, found
from utils.numbers.statistics import ChiSquare

LEVEL, POWER = 0.01, 0.95
FEWEST = 50
_MOST_TEXTS = 16

Against = Literal["target", "plain"]
Verdict = Literal["agrees", "DIFFERS", "weak"]
Counts = Mapping[tuple[int, ...], int]
"""How often each answer came (ids)."""


@dataclass(frozen=True, slots=True)
class LawTest:
    """One test of one token of the answers to a prompt.

    against: the target's distribution, or the engine's own draws in plain decoding. token: which of the answer, from 1.
    draws: those that the test counts. outside: tokens that the processor leaves no place to. p_holm: corrected for
    all tests of the audit. finds: the smallest total variation between both that the test finds in 95 of 100 audits,
    wherever it is; None: none. dropped: the total variation that a forgotten processor would make; None where
    there is nothing to forget. sees: the probability that the test finds that. forgotten_p: the same test against the
    distribution without the processor. distance: the total variation that was seen, cell by cell; chance alone makes
    some.
    """

    processor: str
    method: str
    against: Against
    prompt: int
    token: int
    draws: int
    degrees: int
    statistic: float
    p: float
    distance: float
    outside: int
    dropped: float | None = None
    forgotten_p: float | None = None
    noncentrality: float = 0.0
    escapes: float = 1.0
    p_holm: float = 1.0
    finds: float | None = None
    sees: float | None = None
    verdict: Verdict = "agrees"


@dataclass(frozen=True, slots=True)
class Group:
    """The draws behind one beginning of the answer, by token, and what is expected there."""

    counts: Counter[int]
    row: ExpectedRow


def beginnings(counts: Counts, token: int) -> dict[tuple[int, ...], Counter[int]]:
    """Draws of a token by the answer before it: the most frequent beginnings that have draws enough."""
    behind: dict[tuple[int, ...], Counter[int]] = {}
    for answer, times in counts.items():
        if len(answer) >= token:
            behind.setdefault(answer[: token - 1], Counter())[answer[token - 1]] += times
    most = sorted(behind, key=lambda begun: (-behind[begun].total(), begun))
    return {begun: behind[begun] for begun in islice(most, _MOST_TEXTS) if behind[begun].total() >= FEWEST}


def of_target(processor: str, method: str, prompt: int, token: int, groups: Sequence[Group]) -> LawTest:
    """The test of draws against the target. The statistics of beginnings are added up: they are independent."""
    total = sum(group.counts.total() for group in groups)
    sum_of, seen, outside = ChiSquare(), 0.0, 0
    for group in groups:
        n, p = group.counts.total(), group.row.p
        cells = Cells.of(p, n)
        expected, observed = [mass * n for mass in cells.masses(p)], cells.counted(group.counts)
        sum_of += ChiSquare.of(observed, expected)
        seen += sum(abs(o - e) for o, e in zip(observed, expected, strict=True)) / 2.0
        outside += sum(times for token_id, times in group.counts.items() if not group.row.allowed[token_id])
    p_value = 0.0 if outside else sum_of.p_value if sum_of.degrees else _exact(groups)
    distance = seen / total if total else 0.0
    facts = (total, sum_of.degrees, sum_of.statistic, p_value, distance, outside)
    return LawTest(processor, method, "target", prompt, token, *facts, *_forgotten(groups, total))


class _Forgotten(NamedTuple):
    """The fields of a test that tell of an engine which forgets the processor."""

    dropped: float | None = None
    forgotten_p: float | None = None
    noncentrality: float = 0.0
    escapes: float = 1.0


def _forgotten(groups: Sequence[Group], total: int) -> _Forgotten:
    moved, noncentrality, escapes, sum_of = 0.0, 0.0, 1.0, ChiSquare()
    for group in groups:
        n, p, dropped = group.counts.total(), group.row.p, group.row.dropped
        if dropped is None:
            return _Forgotten()
        cells, its_own = Cells.of(p, n), Cells.of(dropped, n)
        noncentrality += ChiSquare.of(*([mass * n for mass in cells.masses(one)] for one in (dropped, p))).statistic
        escapes *= (1.0 - min(1.0, float(dropped[~group.row.allowed].sum()))) ** n
        moved += n * float((dropped - p).abs().sum()) / 2.0
        sum_of += ChiSquare.of(its_own.counted(group.counts), [mass * n for mass in its_own.masses(dropped)])
    return _Forgotten(moved / total, sum_of.p_value, noncentrality, escapes) if total else _Forgotten()


def _exact(groups: Sequence[Group]) -> float:
    """Where one token has nearly all of the mass: the binomial test of how often it came."""
    if not groups:
        return 1.0
    likely = max(groups, key=lambda group: group.counts.total())
    token = int(likely.row.p.argmax())
    share = min(1.0, float(likely.row.p[token]))
    return float(binomtest(likely.counts[token], likely.counts.total(), share).pvalue)


def of_plain(
    processor: str,
    method: str,
    prompt: int,
    token: int,
    drafted: Mapping[tuple[int, ...], Group],
    plain: Mapping[tuple[int, ...], Group],
) -> LawTest:
    """The test of draws with speculation against those without: whatever the engine takes the processor to be."""
    total, effective, sum_of, seen = 0, 0.0, ChiSquare(), 0.0
    for begun in drafted.keys() & plain.keys():
        one, other = drafted[begun].counts, plain[begun].counts
        n, m = one.total(), other.total()
        sum_of += alike(one, other, drafted[begun].row.p)
        effective += n * m / (n + m)
        seen += n * sum(abs(one[key] / n - other[key] / m) for key in {*one, *other}) / 2.0
        total += n
    distance = seen / total if total else 0.0
    facts = (int(effective), sum_of.degrees, sum_of.statistic, sum_of.p_value, distance, 0)
    return LawTest(processor, method, "plain", prompt, token, *facts)


def judged(tests: Sequence[LawTest], level: float = LEVEL) -> Iterator[LawTest]:
    """The tests with what only all of them together tell: Holm's correction, verdicts and power."""
    strictest = level / max(1, len(tests))
    for test, p_holm in zip(tests, holm([test.p for test in tests]), strict=True):
        finds = detectable(test.degrees, test.draws, strictest, POWER)
        sees = None
        if test.dropped is not None:
            sees = 1.0 - test.escapes * (1.0 - found(test.degrees, strictest, test.noncentrality))
        weak = finds is None if sees is None else sees < POWER
        verdict: Verdict = "DIFFERS" if p_holm < level else "weak" if weak else "agrees"
        yield replace(test, p_holm=p_holm, finds=finds, sees=sees, verdict=verdict)
