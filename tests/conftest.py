"""One thread for the whole suite: tiny models gain nothing from more, and lose much when cores are shared.

Set before torch is imported, and inherited by the processes that tests start.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
