"""An audit in a line for each processor and method, with the reason where something is wrong or could not be seen."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from engines.audit.audit import Audit, show
from engines.audit.draw import Draws
from engines.audit.judge import LEVEL, POWER, LawTest, Verdict
from sampling.methods.tables import AR

GREEDY = "greedy"
UNASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Line:
    """verdict: the worst of the tests, or that it was not asked. reason: why; empty where all is well.

    p: the smallest after Holm's correction. draws: all answers; of greedy, all tokens. finds: the smallest total
    variation that any of the tests finds. dropped: the largest that a forgotten processor makes in any of them; sees:
    the probability that at least one test notices.
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
    plain = [name for name, (method, _) in audit.asked.methods.items() if method == AR]
    for name, (method, _) in audit.asked.methods.items():
        if (GREEDY, name) in audit.refused or any(check.method == name for check in audit.greedy):
            yield _greedy(audit, name, method != AR)
        for processor in audit.asked.processors:
            shown = show(processor)
            draws = [there for key, there in audit.draws.items() if key[:2] == (processor, name)]
            if (shown, name) in audit.refused:
                yield Line(shown, name, UNASKED, audit.refused[shown, name])
            elif draws:
                own = [test for test in tests if (test.processor, test.method) == (shown, name)]
                others = [test for test in tests if test.processor == shown and test.method != name]
                yield _of_draws(_line(shown, name, own, others, plain), draws, method != AR)


def _of_draws(line: Line, draws: Sequence[Draws], drafts: bool) -> Line:
    """The line with what the draws themselves tell."""
    line = replace(line, draws=sum(there.counts.total() for there in draws))
    if line.verdict == "DIFFERS" and all(there.one_seed for there in draws):
        return replace(line, reason="all seeds give one answer: it may not read the seed")
    drafted = [there.drafted for there in draws]
    if drafts and line.verdict == "agrees" and not any(one is None or one for one in drafted):
        return replace(line, verdict="weak", reason="nothing was drafted; longer answers (--tokens) may help")
    return line


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


def _line(processor: str, method: str, own: Sequence[LawTest], others: Sequence[LawTest], plain: Sequence[str]) -> Line:
    finds = min((test.finds for test in own if test.finds is not None), default=None)
    sees = [test.sees for test in own if test.sees is not None]
    line = Line(
        processor,
        method,
        "agrees",
        tests=len(own),
        p=min((test.p_holm for test in own), default=None),
        finds=finds,
        dropped=max((test.dropped for test in own if test.dropped is not None), default=None),
        sees=1.0 - math.prod(1.0 - one for one in sees) if sees else None,
    )
    wrong = [test for test in own if test.verdict == "DIFFERS"]
    if wrong:
        return replace(line, verdict="DIFFERS", reason=_why(wrong, others, plain))
    if finds is None:
        return replace(line, verdict="weak", reason="too few draws to find anything")
    if line.sees is not None and line.sees < POWER:
        return replace(line, verdict="weak", reason="forgotten, it could go unseen")
    return line


def _why(wrong: Sequence[LawTest], others: Sequence[LawTest], plain: Sequence[str]) -> str:
    """What the tests that found a difference have in common."""
    reasons = []
    against_target = [test for test in wrong if test.against == "target"]
    outside = sum(test.outside for test in against_target)
    if any(test.against == "plain" for test in wrong):
        reasons.append("speculation changes it")
    elif any(test.verdict == "DIFFERS" and test.method in plain for test in others):
        reasons.append("as in plain decoding: not by speculation")
    elif wrong[0].method not in plain:
        reasons.append("plain decoding shows none of it")
    if outside:
        reasons.append(f"{outside} tokens that the processor excludes")
    if against_target and all((test.forgotten_p or 0.0) > LEVEL for test in against_target):
        reasons.append("as if it were forgotten")
    worst = max(wrong, key=lambda test: test.distance)
    reasons.append(f"token {worst.token} is off by a total variation of {worst.distance:.2g}")
    return "; ".join(reasons)
