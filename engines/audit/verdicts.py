"""An audit in a line for each processor and method, with the reason where something is wrong or could not be seen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engines.audit.audit import Audit, show
from engines.audit.judge import LEVEL, POWER, LawTest, Verdict
from sampling.methods.tables import AR

GREEDY = "greedy"
UNASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Line:
    """verdict: the worst of the tests, or that it was not asked. reason: why; empty where all is well.

    p: the smallest after Holm's correction. draws: all answers. finds, sees: of the test with the most power (see
    `LawTest`).
    """

    processor: str
    method: str
    verdict: Verdict | str
    reason: str = ""
    draws: int = 0
    tests: int = 0
    p: float | None = None
    finds: float | None = None
    dropped: float | None = None
    sees: float | None = None


def lines(audit: Audit, tests: Sequence[LawTest]) -> Iterator[Line]:
    """Of every processor by every method, greedy first."""
    for name, (method, _) in audit.asked.methods.items():
        yield _greedy(audit, name, method != AR)
        for processor in audit.asked.processors:
            shown = show(processor)
            if (shown, name) in audit.refused:
                yield Line(shown, name, UNASKED, audit.refused[shown, name])
                continue
            draws = [there for key, there in audit.draws.items() if key[:2] == (processor, name)]
            if not draws:
                continue
            own = [test for test in tests if (test.processor, test.method) == (shown, name)]
            others = [test for test in tests if test.processor == shown and test.method != name]
            found = _line(shown, name, own, others)
            counted = sum(there.counts.total() for there in draws)
            reason = found.reason
            if found.verdict == "DIFFERS" and all(there.one_seed for there in draws):
                reason = "all seeds give one answer: it may not read the seed"
            drafted = [there.drafted for there in draws]
            nothing = method != AR and None not in drafted and not sum(one or 0 for one in drafted)
            if nothing and found.verdict == "agrees":
                yield _with(found, counted, "weak", "nothing was drafted; longer answers (--tokens) may help")
            else:
                yield _with(found, counted, found.verdict, reason)


def _with(line: Line, draws: int, verdict: Verdict | str, reason: str) -> Line:
    return Line(
        line.processor,
        line.method,
        verdict,
        reason,
        draws,
        line.tests,
        line.p,
        line.finds,
        line.dropped,
        line.sees,
    )


def _greedy(audit: Audit, name: str, drafts: bool) -> Line:
    if (GREEDY, name) in audit.refused:
        return Line(GREEDY, name, UNASKED, audit.refused[GREEDY, name])
    answers = [check for check in audit.greedy if check.method == name]
    wrong = [check for check in answers if check.place is not None]
    tokens = sum(check.tokens for check in answers)
    if wrong:
        worst = max(wrong, key=lambda check: check.behind)
        reason = f"{len(wrong)} of {len(answers)} answers leave the target's best by {worst.behind:.2g} logits"
        return Line(GREEDY, name, "DIFFERS", reason, tokens)
    apart = [check for check in audit.logprobs if check.method == name and check.apart]
    if apart:
        off = max(check.distance for check in apart)
        return Line(GREEDY, name, "DIFFERS", f"log-probabilities are off by {off:.2g}", tokens)
    if drafts and answers and all(check.drafted == 0 for check in answers):
        return Line(GREEDY, name, "weak", "nothing was drafted", tokens)
    return Line(GREEDY, name, "agrees", "", tokens)


def _line(processor: str, method: str, own: Sequence[LawTest], others: Sequence[LawTest]) -> Line:
    wrong = [test for test in own if test.verdict == "DIFFERS"]
    best = max(own, key=lambda test: (test.sees or 0.0, -(test.finds or 1.0)), default=None)
    finds = min((test.finds for test in own if test.finds is not None), default=None)
    known = (len(own), min((test.p_holm for test in own), default=None), finds)
    dropped, sees = (best.dropped, best.sees) if best else (None, None)
    if wrong:
        return Line(processor, method, "DIFFERS", _why(wrong, others), 0, *known, dropped, sees)
    if finds is None:
        return Line(processor, method, "weak", "too few draws to find anything", 0, *known, dropped, sees)
    if sees is not None and sees < POWER:
        reason = f"an engine that forgets it would be found with {sees:.0%}"
        return Line(processor, method, "weak", reason, 0, *known, dropped, sees)
    return Line(processor, method, "agrees", "", 0, *known, dropped, sees)


def _why(wrong: Sequence[LawTest], others: Sequence[LawTest]) -> str:
    """What the tests that found a difference have in common."""
    reasons = []
    against_target = [test for test in wrong if test.against == "target"]
    outside = sum(test.outside for test in against_target)
    if any(test.against == "plain" for test in wrong):
        reasons.append("speculation changes it")
    elif any(test.method == AR and test.verdict == "DIFFERS" for test in others):
        reasons.append("as in plain decoding: not by speculation")
    if outside:
        reasons.append(f"{outside} tokens that the processor excludes")
    if against_target and all((test.forgotten_p or 0.0) > LEVEL for test in against_target):
        reasons.append("as if it were forgotten")
    worst = max(wrong, key=lambda test: test.distance)
    reasons.append(f"token {worst.token} is off by a total variation of {worst.distance:.2g}")
    return "; ".join(reasons)
