"""Which lines of the project an error went through, also where it ended the process."""

import faulthandler
import re
import tempfile
from pathlib import Path

import torch

from utils.device.traced import dumped_lines, our_lines
from utils.numbers.intervals import median_interval


def test_lines_of_others_are_left_out_and_the_one_that_broke_is_last() -> None:
    def within() -> None:
        torch.ones(2) @ torch.ones(3)

    try:
        within()
    except RuntimeError as error:
        lines = our_lines(error)
    assert [line.split(" in ")[1] for line in lines] == [
        "test_lines_of_others_are_left_out_and_the_one_that_broke_is_last",
        "within",
    ]
    assert all(re.fullmatch(r"tests/utils/test_traced\.py:\d+ in \w+", line) for line in lines)
    try:
        median_interval(None)  # type: ignore[arg-type]
    except TypeError as error:
        assert our_lines(error)[-1].startswith("utils/numbers/intervals.py:")


def test_a_dump_of_a_dying_process_is_read(tmp_path: Path) -> None:
    with tempfile.TemporaryFile("w+", dir=tmp_path) as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        lines = dumped_lines(file.read())
    assert lines[-1].startswith("tests/utils/test_traced.py:")
    assert lines[-1].endswith(" in test_a_dump_of_a_dying_process_is_read")
    assert dumped_lines("") == []
