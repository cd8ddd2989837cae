"""Where results come from and what they are against, for the head of a report and the captions of its tables."""

from collections.abc import Mapping
from typing import Any

from sampling.loading.options import WEIGHTS

AGAINST = (
    "A speedup is the tokens/s of a configuration over those of AR, the target's plain autoregression with the same "
    "weights, on the same prompt in the same run."
)


def measured_on(manifest: Mapping[str, Any] | None) -> str:
    """The machine and the models in one sentence, as far as a manifest knows them; empty where it knows nothing.

    Example: "Measured on AMD EPYC, 2 threads; target SmolLM2-135M-Instruct (cpu, float32)."
    """
    fixed = _part(manifest, "fixed")
    hosts, machine = _part(manifest, "hosts"), _part(fixed, "machine")
    machines = list(dict.fromkeys(map(machine_text, hosts.values()))) or [machine_text(machine)]
    sentences = [" and ".join(machines)]
    sentences += [f"{role} {_model(about)}" for role in ("target", "drafter") if (about := _part(fixed, role))]
    return f"Measured on {'; '.join(filter(None, sentences))}." if machine or hosts else ""


def machine_text(machine: object) -> str:
    """A manifest's machine in words; empty where it says nothing. Example: "AMD EPYC, 2 threads"."""
    about = machine if isinstance(machine, Mapping) else {}
    threads = f"{about['threads']} threads" if "threads" in about else ""
    names = [str(about[name]) for name in ("gpu", "cpu") if about.get(name)]
    return ", ".join(filter(None, (*names, threads)))


def _part(whole: object, name: str) -> Mapping[str, Any]:
    """A table within a table; an empty one where it has none."""
    part = whole.get(name) if isinstance(whole, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _model(about: Mapping[str, Any]) -> str:
    facts = [str(about[name]) for name in ("device", "dtype") if about.get(name)]
    facts += [f"{about['stored']} weights"] if about.get("stored", WEIGHTS[0]) != WEIGHTS[0] else []
    facts += ["batch-invariant"] if about.get("batch_invariant") is True else []
    kind = ", ".join(facts)
    return f"{about.get('name', 'unknown')}{f' ({kind})' if kind else ''}"
