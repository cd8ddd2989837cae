"""Counters of energy: RAPL's of processors and their memory, and NVML's of NVIDIA cards.

Sources: the Linux kernel's `Documentation/power/powercap/powercap.rst`; the NVML API, `nvmlDeviceGetTotalEnergy-
Consumption`.
"""

import importlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_log = logging.getLogger(__name__)

RAPL = Path("/sys/class/powercap")
MOST_WATTS = 600.0
"""No processor takes more; a counter that could have come round twice at this power says nothing."""

_COUNTED = re.compile(r"(package|dram)\b.*")


class Counter(Protocol):
    """Counts the energy of a part of the machine."""

    @property
    def part(self) -> str:
        """`package`, `dram` or `gpu`."""
        ...

    def read(self) -> int:
        """The count. Raises `OSError` where it cannot be read."""
        ...

    def joules(self, before: int, after: int, seconds: float) -> float | None:
        """What was used between two readings that are so far apart; None where they do not tell."""
        ...


@dataclass(frozen=True, slots=True)
class Zone:
    """A domain of RAPL. file: its count in microjoules, which begins again at 0 behind `range_uj`."""

    part: str
    file: Path
    range_uj: int

    def read(self) -> int:
        """Microjoules. Raises `OSError` for a file that is gone, forbidden or no number."""
        return _number(self.file)

    def joules(self, before: int, after: int, seconds: float) -> float | None:
        """Joules over `seconds`; a count that has come round once is put right."""
        if seconds * MOST_WATTS * 1e6 > self.range_uj:
            return None
        return (after - before if after >= before else after - before + self.range_uj) / 1e6


@dataclass(frozen=True, slots=True)
class Card:
    """An NVIDIA card. nvml: the module of nvidia-ml-py; handle: the card in it. Counts from the driver's start."""

    nvml: Any
    handle: Any
    part: str = "gpu"

    def read(self) -> int:
        """Millijoules. Raises `OSError` where the card has no counter, as those before Volta."""
        try:
            return int(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle))
        except self.nvml.NVMLError as error:
            raise OSError(str(error)) from error

    def joules(self, before: int, after: int, seconds: float) -> float | None:
        """Joules; None where the driver started anew in between."""
        return (after - before) / 1e3 if after >= before else None


def zones(root: Path | None = None) -> tuple[Zone, ...]:
    """Each processor package of RAPL, and the memory beside it; empty where there are none or one cannot be read.

    A package's count has that of its cores and its graphics (zones `core` and `uncore`) in it, and `psys` has the
    packages in it: these are left out. `dram` is a count of its own. `intel-rapl-mmio` counts packages once more.
    Where the files are not for this user, a warning says how to allow it. root: in place of the system's folder.
    """
    root, found = root or RAPL, []
    try:
        for folder in sorted(root.glob("intel-rapl:*")):
            if known := _COUNTED.fullmatch((folder / "name").read_text().strip()):
                found.append(Zone(known[1], folder / "energy_uj", _number(folder / "max_energy_range_uj")))
        for zone in found:
            zone.read()
    except PermissionError:
        _log.warning(
            "joules_per_token has no part of the processor: %s cannot be read. Until the next start of the machine "
            "this allows it: sudo chmod a+r %s",
            root / "intel-rapl:*/energy_uj",
            root / "intel-rapl:*/energy_uj",
        )
        return ()
    except OSError:
        return ()
    return tuple(found) if any(zone.part == "package" for zone in found) else ()


def cards(uuids: Sequence[str]) -> tuple[Card, ...]:
    """The cards with these UUIDs (`GPU-...`); empty without nvidia-ml-py, a driver, or a counter of each."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no module, or an error of its own kind for a driver that is not there
        return ()
    try:
        found = tuple(Card(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)) for uuid in uuids)
        for card in found:
            card.read()
    except (OSError, nvml.NVMLError):
        return ()
    return found


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except ValueError as error:
        raise OSError(f"{file} holds no number") from error
