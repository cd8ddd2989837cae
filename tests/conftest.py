"""One thread for the whole suite: tiny models gain nothing from more, and lose much when cores are shared.

Set before torch is imported, and inherited by the processes that tests start; where a test takes more threads, they
spin briefly. Nothing is compiled but where a test asks for it: each tiny model would cost half a minute.
"""

import utils.threads  # noqa: F401

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CXX"] = "no-compiler-in-tests"
