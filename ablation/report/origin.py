"""Where results come from and what they are against, for the head of a report and the captions of its tables."""

from collections.abc import Mapping
from typing import Any

AGAINST = (
    "A speedup is the tokens/s of a configuration over those of AR, the target's plain autoregression, on the same "
    "prompt in the same run."
)


def measured_on(manifest: Mapping[str, Any] | None) -> str:
    """The machine and the models in one sentence, as far as a manifest knows them; empty where it knows nothing.

    Example: "Measured on AMD EPYC, 2 threads; target SmolLM2-135M-Instruct (cpu, float32)."
    """
    fixed = (manifest or {}).get("fixed", {})
    machine = fixed.get("machine") or {}
    threads = f"{machine['threads']} threads" if "threads" in machine else ""
    known = [", ".join(filter(None, (machine.get("gpu"), machine.get("cpu"), threads)))]
    known += [f"{role} {_model(fixed[role])}" for role in ("target", "drafter") if fixed.get(role)]
    told = "; ".join(filter(None, known))
    return f"Measured on {told}." if machine else ""


def _model(about: Mapping[str, Any]) -> str:
    kind = ", ".join(str(about[name]) for name in ("device", "dtype") if about.get(name))
    return f"{about.get('name', 'unknown')} ({kind})" if kind else str(about.get("name", "unknown"))
