"""Acceptance by draft position as an engine reports it, against rounds of the same length along our texts.

Forms: the page `/metrics` of vLLM with `vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"}` (vLLM PR
16665); NVIDIA's `acceptance_rate.json` of specdec_bench (`Acceptance_Length_Histogram`, `Joint_Acceptance_Rate`) and
`speculation_profile.json`; requests with vLLM's `acceptance_histogram`; and rates between commas.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.report.tables.paired import LEVEL
from sampling.measure.acceptance.estimate import IntervalEstimate
from utils.errors import UserError
from utils.files import checked_path
from utils.numbers.holm import holm

_LINE = re.compile(r"^vllm:spec_decode_num_(drafts|accepted_tokens_per_pos)(?:_total)?(?:\{(.*)\})?\s+(\S+)")
_POSITION = re.compile(r'position="(\d+)"')
_RATES = re.compile(r"\s*(?:0?\.\d+|[01](?:\.0*)?)(?:\s*,\s*(?:0?\.\d+|[01](?:\.0*)?))*\s*")
_MOST = 64


@dataclass(frozen=True, slots=True)
class EngineRow:
    """Share of all rounds that accepted a draft at each position, from 1 on. rounds: how many; None where not told."""

    joint: tuple[float, ...]
    rounds: float | None = None


def read_row(text: str, before: Path | None = None) -> EngineRow:
    """A file in one of the forms, or the rates themselves. before: an earlier page of vLLM's metrics, taken off.

    Raises `UserError` for what is none of them.
    """
    if _RATES.fullmatch(text):
        return _checked(EngineRow(tuple(map(float, text.split(",")))), text)
    content = _content(checked_path(text, "engine's row"))
    if any(map(_LINE.match, content.splitlines())):
        return _checked(_of_metrics(content, "" if before is None else _content(before)), text)
    if before is not None:
        raise UserError(
            f"--engine-row-before given, and {text!r} is no page of metrics; expected a page of vLLM's /metrics"
        )
    return _checked(_of_json(content, text), text)


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(
            f"engine's row {str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None


def _of_metrics(page: str, before: str) -> EngineRow:
    """Counters of a page, of all engines and models on it, since the page before."""
    now, then = _counters(page), _counters(before)
    rounds = now[-1] - then[-1]
    accepted = [now[place] - then[place] for place in range(max(now) + 1)]
    if rounds <= 0:
        raise UserError("the page of metrics counts no round with drafts; expected one after some requests")
    return EngineRow(tuple(count / rounds for count in accepted), rounds)


def _counters(page: str) -> Counter[int]:
    """Accepted drafts by position from 0; rounds at -1."""
    found = Counter[int]()
    for line in page.splitlines():
        if match := _LINE.match(line):
            name, labels, value = match.groups()
            position = _POSITION.search(labels or "")
            if name == "drafts":
                found[-1] += float(value)  # type: ignore[assignment]
            elif position and int(position[1]) < _MOST:
                found[int(position[1])] += float(value)  # type: ignore[assignment]
    return found


def _of_json(content: str, name: str) -> EngineRow:
    try:
        found = _of_object(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError):
        found = None
    if found is None:
        try:  # a request a line
            found = _of_object([json.loads(line) for line in content.splitlines() if line.strip()])
        except (ValueError, KeyError, TypeError, AttributeError):
            found = None
    if found is None:
        raise UserError(
            f"{name!r} holds no acceptance by position; expected a page of vLLM's /metrics, acceptance_rate.json or "
            "speculation_profile.json of NVIDIA, requests with an acceptance_histogram, or rates such as 0.7,0.5,0.3"
        )
    return found


def _of_object(value: Any) -> EngineRow | None:
    entries = value if isinstance(value, list) else [value]
    histogram = Counter[int]()
    for entry in entries:
        lengths = entry.get("Acceptance_Length_Histogram") or entry.get("acceptance_length_histogram")
        histogram.update({int(length) - 1: float(count) for length, count in (lengths or {}).items()})
        histogram.update({int(count): float(times) for count, times in _of_request(entry).items()})
    if histogram:
        return _of_histogram(histogram)
    rates = entries[0].get("Joint_Acceptance_Rate")
    if rates:
        ordered = {int(length): float(rate) for length, rate in rates.items()}
        return EngineRow(tuple(ordered.get(length, 0.0) for length in range(2, max(ordered) + 1)))
    marginal = entries[0].get("marginal_accept_rates")
    return EngineRow(tuple(map(float, marginal))) if marginal else None


def _of_request(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The histogram of accepted drafts of a request, as vLLM's answer has it."""
    metrics = entry.get("metrics") or entry
    inner = metrics.get("speculative_decoding", metrics) or {}
    found: Mapping[str, Any] = inner.get("acceptance_histogram") or {}
    return found


def _of_histogram(accepted: Mapping[int, float]) -> EngineRow:
    rounds = sum(accepted.values())
    most = max(accepted)
    return EngineRow(
        tuple(
            sum(times for count, times in accepted.items() if count >= place) / rounds for place in range(1, most + 1)
        ),
        rounds,
    )


def _checked(row: EngineRow, name: str) -> EngineRow:
    fine = all(0.0 <= rate <= 1.0 for rate in row.joint) and 0 < len(row.joint) <= _MOST
    if not fine or any(later > rate + 1e-6 for rate, later in zip(row.joint, row.joint[1:], strict=False)):
        raise UserError(f"{name!r}: rates {row.joint[:8]}; expected 1 to {_MOST} shares of all rounds that never rise")
    return row


@dataclass(frozen=True, slots=True)
class PositionDifference:
    """A position (from 1): our conditional acceptance in rounds of the engine's length, and the engine's.

    p, p_holm: that they differ by chance, raw and corrected for the number of positions; NaN where nobody can tell.
    """

    position: int
    ours: IntervalEstimate
    theirs: float
    p: float
    p_holm: float

    @property
    def differs(self) -> bool:
        """Whether it is shown."""
        return self.p_holm <= LEVEL


def differences(ours: Sequence[IntervalEstimate], row: EngineRow) -> list[PositionDifference]:
    """By position. ours: conditional, of rounds with as many drafts.

    The engine's texts are taken to vary as ours do: its variance is that of as many independent rounds, times our own
    design effect. Without its number of rounds its rates are taken as they are.
    """
    before = (1.0, *row.joint)
    theirs = [here / last if last else math.nan for last, here in zip(before, row.joint, strict=False)]
    p = [
        _p(own, rate, None if row.rounds is None else row.rounds * last)
        for own, rate, last in zip(ours, theirs, before, strict=False)
    ]
    known = [place for place, value in enumerate(p) if value == value]
    corrected = dict(zip(known, holm([p[place] for place in known]), strict=True))
    return [
        PositionDifference(place + 1, own, rate, p[place], corrected.get(place, math.nan))
        for place, (own, rate) in enumerate(zip(ours, theirs, strict=False))
    ]


def _p(ours: IntervalEstimate, theirs: float, rounds: float | None) -> float:
    from scipy.stats import norm

    error = (ours.high - ours.low) / (2.0 * norm.ppf(0.975))
    if not error > 0.0 or theirs != theirs:
        return math.nan
    own = max(ours.value * (1.0 - ours.value), 0.25 / max(ours.places, 1.0))
    design = max(1.0, error**2 * ours.places / own)
    other = 0.0 if not rounds else design * max(theirs * (1.0 - theirs), 0.25 / rounds) / rounds
    return float(2.0 * norm.sf(abs(ours.value - theirs) / math.sqrt(error**2 + other)))


def verdict(found: Sequence[PositionDifference]) -> str:
    """Where the engine differs, and what is read there that is not read before."""
    wrong = [each for each in found if each.differs]
    if not any(each.p == each.p for each in found):
        return "nothing can be told: fewer than 5 texts"
    if not wrong:
        return "no position differs from the engine's beyond chance"
    first = wrong[0]
    rates = f"position {first.position}: {first.theirs:.3f} in the engine, {first.ours.value:.3f} here"
    if first.theirs > first.ours.value:
        return f"{rates}. The engine accepts more: easier texts, a lossy rule, or another drafter"
    if first.position == 1:
        return (
            f"{rates}. A first draft reads the target's states and the text alone. Compare the layers and norms of the "
            "states, a shift by one token, the draft vocabulary, the chat template, and the target's checkpoint"
        )
    return (
        f"{rates}, and positions before agree. From there a draft reads what drafts before it left: compare the "
        "head's own state that is fed back, positions, and the cache rows of earlier drafts"
    )
