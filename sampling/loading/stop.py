"""When an answer ends, and what a checkpoint's generation settings may not do."""

from collections.abc import Collection, Iterable
from typing import Any

_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id")
_MARK = "\u2042answer\u2042"


def stop_ids(tokenizer: Any, *configs: Any) -> frozenset[int]:
    """Ids that end an answer: end of sequence in the tokenizer and every config, and the template's end of turn."""
    named = [tokenizer.eos_token_id, *(getattr(config, "eos_token_id", None) for config in configs)]
    ids = {number for value in named for number in _as_list(value)}
    return frozenset(ids | _end_of_turn(tokenizer))


def neutral(settings: Any, obeyed: Collection[str] = ()) -> tuple[dict[str, Any], str | None]:
    """Of a checkpoint's GenerationConfig only the ids, and a note that names what else it asked for.

    obeyed: settings that the model keeps to, of which nothing has to be said.

    A repetition penalty, say, changes even greedy output, so a baseline that obeyed it would be another model.
    """
    diff = settings.to_diff_dict()
    asked = {key: value for key, value in sorted(diff.items()) if not (key in obeyed or _harmless(key, value))}
    kept = {key: getattr(settings, key) for key in _IDS if getattr(settings, key, None) is not None}
    listed = ", ".join(f"{key}={value}" for key, value in asked.items())
    return kept, f"generation settings are ignored: {listed}" if asked else None


def _harmless(key: str, value: Any) -> bool:
    return (
        key.startswith("_")
        or key.endswith("_token_id")
        or key in ("transformers_version", "use_cache")
        or value is None
        or key.startswith("output_")
    )


def _end_of_turn(tokenizer: Any) -> set[int]:
    """The special token that the chat template puts behind an assistant's turn, found by rendering one."""
    if not tokenizer.chat_template:
        return set()
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": _MARK}]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False)
    except Exception:  # a template is a program of the checkpoint's author: it may raise anything
        return set()
    _, mark, tail = text.rpartition(_MARK)
    special = {*tokenizer.all_special_ids, *_added(tokenizer)}
    ends = (token for token in tokenizer.encode(tail, add_special_tokens=False) if token in special)
    first = next(ends, None) if mark else None
    return set() if first is None else {first}


def _added(tokenizer: Any) -> Iterable[int]:
    return (number for number, token in tokenizer.added_tokens_decoder.items() if token.special)


def _as_list(value: Any) -> list[int]:
    if value is None:
        return []
    return [int(number) for number in value] if isinstance(value, (list, tuple)) else [int(value)]
