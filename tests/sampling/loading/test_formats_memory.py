"""A rounded target is not in memory in float32 beside its rounded weights while it is loaded."""

import os
import subprocess
import sys

import pytest
import torch

from sampling.forward.kernels import int4, int8
from sampling.loading.embedded import embedded_gguf
from sampling.loading.gguf.cache import converted

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not (int8.runs() and int4.runs()), reason="reads /proc; needs the products"
)
FLOATS_MIB = 134_515_008 * torch.float32.itemsize / 2**20
# What the allocator keeps after it was given back varies from run to run; what the program asks for does not.
GIVEN_BACK = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**20)}
MEASURE = """
import sys, torch
from pathlib import Path
from transformers import GenerationConfig, PreTrainedTokenizerFast
from sampling.forward.kernels import int4
from sampling.forward.kernels import int8
from sampling.loading.fast_load import lean_folder
from utils.device.memory import process_memory_mb, process_peak_mb

int8.runs(), int4.runs()
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = process_memory_mb()
model = lean_folder(Path(sys.argv[1]), torch.device("cpu"), torch.float32, sys.argv[2])
print((process_peak_mb() - before) * 1e6 / 2**20)
"""


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_the_peak_of_loading_a_rounded_target_is_well_under_that_of_its_float32_weights(name: str) -> None:
    command = [sys.executable, "-c", MEASURE, str(converted(embedded_gguf())), name]
    peak = float(subprocess.run(command, capture_output=True, text=True, check=True, env=GIVEN_BACK).stdout)
    assert 0 < peak < 0.6 * FLOATS_MIB
