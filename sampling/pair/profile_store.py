"""Profiles of pairs, kept in the user's cache folder: one for each machine and each pair of weights and formats.

A pair is known by its weights and configs, not by its name: the digests of the target and each drafter, the number
formats, the kernel, whether steps are compiled, the device. The machine by its processor, threads and torch, as choices
are.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sampling.forward.kernels.autotune_cache import machine_name
from sampling.heads.head_files import fingerprint
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.pair.profile import LatencyProfile
from utils.errors import UserError
from utils.files import cache_folder, write_atomically
from utils.provenance import config_digest, weights_digest

_FORMAT = 6


def store_path() -> Path:
    """The file that profiles are kept in."""
    return cache_folder() / "profiles.json"


def with_stored(pair: Pair) -> Pair:
    """The pair with the profile that was kept of it; as it is where there is none, or where it knows one."""
    if pair.profile is not None or not pair.cached:
        return pair
    stored = _stored(pair)
    return pair if stored is None else replace(pair, profile=stored)


def keep(pair: Pair, profile: LatencyProfile) -> bool:
    """Keep a profile in place of an earlier one; whether it was: a folder that cannot be written keeps nothing."""
    pairs = _pairs()
    pairs[_key(pair)] = {"about": _about(pair), "profile": profile.as_dict()}
    return _write(pairs)


def drop(pair: Pair) -> None:
    """Forget what was kept of a pair, so that it is measured again next time."""
    pairs = _pairs()
    if pairs.pop(_key(pair), None) is not None:
        _write(pairs)


def _stored(pair: Pair) -> LatencyProfile | None:
    """What was kept; None where nothing was, or nothing that makes sense."""
    pairs = _pairs()
    entry = pairs.get(_key(pair)) if pairs else None  # a digest costs time, which without a file buys nothing
    if not isinstance(entry, dict):
        return None
    try:
        return LatencyProfile.from_dict(entry.get("profile"))
    except (UserError, OverflowError):  # JSON knows numbers that no float holds
        return None


def _key(pair: Pair) -> str:
    """sha256 of all that the times of a pair depend on beside the machine."""
    return hashlib.sha256(json.dumps(_about(pair), sort_keys=True).encode()).hexdigest()


def _about(pair: Pair) -> dict[str, Any]:
    drafter = None if pair.drafter is None else fingerprint(pair.drafter.model.landmarks())
    return {
        "target": {**_facts(pair.target_info), "weights": pair.digest, "chip": _chip(pair.target.device)},
        "drafter": drafter and {**_facts(pair.drafter_info or pair.target_info), "weights": drafter},
        "heads": {
            kind: [weights_digest(str(folder)), config_digest(str(folder))]
            for kind, folder in sorted(pair.heads.items())
        },
    }


def _facts(info: ModelInfo) -> dict[str, Any]:
    names = ("device", "dtype", "kernel", "stored", "compiled", "own_kernels", "graphs", "batch_invariant")
    over = {"processes": info.processes} if info.processes > 1 else {}
    config = config_digest(info.place) if info.place else None
    return {**{name: getattr(info, name) for name in names}, "config": config, **over}


def _chip(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _pairs() -> dict[str, Any]:
    """What is kept of this machine; nothing where the file is missing, damaged or of another form."""
    return _machines().get(machine_name(), {})


def _machines() -> dict[str, dict[str, Any]]:
    try:
        content = json.loads(store_path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if (
        not isinstance(content, dict)
        or content.get("format") != _FORMAT
        or not isinstance(content.get("machines"), dict)
    ):
        return {}
    return {machine: pairs for machine, pairs in content["machines"].items() if isinstance(pairs, dict)}


def _write(pairs: Mapping[str, Any]) -> bool:
    path = store_path()
    machines = {**_machines(), machine_name(): pairs}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"format": _FORMAT, "machines": machines}) + "\n")
    except OSError:
        return False
    return True
