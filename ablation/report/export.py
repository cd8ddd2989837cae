"""Acceptance by everyone's name: our table, vLLM's metrics of a request, NVIDIA's two files (docs/metrics.md)."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ablation.report.load import load_results
from ablation.report.requests import RequestAcceptance, RequestLine, acceptances
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import METHODS, MODELS
from utils.errors import UserError

# A profile is checked as its authors check it.
_TOLERANCE = 0.02
_DIGITS = 6


def write_acceptance(results: Path, folder: Path) -> Path:
    """Write acceptance.csv and, a folder a configuration that drafted, its vllm.jsonl, acceptance_rate.json and
    speculation_profile.json; return the folder.

    Raises `UserError` for a results file that cannot be read or in which nothing drafted, and a folder that cannot be
    written.
    """
    acceptances_found = list(acceptances(load_results(results)))
    if not acceptances_found:
        raise UserError(f"{str(results)!r}: no generation drafted anything; expected results of a method that drafts")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        acceptance_table(acceptances_found).to_csv(folder / "acceptance.csv", index=False)
        for acceptance in acceptances_found:
            place = folder / acceptance.stem
            place.mkdir(exist_ok=True)
            with (place / "vllm.jsonl").open("w", encoding="utf-8") as file:
                for request in acceptance.requests:
                    print(json.dumps(vllm_line(acceptance, request), ensure_ascii=False), file=file)
            _write(place / "acceptance_rate.json", [specdec_bench(acceptance)])
            _write(place / "speculation_profile.json", speculation_profile(acceptance))
    except OSError as error:
        raise UserError(f"folder {str(folder)!r} cannot be written: {error.strerror or error}") from None
    return folder


def acceptance_table(acceptances: list[RequestAcceptance]) -> pd.DataFrame:
    """A row a configuration; what is by position is numbers between spaces, from position 1 on."""
    return pd.DataFrame(map(_row, acceptances))


def _row(acceptance: RequestAcceptance) -> dict[str, Any]:
    accepted, tested, rounds = acceptance.accepted, acceptance.tested, acceptance.rounds
    mean = sum(length * count for length, count in acceptance.lengths.items()) / rounds
    bonus = sum(sum(request.accepted) for request in acceptance.requests)
    return {
        "processor": acceptance.said("processor"),
        "configuration": acceptance.said("configuration"),
        "requests": len(acceptance.requests),
        "rounds": rounds,
        "rounds_that_drafted": sum(request.steps for request in acceptance.requests),
        "conditional": _cell(yes / of for yes, of in zip(accepted, tested, strict=True)),
        "joint": _cell(yes / rounds for yes in accepted),
        "tokens_by_round": mean,
        "accepted_by_round": bonus / rounds,
        "tokens_by_request": acceptance.by_request,
        "accepted_by_request": sum(sum(r.accepted) / len(r.emitted) for r in acceptance.requests)
        / len(acceptance.requests),
    }


def vllm_line(acceptance: RequestAcceptance, request: RequestLine) -> dict[str, Any]:
    """A request with vLLM's `metrics.speculative_decoding`, null where no round drafted (acceptance_metrics.md)."""
    about = {name: getattr(request, name) for name in ("id", "turn", "seed", "repeat")}
    about["configuration"] = acceptance.said("configuration")
    return {**about, "metrics": {"speculative_decoding": _vllm(acceptance, request) if request.steps else None}}


def _vllm(acceptance: RequestAcceptance, request: RequestLine) -> dict[str, Any]:
    accepted, by_count = sum(request.accepted), Counter(request.accepted)
    by_count[0] -= len(request.emitted) - request.steps  # a round without drafts is no step
    metrics: dict[str, Any] = {
        "mean_acceptance_length": 1.0 + accepted / request.steps,
        "draft_acceptance_rate": accepted / request.drafts,
        "acceptance_histogram": {str(count): by_count[count] for count in sorted(by_count) if by_count[count]},
        "num_spec_steps": request.steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": request.drafts,
        "num_spec_tokens": None if _trees(acceptance) else acceptance.longest,
    }
    if request.drafted is not None:
        steps = [pair for pair in zip(request.accepted, request.drafted, strict=True) if pair[1]]
        metrics["per_step_accepted"] = [yes for yes, _ in steps]
        metrics["per_step_drafted"] = [drafted for _, drafted in steps]
    return metrics


def specdec_bench(acceptance: RequestAcceptance) -> dict[str, Any]:
    """An entry of NVIDIA specdec_bench's acceptance_rate.json, methodology 1.0: lengths include the target's token.

    Requests are by id, with seed and repeat where there are several; turns are counted from 0 there. Lengths that no
    round had have no entry.
    """
    several = len({(request.seed, request.repeat) for request in acceptance.requests}) > 1
    lengths: dict[str, dict[str, float]] = {}
    for request in acceptance.requests:
        name = f"{request.id}, seed {request.seed}, repeat {request.repeat}" if several else request.id
        lengths.setdefault(name, {})[str(request.turn - 1)] = request.tokens_per_round
    joint = {length: share for length, share in _survival(acceptance.lengths).items() if acceptance.lengths[length]}
    before = (1.0, *joint.values())
    return {
        "Request_AL": lengths,
        "Average_AL": acceptance.by_request,
        "Acceptance_Length_Histogram": {str(length): acceptance.lengths[length] for length in joint},
        "Conditional_Acceptance_Rate": {
            str(length): share / last for (length, share), last in zip(joint.items(), before, strict=False)
        },
        "Joint_Acceptance_Rate": {str(length): share for length, share in joint.items()},
    }


def speculation_profile(acceptance: RequestAcceptance) -> dict[str, Any]:
    """`speculation_profile.json` 1.0. What could not be said for sure is null (docs/metrics.md)."""
    trees = _trees(acceptance)
    most = len(acceptance.tested) if trees else acceptance.longest
    survival = _survival(acceptance.lengths)
    marginal = [survival.get(place + 2, 0.0) for place in range(most)]
    conditional = [here / last if last else 0.0 for here, last in zip(marginal, (1.0, *marginal), strict=False)]
    mean = sum(length * count for length, count in acceptance.lengths.items()) / acceptance.rounds
    method = METHODS[str(acceptance.said("method"))]
    one_length = acceptance.rows["min_gamma"].min() == acceptance.rows["max_gamma"].max()
    return {
        "schema_version": "1.0",
        "measured": True,
        "method": {"model": "draft_model"}.get(method.drafter, method.drafter),
        "draft_checkpoint": None,
        "target_model": None,
        "num_speculative_tokens": most,
        "block_size": None,
        "max_supported_k": most,
        "verification_method": "longest_prefix",
        "conditional_accept_rates": _rounded(conditional),
        "marginal_accept_rates": _rounded(marginal),
        "mean_accept_length": round(mean, _DIGITS),
        "mean_accept_length_per_request": round(acceptance.by_request, _DIGITS),
        "accept_length_model": "chain_analytic"
        if one_length and method.drafter in MODELS and not trees
        else "measured_per_k",
        "accept_length_by_k": {str(most): round(mean, _DIGITS)},
        "acceptance_length_histogram": {
            str(length): acceptance.lengths[length] for length in sorted(acceptance.lengths)
        },
        "per_category": None,
        "measurement_conditions": _conditions(acceptance),
        "validation": _validation(mean, marginal),
    }


def _survival(lengths: Mapping[int, int]) -> dict[int, float]:
    """Share of the rounds that emitted each number of tokens or more, from 1 on."""
    total, left, shares = sum(lengths.values()), sum(lengths.values()), dict[int, float]()
    for length in range(1, max(lengths) + 1):
        shares[length] = left / total
        left -= lengths.get(length, 0)
    return shares


def _validation(mean: float, marginal: list[float]) -> dict[str, Any]:
    """That the rates say the mean, and that none is above the one before."""
    implied = 1.0 + sum(marginal)
    rising = [
        {"position": place, "value": marginal[place], "previous": marginal[place - 1]}
        for place in range(1, len(marginal))
        if marginal[place] > marginal[place - 1] + 1e-9
    ]
    return {
        "mean_consistency": {
            "implied_mean_accept_length": round(implied, _DIGITS),
            "reported_mean_accept_length": round(mean, _DIGITS),
            "abs_delta": round(abs(implied - mean), _DIGITS),
            "tolerance": _TOLERANCE,
            "passed": abs(implied - mean) <= _TOLERANCE,
        },
        "marginal_monotonicity": {"passed": not rising, "violations": rising},
    }


def _conditions(acceptance: RequestAcceptance) -> dict[str, Any]:
    """What the numbers hold under; the schema leaves the keys open."""
    tasks = dict.fromkeys(request.task for request in acceptance.requests)
    return {
        "configuration": acceptance.said("configuration"),
        "processor": acceptance.said("processor"),
        "lossless": {"true": True, "false": False}.get(str(acceptance.said("lossless"))),
        "tasks": list(tasks),
        "num_requests": len(acceptance.requests),
        "concurrency": 1,
        "drafts": "tree" if _trees(acceptance) else "chain",
    }


def _trees(acceptance: RequestAcceptance) -> bool:
    """Whether its drafts are trees, by the settings that the file names."""
    method = METHODS[str(acceptance.said("method"))]
    cells = {p.name: acceptance.said(p.name) for p in method.parameters}
    settings = {name: PARAMETERS[name].parse(str(cell)) for name, cell in cells.items() if isinstance(cell, str)}
    return method.drafts_trees({**{name: parameter.default for name, parameter in PARAMETERS.items()}, **settings})


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _cell(values: Any) -> str:
    return " ".join(f"{value:.6g}" for value in values)


def _rounded(values: list[float]) -> list[float]:
    return [round(value, _DIGITS) for value in values]
