"""How long torch's threads spin for more work before they sleep: import this before torch.

Between two products libgomp's threads spin, for milliseconds unless told otherwise. On a free machine that saves
waking them; beside a busy process a spinning thread holds the core that the next product waits for, and a forward takes
many times as long. `scripts/spin_cost.py` measures both. The value is read once, when torch is imported; what happens
beside others is chosen while a program runs (`utils/device/waiting/choice.py`).
"""

import os

from utils.device.waiting import choice  # noqa: F401  # its first look at the machine
from utils.device.waiting.setting import SPIN_COUNT, spin_briefly

__all__ = ["SPIN_COUNT", "spin_briefly"]

spin_briefly(os.environ)
