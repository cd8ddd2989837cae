"""How models write calls of tools in their answers: a table of syntaxes, under the names of vLLM's parsers."""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecoder
from typing import Any

from utils.errors import UserError
from utils.json_text import read_json
from utils.registry import Registry

Call = tuple[str, Mapping[str, Any]]
_BETWEEN = ";, \n\t"
_DEEPSEEK = re.compile(
    r"<｜tool▁call▁begin｜>function<｜tool▁sep｜>([\w-]+)\s*```json\s*(.*?)\s*```\s*<｜tool▁call▁end｜>", re.DOTALL
)
_MISTRAL = re.compile(r"([\w-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(\{.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """Calls of an answer, written one way.

    sign: what a chat template of such a model has in it. opens, closes: what stands before and behind the calls, which
    go on to the end where `closes` is empty. read: name and arguments of each call between them; None for what is none.
    bare: what an answer begins with that is calls without a mark; empty: none is. marks: more special tokens that are
    a part of it. id_length: of a call's id, where templates prescribe one.
    """

    name: str
    sign: str
    opens: str
    closes: str
    read: Callable[[str], Sequence[Call] | None]
    bare: str = ""
    marks: tuple[str, ...] = ()
    id_length: int | None = None

    @property
    def tokens(self) -> tuple[str, ...]:
        """What stands in the text even where it is a special token."""
        return tuple(mark for mark in (self.opens, self.closes, *self.marks) if mark)


def _objects(text: str) -> Sequence[Call] | None:
    """JSON objects with `name` and `arguments`, or `parameters`: a list of them, or one behind the other."""
    values, rest = list[Any](), text.strip(_BETWEEN)
    while rest:
        try:
            value, end = JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            return None
        values += value if isinstance(value, list) else [value]
        rest = rest[end:].strip(_BETWEEN)
    calls = [_call(value) for value in values]
    return [call for call in calls if call is not None] if calls and None not in calls else None


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    return (value["name"], arguments) if isinstance(arguments, dict) else None


def _one_object(text: str) -> Sequence[Call] | None:
    """One object of this kind, and nothing else."""
    call = _call(_json(text.strip()))
    return None if call is None else [call]


def _json(text: str) -> Any:
    try:
        return read_json(text)
    except UserError:
        return None


def _mistral(text: str) -> Sequence[Call] | None:
    """A list of objects, or in newer templates a name and its arguments behind each mark."""
    if text.lstrip().startswith(("[", "{")):
        return _objects(text)
    calls = list[Call]()
    for part in text.split("[TOOL_CALLS]"):
        found = _MISTRAL.fullmatch(part.strip())
        arguments = None if found is None else _json(found[2].strip())
        if found is None or not isinstance(arguments, dict):
            return None
        calls.append((found[1], arguments))
    return calls


def _deepseek(text: str) -> Sequence[Call] | None:
    calls = [(name, _json(arguments)) for name, arguments in _DEEPSEEK.findall(text)]
    known = all(isinstance(arguments, dict) for _, arguments in calls) and not _DEEPSEEK.sub("", text).strip()
    return calls if calls and known else None


def _python(text: str) -> Sequence[Call] | None:
    """A list of calls in Python, whose arguments are named and are literals."""
    try:
        parsed = ast.parse(text.strip(), mode="eval").body
        found = [_python_call(each) for each in parsed.elts] if isinstance(parsed, ast.List) else []
        json.dumps(found)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return found or None


def _python_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        raise ValueError("no call with named arguments")
    named = {each.arg: ast.literal_eval(each.value) for each in node.keywords if each.arg is not None}
    if len(named) < len(node.keywords):
        raise ValueError("no names")
    return node.func.id, named


SYNTAXES = Registry[CallSyntax](
    "tool parser",
    CallSyntax(
        "deepseek_v3",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        _deepseek,
        marks=("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    ),
    CallSyntax("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", "", _mistral, "", ("[ARGS]", "[CALL_ID]"), 9),
    CallSyntax("granite", "<|tool_call|>", "<|tool_call|>", "", _objects),
    CallSyntax("jamba", "<tool_calls>", "<tool_calls>", "</tool_calls>", _objects),
    CallSyntax("hermes", "<tool_call>", "<tool_call>", "</tool_call>", _one_object),
    CallSyntax(
        "pythonic", "[func_name1(params_name1=params_value1", "<|python_start|>", "<|python_end|>", _python, "["
    ),
    CallSyntax("llama3_json", '"parameters": dictionary of argument name', "<|python_tag|>", "", _objects, "{"),
)


def syntax_of(template: str, reads_tools: bool) -> str | None:
    """The syntax that a chat template shows; None for one that is not in the table.

    A template that reads no tools is told of them in Hermes' words. `<function=` is an XML of its own, whose values
    have no types.
    """
    if not reads_tools:
        return "hermes"
    if "<function=" in template:
        return None
    return next((name for name, syntax in SYNTAXES.items() if syntax.sign in template), None)
