"""Probes in this process, one a line: `python -m ablation.gpu_check.probe DEVICE tiny|full FIRST SECONDS DUMP`.

What ends this process leaves the lines before it. `stage` begins another one behind the probe that did.
"""

import utils.device.threads  # noqa: F401

import faulthandler
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

import torch

from ablation.gpu_check.probe.model import NotCaptured
from ablation.gpu_check.probe.table import probes
from ablation.gpu_check.probe.trial import Probe, ProbeDevice, TooFar, Wrong, settle
from ablation.gpu_check.record import LeftOut
from sampling.loading.devices import prepared
from utils.device.traced import our_lines
from utils.text import first_line

HANGS_S = 15.0
"""A probe that takes longer hangs, and this process ends."""
LOST = 3
"""The exit status where the device answers no more in this process."""


def main(device: str, size: str, first: str, seconds: str, dump: str) -> int:
    """Run them from the numbered one on; none begins behind so many seconds."""
    on = ProbeDevice(prepared(torch.device(device)), size == "tiny")
    until, wanted = time.monotonic() + float(seconds), list(probes(on))
    _say({"names": [probe.name for probe in wanted]})
    with Path(dump).open("w", encoding="utf-8") as file:
        faulthandler.enable(file, all_threads=False)
        for probe in wanted[int(first) :]:
            if time.monotonic() >= until:
                break
            _say({"begun": probe.name, "at": probe.place})
            _say(said := outcome(probe, on, file))
            if not said["ok"] and not _answers(on):
                return LOST
    return 0


def outcome(probe: Probe, on: ProbeDevice, dump: TextIO) -> dict[str, Any]:
    """What becomes of a probe, whatever it raises: ok, its numbers, and for one that failed why and where."""
    faulthandler.dump_traceback_later(HANGS_S, exit=True, file=dump)
    try:
        numbers = probe.run()
        settle(on)
        return {"name": probe.name, "ok": True, **numbers}
    except LeftOut as reason:
        return {"name": probe.name, "ok": True, "left_out": str(reason)}
    except TooFar as error:
        return {"name": probe.name, "ok": False, **error.numbers, "error": str(error), "at": probe.place}
    except NotCaptured as error:
        return {"name": probe.name, "ok": False, "error": f"not captured: {error}", "at": error.place or probe.place}
    except Exception as error:
        traceback.print_exc()
        lines = [] if isinstance(error, Wrong) else product_lines(our_lines(error))
        told = f"{type(error).__name__}: {first_line(error)}"
        return {
            "name": probe.name, "ok": False, "error": told, "at": lines[-1] if lines else probe.place, "lines": lines
        }  # fmt: skip
    finally:
        faulthandler.cancel_dump_traceback_later()


def product_lines(lines: list[str]) -> list[str]:
    """The lines that are not those of the probes themselves; all, where there are no others."""
    return [line for line in lines if not line.startswith("ablation/gpu_check/probe/")] or lines


def _answers(on: ProbeDevice) -> bool:
    """Whether the device still computes in this process."""
    try:
        torch.ones(1, device=on.device).item()
        settle(on)
    except RuntimeError:
        return False
    return True


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
