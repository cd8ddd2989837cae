"""When an answer ends, and what a checkpoint's generation settings may not do."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from sampling.loading.refusals.damage import read_object
from utils.errors import UserError, wrong_value
from utils.text import first_line

_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id")
_MARK = "\u2042answer\u2042"


def stop_ids(name: str, tokenizer: Any, rows: int, *configs: Any) -> tuple[frozenset[int], tuple[str, ...]]:
    """Ids that end an answer: end of sequence in the tokenizer and every config, and the template's end of turn.

    With a note for ids that are none of the model's `rows`. Raises `UserError` for what is no id.
    """
    named = [tokenizer.eos_token_id, *(getattr(config, "eos_token_id", None) for config in configs)]
    ids = {number for value in named for number in _as_list(name, value)} | _end_of_turn(tokenizer)
    known = frozenset(number for number in ids if 0 <= number < rows)
    odd = ", ".join(map(str, sorted(ids - known)))
    note = f"{name}: eos_token_id {odd:.60} is none of its {rows} tokens and ends no answer."
    return known, (note,) if odd else ()


def refuse_broken_settings(folder: Path | None) -> None:
    """Raise `UserError` for a generation_config.json that cannot be read: transformers would pass over it."""
    path = folder and folder / "generation_config.json"
    if path and path.is_file():
        try:
            read_object(path)
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(
                f"{path} cannot be read ({first_line(error)}); expected a complete file, or none"
            ) from error


def neutral(settings: Any, obeyed: Collection[str] = ()) -> tuple[dict[str, Any], str | None]:
    """Of a checkpoint's GenerationConfig only the ids, and a note that names what else it asked for.

    obeyed: settings that the model keeps to, of which nothing has to be said.

    A repetition penalty, say, changes even greedy output, so a baseline that obeyed it would be another model.
    """
    diff = settings.to_diff_dict()
    asked = {key: value for key, value in sorted(diff.items()) if not (key in obeyed or _harmless(key, value))}
    kept = {key: getattr(settings, key) for key in _IDS if getattr(settings, key, None) is not None}
    listed = ", ".join(f"{key}={value!s:.60}" for key, value in asked.items())
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


def _as_list(name: str, value: Any) -> list[int]:
    ids = list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]
    if not all(type(number) is int for number in ids):
        raise wrong_value(f"{name}: eos_token_id", value, "a token id or a list of them")
    return ids
