"""How long torch's threads spin for more work before they sleep: import this before torch.

Between two products libgomp's threads spin, for milliseconds unless told otherwise. On a free machine that saves
waking them; beside a busy process a spinning thread holds the core that the next product waits for, and a forward takes
many times as long. `scripts/spin_cost.py` measures both. The value is read once, when torch is imported.
"""

import os
from collections.abc import MutableMapping

SPIN_COUNT = "10000"
_OWN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def spin_briefly(environment: MutableMapping[str, str]) -> None:
    """Let the threads of this process, and of those that it starts, spin briefly; a user's own setting stays."""
    if not any(name in environment for name in _OWN):
        environment["GOMP_SPINCOUNT"] = SPIN_COUNT


spin_briefly(os.environ)
