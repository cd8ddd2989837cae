"""What a chat template is told beside the messages: whether to think, and any other variable that it reads."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from utils.errors import UnknownName, UserError, checked_text, nearest, one_of, wrong_value
from utils.json_text import read_json
from utils.option import option
from utils.parameter import OFF, ON, Parameter, Values
from utils.text import quoted

THINKS = ("enable_thinking", "thinking")
"""What published templates call the switch: Qwen3, GLM and SmolLM3 the first, Granite and DeepSeek the second."""

_AUTO = "auto"
_OBJECT = "a JSON object of template variables"


def _read_thinking(text: str) -> str:
    word = text.lower()
    if word != _AUTO and word not in (*ON, *OFF):
        raise UnknownName("thinking", text, (_AUTO, "on", "off"))
    return _AUTO if word == _AUTO else "on" if word in ON else "off"


def _read_object(text: str) -> str:
    """The object as text in one form, however it was written."""
    try:
        value = read_json(text)
    except UserError as error:
        raise UserError(f"chat_template_kwargs: {quoted(text)} given: {error}; expected {_OBJECT}") from None
    if not isinstance(value, dict):
        raise wrong_value("chat_template_kwargs", text, _OBJECT)
    return checked_text(json.dumps(value, sort_keys=True, ensure_ascii=False), "chat_template_kwargs")


THINKING = Parameter(
    "thinking",
    _AUTO,
    "the switch of the chat template for thinking before the answer; auto: the template's default",
    "auto|on|off",
    _read_thinking,
    words=(_AUTO, "on", "off"),
)
KWARGS = Parameter(
    "chat_template_kwargs",
    "{}",
    "variables of the chat template, as a JSON object; thinking is the short form of one",
    "JSON",
    _read_object,
)


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """Both as options of a command."""

    thinking: str | None = option(None, "Thinking, by the chat template's switch; default: auto.", "on|off|auto")
    chat_template_kwargs: str | None = option(None, "Variables of the chat template, as a JSON object.", "JSON")


@dataclass(frozen=True, slots=True)
class TemplateVariables:
    """What is asked for. thinking: `on`, `off` or `auto`. named: variables by name."""

    thinking: str = _AUTO
    named: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Values) -> "TemplateVariables":
        """What settings ask for, by their names; what is not there is at its default."""
        return cls(values.get(THINKING.name, _AUTO), json.loads(values.get(KWARGS.name, KWARGS.default)))

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> "TemplateVariables":
        """The same of options, or of other values as they were given. Raises `UserError`."""
        return cls.of({p.name: p.checked(given[p.name]) for p in (THINKING, KWARGS) if p.name in given})

    def __bool__(self) -> bool:
        return self.thinking != _AUTO or bool(self.named)

    def __str__(self) -> str:
        """What was given, as errors say it."""
        return " and ".join(self._given())

    def _given(self) -> Iterator[str]:
        if self.thinking != _AUTO:
            yield f"{THINKING.name} {self.thinking}"
        if self.named:
            yield f"{KWARGS.name} {quoted(json.dumps(self.named, ensure_ascii=False))}"

    def over(self, base: "TemplateVariables") -> "TemplateVariables":
        """These, and those of `base` of which they say nothing."""
        switched = self.thinking != _AUTO or any(name in self.named for name in THINKS)
        kept = {name: value for name, value in base.named.items() if not (switched and name in THINKS)}
        return TemplateVariables(self.thinking if switched else base.thinking, {**kept, **self.named})

    def chosen(self, model: str, read: Collection[str]) -> dict[str, Any]:
        """The values by the names of variables, where the chat template of `model` reads those in `read`.

        Raises `UserError` for a variable that it does not read, which would change nothing, and for a contradiction.
        """
        for name in self.named:
            if name not in read:
                near = nearest(name, read)
                raise UserError(
                    f"{KWARGS.name}: {quoted(name)} given, which the chat template of {model} does not read; expected "
                    f"{one_of(sorted(read))}{f'. Did you mean {near!r}?' if near else ''}"
                )
        if self.thinking == _AUTO:
            return dict(self.named)
        switches = {name: self.thinking == "on" for name in THINKS if name in read}
        if not switches:
            raise UserError(
                f"thinking {self.thinking} given, and the chat template of {model} reads neither {THINKS[0]} nor "
                f"{THINKS[1]}; expected thinking auto, or a model that can be told"
            )
        for name, value in switches.items():
            if self.named.get(name, value) != value:
                raise UserError(f"{self} given; expected one of them, or both alike")
        return {**self.named, **switches}


UNTOLD = TemplateVariables()
"""The template as it is."""
