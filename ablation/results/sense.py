"""Whether rows of a results file can be what a run wrote: words that we use, counts that are possible."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sampling.loading.options import WEIGHTS
from sampling.methods.tables import METHODS
from utils.errors import one_of, wrong_value
from utils.parameter import read_integer, read_number

WORDS: Mapping[str, Sequence[str]] = {
    "method": tuple(METHODS),
    "lossless": ("true", "false"),
    "finish_reason": ("stop", "length", "context"),
    "divergence_verdict": ("exact", "tie", "BUG"),
}
TEXTS = (*WORDS, "target_weights")
# What transformers calls the method of a checkpoint that was quantised before; none is called as ours are.
_METHOD = re.compile(r"(?!int|full)[\w.-]{1,40}")
_COUNTS = ("new_tokens", "rounds", "drafted", "tested", "accepted")
AMOUNTS = (*_COUNTS, "length", "decode_s", "wall_s", "tokens_per_s", "speedup")
_AT_MOST = (("accepted", "tested"), ("tested", "drafted"), ("accepted", "new_tokens"), ("new_tokens", "length"))
_KEYS = ("turn", "seed", "repeat")

Wrong = tuple[int, str]


def first_wrong(words: Mapping[str, Sequence[Any]], numbers: Mapping[str, NDArray[np.float64]]) -> Wrong | None:
    """The first row that no run can have written, and why; None where all may be.

    words, numbers: columns by name; unknown is NaN or "" in one, NaN in the other. Rows count from 0.
    """
    for name, allowed in WORDS.items():
        strange = {word for word in set(words[name]) if isinstance(word, str) and word and word not in allowed}
        if strange:
            row = next(row for row, word in enumerate(words[name]) if word in strange)
            return row, str(wrong_value(name, words[name][row], one_of(allowed)))
    for row, word in enumerate(words["target_weights"]):
        if isinstance(word, str) and word and word not in WEIGHTS and not _METHOD.fullmatch(word):
            return row, str(wrong_value("target_weights", word, one_of([*WEIGHTS, "a method such as gptq"])))
    for name in AMOUNTS:
        bad = (numbers[name] < 0) | np.isinf(numbers[name])
        if bad.any():
            row = int(bad.argmax())
            return row, f"{name}: {numbers[name][row]:g} given; expected a number of 0 or more"
    for low, high in _AT_MOST:
        bad = numbers[low] > numbers[high]
        if bad.any():
            row = int(bad.argmax())
            return row, f"{low}: {numbers[low][row]:g} given; expected at most {high}, which is {numbers[high][row]:g}"
    return None


def first_wrong_of(rows: Sequence[Mapping[str, str]]) -> Wrong | None:
    """The same of rows as text; here the numbers that a row is known by must be numbers, too."""
    for row, cells in enumerate(rows):
        for name in (*_KEYS, *AMOUNTS):
            read = read_integer if name in _KEYS else read_number
            if (cells[name] or name in _KEYS) and read(cells[name]) is None:
                return row, str(wrong_value(name, cells[name], "a number"))
    words = {name: [cells[name] for cells in rows] for name in TEXTS}
    numbers = {name: np.array([float(cells[name] or "nan") for cells in rows]) for name in AMOUNTS}
    return first_wrong(words, numbers)
