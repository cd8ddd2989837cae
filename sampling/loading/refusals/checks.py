"""What a checkpoint must say of itself to draft or to verify: refusals with their reason."""

from collections.abc import Sequence
from typing import Any

from sampling.loading.refusals.reasons import known_reason
from utils.errors import UserError

ROLLS_BACK = "expected a model of docs/models.md"
_NEEDED = ("num_hidden_layers", "vocab_size")


def has_encoder(config: Any) -> bool:
    """Whether it is the configuration of an encoder-decoder model."""
    return bool(getattr(config, "is_encoder_decoder", False))


def refuse_two_kinds(names: Sequence[str], encoders: Sequence[bool]) -> None:
    """Raise `UserError` where some of a target and its drafter have an encoder and others have none."""
    if len(set(encoders)) > 1:
        kinds = ("a decoder-only model", "an encoder-decoder model")
        kinds_text = " and ".join(f"{name} is {kinds[encoder]}" for name, encoder in zip(names, encoders, strict=True))
        raise UserError(f"{kinds_text}; expected target and drafter of one kind")


def refuse_config(name: str, config: Any) -> None:
    """Raise `UserError` for a model whose tokens cannot be taken back; the message says why."""
    reason = _reason(config)
    if reason:
        raise UserError(f"{name} ({config.model_type}): {reason}; {ROLLS_BACK}")


def _reason(config: Any) -> str | None:
    known = known_reason(config)
    if known:
        return known
    if has_encoder(config):
        # With transformers' model code, which a converted checkpoint needs not.
        from sampling.forward.models.encoder_decoder.families import FAMILIES, RECOMPUTED

        return (
            None
            if config.model_type in (*FAMILIES, *RECOMPUTED)
            else "an encoder-decoder model whose decoder is not known here"
        )
    text = config.get_text_config(decoder=True)
    missing = [key for key in _NEEDED if getattr(text, key, None) is None]
    if missing:
        return f"its configuration names no {missing[0]}"
    from transformers.cache_utils import get_layer_types_and_kwargs

    from sampling.forward.caches.transformers_cache import KNOWN

    unknown = sorted({*get_layer_types_and_kwargs(text)[0]} - KNOWN)
    return f"layers of a type that is not known here ({', '.join(unknown)})" if unknown else None


def common_vocabulary(names: Sequence[str], rows: Sequence[int], tokens: int) -> tuple[int, str | None]:
    """The rows of logits that two models share, and a note when one has more.

    rows: of target and drafter; tokens: ids that the tokenizer can produce. Raises `UserError` when a
    model lacks rows for tokens that the other one can emit. Example: rows (152064, 151936), 151665 tokens -> 151936.
    """
    common = min(rows)
    if rows[0] == rows[1]:
        return common, None
    if common < tokens:
        raise UserError(
            f"{names[0]} has {rows[0]} rows of logits, {names[1]} has {rows[1]}, their tokenizer has {tokens} tokens; "
            "expected a pair that both cover every token"
        )
    return common, (
        f"The vocabularies are padded differently ({names[0]}: {rows[0]} rows, {names[1]}: {rows[1]}, "
        f"tokenizer: {tokens} tokens): both are cut to {common} rows."
    )


def compare_tokenizers(names: Sequence[str], target: Any, drafter: Any, rows: int) -> int:
    """How many ids below `rows` the common tokenizer of two models uses, counted up to the last one.

    Ids from `rows` on have no logits in either model, so they are not compared. Raises `UserError` when a token
    has another id in the other tokenizer; the message shows one.
    """
    ours = _below(target, rows)
    if same_tokenizer(target, drafter, rows):
        return max(ours.values()) + 1
    theirs = _below(drafter, rows)
    differing = {token for token, _ in ours.items() ^ theirs.items()}
    token = min(differing, key=lambda token: (min(ours.get(token, rows), theirs.get(token, rows)), token))
    raise UserError(
        f"{names[0]} and {names[1]} have different tokenizers: {token!r} is {_id(ours, token)} in the target and "
        f"{_id(theirs, token)} in the drafter (tokens that differ: {len(differing)}); "
        "expected a drafter of the same family"
    )


def same_tokenizer(target: Any, drafter: Any, rows: int) -> bool:
    """Whether every token has the same id below `rows` in both."""
    return target is drafter or _below(target, rows) == _below(drafter, rows)


def _below(tokenizer: Any, rows: int) -> dict[str, int]:
    return {token: number for token, number in tokenizer.get_vocab().items() if number < rows}


def _id(vocabulary: dict[str, int], token: str) -> str:
    return f"id {vocabulary[token]}" if token in vocabulary else "unknown"
