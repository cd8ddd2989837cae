"""Places in an answer: how far into the output and the context, in which phase of the text, in which turn."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

OUTPUT = (0, 8, 32, 128, 512, 2048)
"""Where buckets of output positions begin, in tokens."""

CONTEXT = (0, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Where buckets of context lengths begin, in tokens before the place."""

PHASES = ("answer", "think", "code fence", "JSON", "list", "table", "quotation")
"""A token stands in the first of think, quotation, code fence, JSON, table and list that fits, else in the answer."""

KINDS = ("output", "context", "phase", "turn")
"""What places are told apart by."""

QUOTED = 6
"""So many tokens in a row that stand in the prompt are a quotation; what follows them stands in it."""

_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])(?:\s|$)")
_BEFORE_JSON = re.compile(r"""\{[\s"'}]|\[[\s"'\]\[{\d-]""")
_LONGEST_TAG = len("</think>")
_TEMPLATE = 16  # tokens at the end of a prompt, in which a template may open the thinking


@dataclass(frozen=True, slots=True)
class Place:
    """Where the next token stands. output: tokens of the answer before it; context: all tokens before it."""

    output: int
    context: int
    phase: str
    turn: int = 1

    def group(self, kind: str) -> str:
        """Its group among those of one of `KINDS`. Example: output 40 -> "32-127"."""
        if kind == "phase":
            return self.phase
        if kind == "turn":
            return str(self.turn)
        return bucket(self.output, OUTPUT) if kind == "output" else bucket(self.context, CONTEXT)


def bucket(number: int, begins: Sequence[int]) -> str:
    """The bucket that a number falls into. Example: 40 -> "32-127", 5000 of `OUTPUT` -> "2048+"."""
    place = bisect_right(begins, number)
    first = begins[place - 1]
    return f"{first}+" if place == len(begins) else f"{first}-{begins[place] - 1}"


def group_order(kind: str, name: str) -> tuple[int, str]:
    """What groups of a kind are sorted by, so that tables go from the first to the last."""
    if kind == "phase":
        return (PHASES.index(name) if name in PHASES else len(PHASES)), name
    return int(re.split(r"[-+]", name)[0]), name


class PhaseReader:
    """The phase of the next token of an answer, told from the text before it alone.

    prompt: ids. piece: the text of one id.
    """

    def __init__(self, prompt: Sequence[int], piece: Callable[[int], str]) -> None:
        self._piece = cache(piece)
        self._grams = {tuple(prompt[at : at + QUOTED]) for at in range(len(prompt) - QUOTED + 1)}
        self._said: list[int] = []
        self._tail = self._line = self._last_line = ""
        self._fence: str | None = None
        self._depth, self._text, self._escaped = 0, False, False
        opened = "".join(map(piece, prompt[-_TEMPLATE:]))
        self._thinks = opened.rfind("<think>") > opened.rfind("</think>")

    @property
    def phase(self) -> str:
        """One of `PHASES`."""
        if self._thinks:
            return "think"
        if tuple(self._said[-QUOTED:]) in self._grams:
            return "quotation"
        if self._fence is not None or self._line.lstrip().startswith("```"):
            return "JSON" if self._fence == "json" else "code fence"
        return "JSON" if self._depth else self._of_line()

    def add(self, token: int) -> None:
        """One more token of the answer."""
        self._said.append(token)
        for character in self._piece(token):
            self._read(character)

    def _of_line(self) -> str:
        line = self._line.lstrip()
        if not line:
            return self._last_line or "answer"
        if line.startswith("|"):
            return "table"
        return "list" if _ITEM.match(self._line) else "answer"

    def _read(self, character: str) -> None:
        self._tail = (self._tail + character)[-_LONGEST_TAG:]
        if self._tail.endswith("<think>"):
            self._thinks = True
        elif self._tail.endswith("</think>"):
            self._thinks, self._line = False, ""
            return
        if character == "\n":
            self._end_line()
        else:
            self._line += character
        if self._fence is None and not self._thinks:
            self._read_json(character)

    def _end_line(self) -> None:
        line, going = self._line.strip(), self._of_line()
        if line.startswith("```"):
            self._fence = line[3:].strip().lower() if self._fence is None else None
        self._last_line = going if line and going in ("list", "table") else ""
        if not self._depth:
            self._line = ""

    def _read_json(self, character: str) -> None:
        """Count brackets outside of strings, from one that begins a line on."""
        if not self._depth:
            begun = _BEFORE_JSON.fullmatch(self._line.lstrip(" \t") + ("\n" if character == "\n" else ""))
            if not begun:
                return
            self._depth, self._text = 1, False
        if self._escaped:
            self._escaped = False
        elif self._text:
            self._escaped, self._text = character == "\\", character != '"'
        elif character == '"':
            self._text = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self._line = self._line if self._depth else ""


def places_of(
    prompt: Sequence[int], answer: Sequence[int], piece: Callable[[int], str], turn: int = 1
) -> Iterator[Place]:
    """The place of each token of an answer."""
    reader = PhaseReader(prompt, piece)
    for output, token in enumerate(answer):
        yield Place(output, len(prompt) + output, reader.phase, turn)
        reader.add(token)
