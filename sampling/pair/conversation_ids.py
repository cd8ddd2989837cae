"""From messages in OpenAI's form, with tools that the model may call, to the ids that it continues."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.pair.prompt_ids import all_variables, refuse_long, values_told
from sampling.tokenizer.contract import Tokenizer
from utils.errors import UserError
from utils.text import first_line

CALL_OPENS, CALL_CLOSES = "<tool_call>", "</tool_call>"
"""How Hermes, Qwen and SmolLM3 write a call: JSON with `name` and `arguments` between these."""

Message = Mapping[str, Any]


def conversation_ids(
    tokenizer: Tokenizer,
    name: str,
    window: int,
    messages: Sequence[Message],
    tools: Sequence[Message] = (),
    variables: TemplateVariables = UNTOLD,
    opens: bool = True,
) -> list[int]:
    """Ids of messages in the model's template; the arguments of calls are objects. name, window: of the model.

    tools: what may be called. A template that reads no tools is told of them in the system message, in Hermes' words.
    opens: whether the template opens the answer. Raises `UserError` for a model without a template, for messages that
    its template refuses, and for what `prompt_ids` refuses.
    """
    refuse_long(len(json.dumps([*messages, *tools], ensure_ascii=False)), window)
    values = values_told(tokenizer, name, variables, templated=True, chat=True)
    if not tokenizer.chat_template:
        raise UserError(f"messages with tools given, and {name} has no chat template; expected a model with one")
    if not reads_tools(tokenizer):
        messages, tools = _in_words(messages, tools), ()
    options: dict[str, Any] = {"add_generation_prompt": opens, **values, **({"tools": list(tools)} if tools else {})}
    try:
        text = str(tokenizer.apply_chat_template([dict(said) for said in messages], tokenize=False, **options))
    except Exception as error:
        raise UserError(
            f"the chat template of {name} refuses these messages: {first_line(error)}; expected other ones"
        ) from None
    return list(tokenizer.encode(text, add_special_tokens=False))


def reads_tools(tokenizer: Tokenizer) -> bool:
    """Whether the chat template reads `tools`."""
    return "tools" in all_variables(tokenizer)


def _in_words(messages: Sequence[Message], tools: Sequence[Message]) -> list[Message]:
    """Messages for a template that knows neither tools nor calls: both become text."""
    said = [_as_text(message) for message in messages]
    if not tools:
        return said
    rest = said[1:] if said and said[0]["role"] == "system" else said
    before = f"{said[0]['content']}\n\n" if len(rest) < len(said) else ""
    return [{"role": "system", "content": before + _told(tools)}, *rest]


def _told(tools: Sequence[Message]) -> str:
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        "You may call these functions. Their signatures are between <tools> and </tools>:\n"
        f"<tools>\n{lines}\n</tools>\n"
        "Write each call as JSON with name and arguments, between these tags:\n"
        f'{CALL_OPENS}\n{{"name": NAME, "arguments": OBJECT}}\n{CALL_CLOSES}'
    )


def _as_text(message: Message) -> Message:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    calls = "\n".join(_call(call["function"]) for call in message.get("tool_calls", ()))
    content = "\n".join(part for part in (message["content"], calls) if part)
    return {**{name: value for name, value in message.items() if name != "tool_calls"}, "content": content}


def _call(function: Message) -> str:
    called = {"name": function["name"], "arguments": function["arguments"]}
    return f"{CALL_OPENS}\n{json.dumps(called, ensure_ascii=False)}\n{CALL_CLOSES}"
