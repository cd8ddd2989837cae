"""What the environment says of how OpenMP's threads wait. A user's own words stay as they are."""

from collections.abc import Mapping, MutableMapping

VARIABLE = "SPECULATIVE_WORKBENCH_WAIT"
"""`auto`: spin while the machine is free, block beside others. Anything else: only spin, briefly."""

AUTO = "auto"
SPIN_COUNT = "10000"
_OWN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def spin_briefly(environment: MutableMapping[str, str]) -> None:
    """Let the threads of this process, and of those that it starts, spin briefly; a user's own setting stays.

    Unless `VARIABLE` says otherwise, it says from now on that they may block beside others.
    """
    if not any(name in environment for name in _OWN):
        environment["GOMP_SPINCOUNT"] = SPIN_COUNT
        environment.setdefault(VARIABLE, AUTO)


def adapts(environment: Mapping[str, str]) -> bool:
    """Whether the way to wait is ours to choose: `spin_briefly` has set it, here or in a process that started this."""
    ours = "OMP_WAIT_POLICY" not in environment and environment.get("GOMP_SPINCOUNT") == SPIN_COUNT
    return ours and environment.get(VARIABLE) == AUTO
