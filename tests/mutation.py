"""A change of the code planted in memory, and the tests that see it: cosmic-ray's operators, pytest in a fork.

A fork is of a process that has imported the libraries and nothing of this project, so that the changed module is
imported from memory: no file is touched.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
UNCHANGED = "no change"
FORKS = ROOT / ".mutation" / "forks"
"""What forks say, a file each."""
# Operators whose changes are faults that people make; those of annotations and identities are left out.
OPERATORS = (
    "AddNot",
    "NumberReplacer",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "ZeroIterationForLoop",
    *(f"ReplaceBinaryOperator_{one}" for one in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Mul_Add", "Mod_Mul")),
    *(f"ReplaceBinaryOperator_{one}" for one in ("FloorDiv_Div", "Pow_Mul", "BitAnd_BitOr")),
    *(f"ReplaceComparisonOperator_{one}" for one in ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    *(f"ReplaceComparisonOperator_{one}" for one in ("Is_IsNot", "IsNot_Is", "Lt_GtE", "Gt_LtE")),
)

Place = tuple[str, str, int]
"""A file, an operator, and which of its places."""


@dataclass(frozen=True)
class Mutant:
    """A change of one line: the file, the operator and which of its places; the line before and after."""

    file: str
    operator: str
    occurrence: int
    line: int
    before: str
    after: str


class Planted(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Imports one module from other code than its file's."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        super().__init__(name, str(path))
        self._source = source

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """The spec of that module; None for all others."""
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        """The changed code."""
        return compile(self._source, self.path, "exec")


class Timing:
    """A pytest plugin: whose turn it is, and how long it took."""

    def __init__(self, coverage: Any) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._coverage = coverage

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        """Lines that run from now on are this test's."""
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note what one phase of it took."""
        self.seconds[report.nodeid] += report.duration


def preload() -> None:
    """Import what tests import of others, once; then forks begin at once."""
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    FORKS.mkdir(parents=True, exist_ok=True)
    sys.path[:0] = [str(ROOT)]
    os.chdir(ROOT)
    for name in ("torch", "transformers", "pandas", "scipy.special", "hypothesis", "pytest", "openai", "typer.testing"):
        importlib.import_module(name)
    for name in ("starlette.applications", "uvicorn", "rich.console", "safetensors.torch", "matplotlib.figure"):
        importlib.import_module(name)


def pytest_in_fork(arguments: Sequence[str], finder: Planted | None, plugins: Sequence[Any] = ()) -> int:
    """The exit status of pytest, called in a fork that ends with it; its process is returned."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    if finder is not None:
        sys.meta_path.insert(0, finder)
    status = 1
    with (FORKS / f"{os.getpid()}.log").open("w") as log, redirect_stdout(log), redirect_stderr(log):
        import pytest

        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        status = int(pytest.main([*arguments, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[*plugins]))
    os._exit(status)


def places_of(path: Path) -> Iterator[Place]:
    """All places of a file that an operator changes."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    nodes = [*ast_nodes(get_ast(path.read_text(encoding="utf-8")))]
    for operator in OPERATORS:
        made = get_operator(f"core/{operator}")()
        places = [place for node in nodes for place in made.mutation_positions(node)]
        yield from ((str(path.relative_to(ROOT)), operator, occurrence) for occurrence in range(len(places)))


def mutant_at(file: str, operator: str, occurrence: int) -> Mutant | None:
    """The change of a place; None where the text stays the same."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    after = source_of(file, operator, occurrence).splitlines()
    changed = (number for number, (a, b) in enumerate(zip(lines, after, strict=False)) if a != b)
    at = next(changed, None)
    return None if at is None else Mutant(file, operator, occurrence, at + 1, lines[at].strip(), after[at].strip())


def source_of(file: str, operator: str, occurrence: int) -> str:
    """The changed source."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = (ROOT / file).read_text(encoding="utf-8")
    if operator == UNCHANGED:
        return source
    return mutate_code(source, get_operator(f"core/{operator}")(), occurrence) or source
