"""Our Triton kernels on a CPU, interpreted, against the plain operations."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from sampling.forward.kernels.cuda_formats import Fp8Linear, agrees
from tests.interpreted import Worker, interpreter
from tests.sampling.forward.triton import attention_cases, byte_cases, model_cases, step_cases
from tests.sampling.forward.triton.attention_cases import Case

needs_fp8 = pytest.mark.skipif(
    not agrees(Fp8Linear, torch.device("cpu")), reason="this torch has no fp8 products on a CPU"
)

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


@pytest.fixture(scope="module")
def interpreted() -> Iterator[Worker]:
    with interpreter() as call:
        yield call


@pytest.mark.parametrize("case", attention_cases.CASES, ids=str)
def test_attention_with_split_keys_is_the_plain_one(case: Case, interpreted: Worker) -> None:
    interpreted(attention_cases.check, case)


@pytest.mark.parametrize("dtype", step_cases.DTYPES, ids=str)
def test_fused_steps_are_the_plain_ones(dtype: torch.dtype, interpreted: Worker) -> None:
    interpreted(step_cases.check_all, dtype)


@pytest.mark.parametrize("dtype", byte_cases.DTYPES, ids=str)
def test_products_of_bytes_are_the_plain_ones(dtype: torch.dtype, interpreted: Worker) -> None:
    interpreted(byte_cases.check, dtype)


@pytest.mark.parametrize("cases", [attention_cases, byte_cases, step_cases], ids=["attention", "bytes", "steps"])
def test_a_planted_fault_shows(cases: Any, interpreted: Worker) -> None:
    interpreted(cases.check_that_faults_show)


def test_a_wrong_table_of_blocks_shows(interpreted: Worker) -> None:
    interpreted(attention_cases.check_that_faults_of_a_table_show)


def test_a_row_has_the_same_bits_among_any_others(interpreted: Worker) -> None:
    interpreted(attention_cases.check_bits)
    interpreted(byte_cases.check_bits)


@pytest.mark.parametrize("name", model_cases.CONFIGS)
def test_captured_forwards_give_what_plain_ones_give(name: str, interpreted: Worker) -> None:
    interpreted(model_cases.check_alone, name)


def test_a_layer_is_ten_kernels(interpreted: Worker) -> None:
    ours = {"turn_and_store": 1, "attend_part": 1, "join_parts": 1, "add_and_norm": 2, "gate_and_up": 1}
    assert interpreted(model_cases.launches, "llama") == {"linear": 4, **ours}


@needs_fp8
def test_rows_are_rounded_to_fp8_in_the_steps_before(interpreted: Worker) -> None:
    """What attention gives is rounded by itself: the one largest number that is looked for."""
    interpreted(model_cases.check_fp8)
    found = interpreted(model_cases.launches, "fp8")
    ours = {"turn_and_store": 1, "attend_part": 1, "join_parts": 1, "add_and_norm": 2, "gate_up_and_round": 1}
    assert {name: found[name] for name in ours} == ours
    assert (found["_scaled_mm"], found["amax"], found["gate_and_up"]) == (4, 1, 0)


def test_the_length_of_a_text_is_part_of_no_graph(interpreted: Worker) -> None:
    interpreted(model_cases.check_one_graph_a_width)


def test_texts_side_by_side_give_what_plain_forwards_give(interpreted: Worker) -> None:
    interpreted(model_cases.check_together, "gemma3")


def test_texts_in_blocks_give_what_plain_forwards_give(interpreted: Worker) -> None:
    interpreted(model_cases.check_blocks)
