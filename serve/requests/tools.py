"""The tools of a chat: which there are, which may or must be called, and the grammar that a call must keep to."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from sampling.grammar.spelling import OFF_WORD, SCHEMA, read_grammar, written
from serve.answers.parts import AnswerForm
from serve.errors import ApiError, refused_as, wrong_field
from serve.requests.fields import Fields

TOOLS, CHOICE, PARALLEL = "tools", "tool_choice", "parallel_tool_calls"
MOST_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOOL = '{"type": "function", "function": {"name": NAME, "description": TEXT, "parameters": JSON SCHEMA}}'
_CHOICES = 'none, auto, required or {"type": "function", "function": {"name": NAME}}'
_OPENS = frozenset(("additionalProperties", "unevaluatedProperties", "patternProperties", "anyOf", "oneOf", "$ref"))
_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """tools: as the chat template takes them. choice: whether one is called; `named`: the first of `called` must be.

    called: the names that may be called.
    """

    tools: tuple[Mapping[str, Any], ...] = ()
    choice: Literal["none", "auto", "required", "named"] = "none"
    called: tuple[str, ...] = ()
    parallel: bool = True

    @property
    def form(self) -> AnswerForm:
        """How calls stand in the text of an answer."""
        kinds: Mapping[str, Any] = {"auto": "written", "required": "list", "named": "arguments"}
        return AnswerForm(calls=kinds.get(self.choice, ""), tools=self.called)

    def grammar(self) -> str:
        """What the answer must be where a call is required, as the setting `grammar` keeps it. Raises `ApiError`."""
        if self.choice not in ("required", "named"):
            return OFF_WORD
        places = {tool["function"]["name"]: place for place, tool in enumerate(self.tools)}
        for name in self.called:
            refused_as(f"{TOOLS}[{places[name]}].function.parameters", partial(_as_grammar, self._parameters(name)))
        if self.choice == "named":
            return _as_grammar(self._parameters(self.called[0]))
        return refused_as(TOOLS, partial(_as_grammar, self._list_of_calls()))

    def _parameters(self, name: str) -> Mapping[str, Any]:
        found = next(tool["function"] for tool in self.tools if tool["function"]["name"] == name)
        closed: Mapping[str, Any] = _closed(found.get("parameters") or _NO_ARGUMENTS)
        return closed

    def _list_of_calls(self) -> Mapping[str, Any]:
        """The schema of a list of calls. What the schema of a tool refers to in itself is found under its name."""
        defined = {name: _moved(self._parameters(name), f"#/$defs/{name}") for name in self.called}
        calls = [_call(name) for name in self.called]
        most = {} if self.parallel else {"maxItems": 1}
        return {"type": "array", "minItems": 1, **most, "items": {"anyOf": calls}, "$defs": defined}


def requested_tools(fields: Fields) -> ToolUse:
    """The tools of a request. Raises `ApiError`."""
    given, parallel = fields.get(TOOLS, list, []), fields.get(PARALLEL, bool, True)
    if len(given) > MOST_TOOLS:
        raise ApiError(400, f"{TOOLS}: {len(given)} given; expected at most {MOST_TOOLS}", TOOLS)
    tools = tuple(_tool(f"{TOOLS}[{place}]", tool) for place, tool in enumerate(given))
    names = [tool["function"]["name"] for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise wrong_field(TOOLS, name, "each name once")
    choice = fields.given.get(CHOICE, "auto" if tools else "none")
    if choice == "none" or (choice == "auto" and not tools):
        return ToolUse(tools, "none", (), parallel)
    if choice in ("auto", "required") and tools:
        return ToolUse(tools, choice, tuple(names), parallel)
    named = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    if choice != "required" and (not isinstance(named, dict) or not isinstance(named.get("name"), str)):
        raise wrong_field(CHOICE, choice, _CHOICES)
    if named is None or named["name"] not in names:
        expected = f"one of {', '.join(names)}" if names else f"{TOOLS} beside it"
        raise wrong_field(CHOICE, named["name"] if named else choice, expected)
    return ToolUse(tools, "named", (named["name"],), parallel)


def _tool(where: str, tool: Any) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(function, dict):
        raise wrong_field(where, tool, _TOOL)
    where = f"{where}.function"
    for name in function:
        if name not in ("name", "description", "parameters", "strict"):
            raise wrong_field(f"{where}.{name}", function[name], "name, description, parameters and strict alone")
    name, about, parameters = function.get("name"), function.get("description"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise wrong_field(f"{where}.name", name, "1 to 64 letters, digits, - or _ of ASCII")
    if not isinstance(about, str | None):
        raise wrong_field(f"{where}.description", about, "a text")
    if not isinstance(parameters, dict | None):
        raise wrong_field(f"{where}.parameters", parameters, "a JSON Schema")
    if not isinstance(function.get("strict"), bool | None):
        raise wrong_field(f"{where}.strict", function["strict"], "true or false")
    kept = {"name": name, "description": about or "", "parameters": parameters or dict(_NO_ARGUMENTS)}
    return {"type": "function", "function": kept}


def _call(name: str) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": {"$ref": f"#/$defs/{name}"}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _as_grammar(schema: Mapping[str, Any]) -> str:
    return read_grammar(written(SCHEMA, schema))


def _closed(value: Any) -> Any:
    """A schema whose objects have no other properties than it names, where it does not say.

    Nobody takes such arguments. What is joined by `allOf` stays as it is, as its parts are of one object.
    """
    if isinstance(value, list):
        return [_closed(each) for each in value]
    if not isinstance(value, dict) or "allOf" in value:
        return value
    open_ = value.get("type") == "object" and "properties" in value and not _OPENS.intersection(value)
    return {
        **{key: _closed(inner) for key, inner in value.items()},
        **({"additionalProperties": False} if open_ else {}),
    }


def _moved(value: Any, place: str) -> Any:
    """A schema that stands at another place: what refers to a part of it does so there."""
    if isinstance(value, list):
        return [_moved(each, place) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: place + inner[1:]
        if key == "$ref" and isinstance(inner, str) and inner.startswith("#")
        else _moved(inner, place)
        for key, inner in value.items()
    }
