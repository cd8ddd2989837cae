"""What a server lets requests cost: texts, rows of a round, and what is remembered of earlier answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ablation.plan.grid import Configuration
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import METHODS
from utils.errors import wrong_value

MOST_DRAFTS = 64
REMEMBERED = 1000
DEEPEST = 64

# Whether a request may have this value of a parameter, and what it may have.
_MEMORIES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "max_cached_requests": (
        lambda value: value in (0, REMEMBERED),
        f"0, or -1 for the {REMEMBERED} answers that a server remembers for all",
    ),
    "max_tree_depth": (lambda value: value <= DEEPEST, f"at most {DEEPEST} in a server"),
    "reset_in_between": (bool, "on in a server, whose counts would grow for ever"),
}


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """size: texts at a time. waiting: requests that may wait. longest: tokens of an answer. body: bytes of a request.

    key: what a client must know; None: anybody may ask. dialect: of whose server the completions are. rows: of a round
    of all texts at most, each with its drafts and one more. prefill_chunk: rows of prompts beside those, see `Batch`.
    prefixes: MB of rows that are kept for texts that begin in the same way; 0: none are. kv_memory: MB of the rows of
    texts in progress; 0: what they need. tool_parser: how the model writes calls of tools; `auto`:
    as its chat template shows.
    """

    size: int = 8
    waiting: int = 64
    longest: int = 1024
    body: int = 1_000_000
    key: str | None = None
    dialect: str = "vllm"
    rows: int = 4096
    prefill_chunk: int = PARAMETERS["prefill_chunk"].default
    prefixes: int = 1000
    kv_memory: int = 0
    tool_parser: str = "auto"

    @property
    def memory(self) -> dict[str, Any]:
        """The settings of prompts and rows, which a server has for all."""
        kept = {"prefix_cache": self.prefixes > 0, "prefix_memory": self.prefixes}
        return {**kept, "prefill_chunk": self.prefill_chunk, "kv_memory": self.kv_memory}

    @property
    def drafts(self) -> int:
        """Most drafts of a text in a round."""
        return max(0, min(MOST_DRAFTS, self.rows // self.size - 1))

    def check(self, configuration: Configuration) -> None:
        """Raises `UserError` for a method whose rounds may have too many rows, or that remembers without a bound."""
        values = served_values(configuration)
        for parameter in METHODS[configuration.method].relevant(values):
            value = values[parameter.name]
            if parameter.bounds_drafts and value > self.drafts:
                raise wrong_value(parameter.name, value, f"at most {self.drafts} drafts a round, {self._because}")
            allowed, expected = _MEMORIES.get(parameter.name, (None, ""))
            if allowed is not None and not allowed(value):
                raise wrong_value(parameter.name, parameter.show(value), expected)

    @property
    def _because(self) -> str:
        return f"as {self.size} texts at a time have {self.rows:,} rows in a round here (--batch, --max-rows)"


def served_values(configuration: Configuration) -> dict[str, Any]:
    """All settings of a method as a server plays it: all answers that are remembered are its last ones."""
    values = {**Settings(), **dict(configuration.parameters)}
    name = "max_cached_requests"
    return values if values[name] != -1 else {**values, name: REMEMBERED}
