"""From a user's prompts to a recommendation: half of them are measured and replayed, the other half checks it."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ablation.advise.choose import FEW, AdvisedChoice, ExpectedSpeedup, choose
from ablation.advise.sample import SampleRuns
from ablation.plan.grid import Configuration
from ablation.plan.prompts.file import Prompt
from sampling.measure.comparison import Comparison
from sampling.methods.chat_template import TemplateVariables
from sampling.methods.rules import DRAFT_RULE
from sampling.methods.tables import AR
from sampling.pair.local_engine import LocalEngine
from utils.errors import UserError
from utils.interrupt import Interrupt
from utils.parameter import Values
from utils.text import counted, shown

WARM_SHARE, SAMPLE_SHARE = 0.15, 0.75
"""Of the time: when warming up ends at the latest, and when measuring does; the rest is for the check."""
# What taking tokens back may cost of a plain round before it is said.
_MATTERS = 0.02
_GOLDEN = 0.6180339887498949
Tell = Callable[[int, int, str], None]


@dataclass
class Advice:
    """What was found. final: what is recommended; AR where nothing pays.

    best: the best candidate, with what it was expected to bring. measured: what it brought on the held-out prompts;
    None where nobody checked. candidates: (configuration, speedup on the sample) of all, best first. bounds: by
    drafter, what knowing beforehand what is accepted would bring. notes: a sentence each. stopped: by Ctrl-C.
    """

    best: AdvisedChoice | None = None
    configuration: Configuration = field(default_factory=lambda: Configuration(AR))
    measured: ExpectedSpeedup | None = None
    candidates: tuple[tuple[Configuration, float], ...] = ()
    bounds: tuple[tuple[str, float], ...] = ()
    notes: list[str] = field(default_factory=list)
    length: int = 0
    sampled: int = 0
    differs: bool = False
    stopped: bool = False

    @property
    def contradicted(self) -> bool:
        """Whether the check does not bear out that the best candidate pays, or found it to be wrong."""
        return self.differs or (self.measured is not None and not self.measured.pays)

    @property
    def speculate(self) -> bool:
        """Whether the best candidate is recommended."""
        return self.best is not None and self.best.expected.pays and not self.contradicted

    @property
    def final(self) -> Configuration:
        """What is recommended."""
        return self.configuration if self.speculate else Configuration(AR)


def spread(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The prompts in an order whose every beginning is spread over all of them: files have their kinds in a row."""
    return [prompts[place] for place in sorted(range(len(prompts)), key=lambda place: place * _GOLDEN % 1.0)]


def halves(prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[Prompt]]:
    """Those that are measured, and those that are held out to check: every second one, so that kinds are in both."""
    return spread(prompts[::2]), spread(prompts[1::2])


def advise(engine: LocalEngine, prompts: Sequence[Prompt], common: Values, minutes: float, tell: Tell) -> Advice:
    """Measure, choose, check. Ctrl-C ends what is under way and keeps what there is; so does the end of the time.

    A second Ctrl-C stops a generation at once. Raises `UserError` where nothing could be measured.
    """
    began = time.monotonic()
    seconds = 60.0 * minutes
    advice = Advice()
    sample, held_out = halves(prompts)
    with Interrupt() as interrupt:
        runs = _sampled(engine, sample, common, began, seconds, interrupt, tell, advice)
        with Interrupt() as choosing:  # replays take seconds, and losing them would lose all
            _choose(runs, advice)
        interrupt.asked |= choosing.asked
        if advice.best is not None:
            _check(engine, held_out, common, advice, interrupt, began + seconds, tell)
        advice.stopped = interrupt.asked
    return advice


@contextmanager
def _stopped_at_once(engine: LocalEngine) -> Iterator[None]:
    """A second Ctrl-C leaves caches in the middle of a forward; what was finished before counts."""
    try:
        yield
    except KeyboardInterrupt:
        engine.renew()


def _sampled(
    engine: LocalEngine,
    sample: Sequence[Prompt],
    common: Values,
    began: float,
    seconds: float,
    interrupt: Interrupt,
    tell: Tell,
    advice: Advice,
) -> SampleRuns:
    runs = SampleRuns(engine, common)
    tell(0, len(sample), f"warming up {counted(len(runs.live) + 1, 'configuration')}")
    with _stopped_at_once(engine):
        end = SAMPLE_SHARE * seconds
        token_s = runs.warm_up(lambda: interrupt.asked or time.monotonic() - began > WARM_SHARE * seconds)
        advice.length = runs.length_for(end - (time.monotonic() - began), token_s, len(sample))
        for place, prompt in enumerate(sample):
            tell(place, len(sample), f"measuring {counted(len(runs.live), 'drafter')}, {advice.length} tokens a prompt")
            if interrupt.asked or (place and time.monotonic() - began > end):
                break
            try:
                ids = engine.tokenise(prompt.opening, common["chat"], prompt.system, TemplateVariables.of(common))
                length = min(prompt.max_new_tokens or advice.length, advice.length)
                runs.play(ids, length, lambda done: interrupt.asked or (done > 0 and time.monotonic() - began > end))
            except Exception as error:
                _leave_out(engine, prompt, error, advice)
    advice.sampled = runs.prompts
    if runs.prompts and advice.length < common["length"]:
        advice.notes.append(f"answers were measured for {advice.length} tokens, as the time allows, and checked whole")
    if any(len(prompt.turns) > 1 for prompt in sample):
        advice.notes.append("of conversations the first turn was asked")
    return runs


def _leave_out(engine: LocalEngine, prompt: Prompt, error: Exception, advice: Advice) -> None:
    """Go on without a prompt; what is no fault of the user's, such as too little memory, may leave caches torn."""
    if not isinstance(error, UserError):
        engine.renew()
    advice.notes.append(f"prompt {shown(prompt.id)} is left out: {error or type(error).__name__}")


def _choose(runs: SampleRuns, advice: Advice) -> None:
    """The best candidate and what it is expected to bring."""
    if not runs.prompts:
        advice.notes.append("nothing was measured")
        return
    logs = runs.logs()
    advice.best = choose(logs)
    if runs.left_out:
        advice.notes.append(f"left out early, as even their oracles were no better: {', '.join(runs.left_out)}")
    if advice.best is None:
        advice.notes.append("the pair has nothing that drafts")
        return
    advice.configuration = runs.candidates[advice.best.name]
    ratios = ((runs.candidates[name], _ratio(values)) for name, values in logs.items())
    advice.candidates = tuple(sorted(ratios, key=lambda pair: -pair[1]))
    advice.bounds = tuple((name, _ratio(values)) for name, values in runs.bounds().items())
    _note_taking_back(runs, advice)
    if runs.prompts == 1:
        advice.notes.append("one prompt was measured: too few for an interval")
    elif runs.prompts < FEW:
        advice.notes.append(f"{runs.prompts} prompts were measured: the interval of so few is wide")


def _note_taking_back(runs: SampleRuns, advice: Advice) -> None:
    """Say what taking tokens back costs the best candidate of a fixed length, where it matters: rules may not draft."""
    fixed = [one.name for one, _ in advice.candidates if DRAFT_RULE.name not in dict(one.parameters)]
    name, seconds = next(((name, known) for name in fixed if (known := runs.taken_back_s(name)) is not None), ("", 0.0))
    plain_s = runs.plain_s()
    if seconds > _MATTERS * plain_s:
        advice.notes.append(
            f"taking tokens back costs {seconds * 1e3:.1f} ms a round here, of {name}; a plain round takes "
            f"{plain_s * 1e3:.1f} ms"
        )


def _ratio(logs: Sequence[float]) -> float:
    return math.exp(sum(logs) / len(logs))


def _check(
    engine: LocalEngine,
    held_out: Sequence[Prompt],
    common: Values,
    advice: Advice,
    interrupt: Interrupt,
    end: float,
    tell: Tell,
) -> None:
    """Decode the held-out prompts, plainly and with the best candidate; which goes first alternates."""

    def over() -> bool:
        return interrupt.asked or time.monotonic() > end

    logs: list[float] = []
    engine.forget()
    with _stopped_at_once(engine):
        for place, prompt in enumerate(held_out):
            tell(place, len(held_out), f"checking {advice.configuration.name} on prompts held out")
            if over():
                break
            values = {**common, "length": prompt.max_new_tokens or common["length"]}
            try:
                ids = engine.tokenise(prompt.opening, common["chat"], prompt.system, TemplateVariables.of(common))
                comparison = Comparison(engine, values, ids)
                if (speedup := _speedup(comparison, advice.configuration, place, over)) is None:
                    break
            except Exception as error:
                _leave_out(engine, prompt, error, advice)
                continue
            logs.append(math.log(speedup))
            _note_differences(comparison, prompt, advice)
    why = "it was stopped" if interrupt.asked else "the time was over before" if over() else "none could be decoded"
    _judge(logs, why if held_out else "there is no second prompt", advice)


def _speedup(
    comparison: Comparison, configuration: Configuration, place: int, over: Callable[[], bool]
) -> float | None:
    """The speedup of a configuration on one prompt; None where the time was over in the middle of it."""
    plain = Configuration(AR)
    for run in (plain, configuration) if place % 2 == 0 else (configuration, plain):
        for _ in comparison.run(run.name, method=run.method, parameters=dict(run.parameters)):
            if over() and place:
                return None
    return comparison.speedup(configuration.name)


def _note_differences(comparison: Comparison, prompt: Prompt, advice: Advice) -> None:
    divergence = comparison.divergence(advice.configuration.name)
    if divergence is not None and divergence.verdict == "BUG":
        advice.differs = True
        advice.notes.append(f"BUG: on prompt {shown(prompt.id)} it says another thing than plain decoding")


def _judge(logs: Sequence[float], why: str, advice: Advice) -> None:
    """What the check says of the prediction; why: there is none, where there is none."""
    assert advice.best is not None
    if not logs:
        advice.notes.append(f"not checked on prompts held out: {why}")
        return
    judged = choose({advice.best.name: logs})
    assert judged is not None
    advice.measured, expected = judged.expected, advice.best.expected
    if advice.measured.prompts == 1:
        advice.notes.append("one prompt checked it, too few to tell a difference from noise")
    elif advice.measured.prompts < FEW:
        advice.notes.append(f"{len(logs)} prompts checked it: the interval of so few is wide")
    if expected.pays and advice.contradicted:
        advice.notes.append("the check contradicts the expectation: on prompts held out it is not shown to pay")
    elif not math.isnan(expected.low) and advice.measured.high < expected.low:
        advice.notes.append("on prompts held out it brought less than was expected")
