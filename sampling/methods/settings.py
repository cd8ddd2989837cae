"""All settings of a session or a run, by name: general settings, one toggle per method, and parameters."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sampling.grammar.spelling import GRAMMAR
from sampling.methods.chat_template import KWARGS, THINKING
from sampling.methods.choices import OPTIONS, PROCESSORS
from sampling.methods.part import Bound
from sampling.methods.tables import METHODS
from utils.errors import UserError
from utils.parameter import LARGEST, MOST_TOKENS, ChosenPart, Parameter, Values, chosen, integer, toggle
from utils.registry import Registry

GENERAL = (
    integer("length", 100, "maximum number of new tokens", minimum=1, maximum=MOST_TOKENS),
    chosen("processor", ChosenPart("greedy", (1.0,)), "how tokens are chosen from the logits", PROCESSORS, OPTIONS),
    GRAMMAR,
    integer("seed", 42, "random seed of every method", minimum=0, maximum=LARGEST),
    toggle("cache", True, "KV cache; off recomputes all tokens in every forward (slow)"),
    toggle("prefix_cache", False, "keep rows of prompts and answers for texts that begin in the same way"),
    integer("prefix_memory", 1000, "most memory of kept rows, in MB (10^6 bytes)", minimum=0, maximum=LARGEST),
    integer(
        "kv_memory",
        0,
        "most memory of keys and values in a batch, in MB; 0: what texts need",
        minimum=0,
        maximum=LARGEST,
    ),
    toggle("chat", True, "wrap the prompt in the model's chat template"),
    THINKING,
    KWARGS,
    integer(
        "prefill_chunk",
        48,
        "in a batch, rows of prompts that a round reads at most; 0 = each prompt alone, between rounds",
        minimum=0,
        maximum=MOST_TOKENS,
    ),
)


def _all() -> Iterator[Parameter]:
    yield from GENERAL
    yield from (toggle(method.name, method.on, method.help) for method in METHODS.values())
    seen: dict[str, Parameter] = {}
    for method in METHODS.values():
        for parameter in method.parameters:
            if parameter.name not in seen:
                seen[parameter.name] = parameter
                yield parameter


LISTED = "`infer.py methods` and `/help all` list"

PARAMETERS = Registry[Parameter]("setting", *_all(), listed=LISTED)

# (low, high) settings of which low must not be above high.
BOUNDS: tuple[Bound, ...] = tuple(dict.fromkeys(bound for method in METHODS.values() for bound in method.bounds))


class Settings(Mapping[str, Any]):
    """The value of every parameter; a bad assignment raises `UserError` and changes nothing."""

    def __init__(self) -> None:
        self._values = {name: parameter.default for name, parameter in PARAMETERS.items()}

    def __getitem__(self, name: str) -> Any:
        PARAMETERS[name]
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def assign(self, name: str, text: str) -> None:
        """Set a parameter from text."""
        self.assign_all([(name, text)])

    def assign_all(self, assignments: Iterable[tuple[str, str]]) -> None:
        """Set parameters from (name, text) together: only the final values must satisfy the bounds."""
        values = {**self._values, **{name: PARAMETERS[name].parse(text) for name, text in assignments}}
        check_bounds(values, BOUNDS)
        self._values = values

    def show(self, name: str) -> str:
        """The value as text that `assign` accepts."""
        return PARAMETERS[name].show(self[name])

    def enabled(self) -> list[str]:
        """Names of the methods that are on, in the order of the table."""
        return [name for name in METHODS if self[name]]

    def assignments(self) -> Iterator[tuple[str, str]]:
        """(name, text) that restore this state from any other, if assigned in this order.

        What must not be above another setting goes down as far as it can, and to its own value when the other
        has its own.
        """
        for name in sorted(dict(BOUNDS), key=_height, reverse=True):
            yield name, PARAMETERS[name].show(PARAMETERS[name].least)
        for name in sorted(self, key=_height):
            yield name, self.show(name)


def relevant_settings(method: str, values: Values) -> dict[str, Any]:
    """What a method's run depends on: the general settings and its own parameters, as JSON values."""
    names = [parameter.name for parameter in (*GENERAL, *METHODS[method].relevant(values))]
    shown = ((name, values[name]) for name in names)
    return {
        name: PARAMETERS[name].show(value) if isinstance(value, ChosenPart | tuple) else value for name, value in shown
    }


def _height(name: str) -> int:
    """How many settings must not be below this one, counted in steps: 0 for what bounds nothing from below."""
    return max((1 + _height(high) for low, high in BOUNDS if low == name), default=0)


def check_bounds(values: Mapping[str, Any], bounds: Iterable[Bound]) -> None:
    """Raises `UserError` where a value is above what bounds it."""
    for low, high in bounds:
        if values[low] > values[high]:
            raise UserError(f"{low} {values[low]} is above {high} {values[high]}; expected min <= max")
