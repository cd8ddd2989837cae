"""Chat templates rendered as transformers renders them, without transformers, whose import takes a second or more.

A template is a program of a checkpoint's author: it runs in a sandbox and sees plain values alone.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

Message = Mapping[str, Any]
_REASONING = ("reasoning_content", "thinking", "reasoning")
_MARK = "\u2042continues\u2042"


def rendered(template: str, messages: Sequence[Message], continues: bool | str = False, **told: Any) -> str:
    """The text of messages in a template.

    continues: whether the text ends with the last message, which the model goes on with; a name is that of the field.
    told: whatever else the template reads. Raises what the template raises, `ValueError` for messages that cannot be
    shown so, and `TypeError` for values that JSON does not have.
    """
    plain = [
        _named_alike({key: value for key, value in said.items() if value is not None}) for said in _plain(messages)
    ]
    if not plain:
        raise ValueError("no message given; expected one or more")
    final = _marked(template, plain, "content" if continues is True else continues) if continues else ""
    text = compiled(template).render(messages=plain, **_plain(told))
    return _up_to(text, final) if continues else text


@lru_cache(maxsize=8)
def compiled(template: str) -> Template:
    """The template as a program. Raises `TemplateError` for a broken one."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _as_json
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": _Dictionary(),
        "namespace": _Names,
    }
    return environment.from_string(template)


class _Generation(Extension):
    """`{% generation %}`, which marks what the model has said for training: here its contents alone."""

    tags = {"generation"}  # noqa: RUF012  # as the base class has it

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

    def _said(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dictionary:
    """`dict(...)` of a template, without the class."""

    def __call__(self, *pairs: Any, **named: Any) -> dict[Any, Any]:
        return dict(*pairs, **named)

    def fromkeys(self, *keys: Any) -> dict[Any, Any]:
        return dict.fromkeys(*keys)


class _Names(Namespace):
    """A namespace whose attributes cannot reach what Python keeps behind underscores."""

    def __init__(*own: Any, **named: Any) -> None:
        names = dict(*own[1:], **named)
        for name in names:
            _refuse_hidden(name)
        Namespace.__init__(own[0], names)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_hidden(name)
        super().__setitem__(name, value)


def _refuse_hidden(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace of a chat template has no attribute {name}; expected a name without _")


def _raise(message: str) -> None:
    raise TemplateError(message)


def _as_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """The filter of jinja2 itself would write `<` and `&` for a web page."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _plain(value: Any) -> Any:
    """A copy of JSON's own types alone, so that a template changes and calls nothing of ours."""
    return json.loads(json.dumps(value))


def _named_alike(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose reasoning stands under the names that templates read."""
    said = next((message[name] for name in _REASONING if name in message), None)
    return message if said is None else {"thinking": said, **message, "reasoning_content": said}


def _marked(template: str, messages: list[dict[str, Any]], field: str) -> str:
    """The text of the last message, which gets a mark at its end. Raises `ValueError` where it has none."""
    last = messages[-1]
    text = last.get(field)
    fields = [name for name in _REASONING if last.get(name) == text] if field in _REASONING else [field]
    if not isinstance(text, str) or not any(name in template for name in fields):
        raise ValueError(f"continue_final_message given, and the last message has no {field} that the template reads")
    last.update(dict.fromkeys(fields, f"{text}{_MARK} "))
    return text


def _up_to(text: str, final: str) -> str:
    """The text up to the mark. A template that trims messages has taken the space behind it, and more before."""
    if final.strip() not in text or _MARK not in text:
        raise ValueError("continue_final_message given, and the chat template leaves out the last message")
    before, _, after = text.rpartition(_MARK)
    return before if after.startswith(" ") else before.rstrip()
