"""The tokens of one tokenizer as the bytes that they stand for, whatever marks it writes them with."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from utils.errors import UserError

BYTE_LEVEL, SENTENCE_PIECE = "byte-level", "SentencePiece"
_SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# Bytes that are no UTF-8, as `surrogateescape` reads them.
_ESCAPED = re.compile("[\udc80-\udcff]+|[^\udc80-\udcff]+")
# What a piece of text is put behind, so that a tokenizer does not take its begin for that of a text.
_ANCHORS = ("\n", "a", ".", "1")
_KEPT = 1 << 16


class Vocabulary:
    """What every id of a tokenizer says, in bytes, and how it would write some bytes.

    rows: ids that its model has logits for; tokens above are left out. `says[id]`: None for a special token and for a
    row without a token. `id_of`: by bytes, a written token before the byte it falls back to. `specials`: ids by name.
    `begins`: ids that a text begins with. Raises `UserError` for a tokenizer whose marks are not known.
    """

    def __init__(self, name: str, tokenizer: Any, rows: int) -> None:
        self.name, self.rows, self._tokenizer = name, rows, tokenizer
        special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        special |= set(tokenizer.all_special_ids)
        added = {number: token.content for number, token in tokenizer.added_tokens_decoder.items()}
        kind = _kind(name, tokenizer)
        known = {token: number for token, number in tokenizer.get_vocab().items() if number < rows}
        self.specials = {token: number for token, number in known.items() if number in special}
        self.says: list[bytes | None] = [None] * rows
        self.id_of: dict[bytes, int] = {}
        for token, number in sorted(known.items(), key=lambda item: (not _BYTE.fullmatch(item[0]), -item[1])):
            if number not in special:
                said = added[number].encode() if number in added else _bytes_of(token, kind)
                self.says[number] = said
                self.id_of[said] = number
        self.id_of.pop(b"", None)
        end = tokenizer.eos_token_id
        self.end: int | None = end if end is not None and end < rows else None
        begins = _begins(tokenizer)
        self.begins = begins if all(number < rows for number in begins) else ()
        self._longest = max(map(len, self.id_of), default=1)
        self.written = lru_cache(_KEPT)(self._written)

    def said(self, ids: Iterable[int]) -> bytes | None:
        """The bytes of ids; None where one of them stands for none."""
        parts = [self.says[number] for number in ids]
        return None if None in parts else b"".join(part for part in parts if part is not None)

    def _written(self, data: bytes, first: bool = False) -> tuple[int, ...]:
        """Ids that say these bytes, as the tokenizer writes them inside a text; `first`: at its begin.

        At a begin they may say a space before them. Bytes that no id says are left out.
        """
        ids: list[int] = []
        for match in _ESCAPED.finditer(data.decode("utf-8", "surrogateescape")):
            part = match.group()
            whole = not "\udc80" <= part[0] <= "\udcff"
            ids += (
                self._text(part, first and not ids) if whole else self._pieces(part.encode("utf-8", "surrogateescape"))
            )
        return tuple(ids)

    def _text(self, text: str, first: bool) -> Sequence[int]:
        data = text.encode()
        alone = self._encode(text) if first else []
        if first and self.said(alone) in (data, b" " + data):
            return alone
        for anchor in _ANCHORS:
            head, ids = self._encode(anchor), self._encode(anchor + text)
            if ids[: len(head)] == head and self.said(ids[len(head) :]) == data:
                return ids[len(head) :]
        return list(self._pieces(data))

    def _pieces(self, data: bytes) -> Iterator[int]:
        """The longest token at each place: for what the tokenizer would not write so, as a special token's name."""
        at = 0
        while at < len(data):
            ends = range(min(len(data), at + self._longest), at, -1)
            end = next((end for end in ends if data[at:end] in self.id_of), None)
            if end is not None:
                yield self.id_of[data[at:end]]
            at = end or at + 1

    def _encode(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return [number if number < self.rows else -1 for number in ids]


def _kind(name: str, tokenizer: Any) -> str:
    """How its tokens mark bytes and spaces: told by its decoder, or by the vocabulary of one without such."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = json.loads(backend.to_str())["decoder"] if backend is not None else None
    steps = [] if decoder is None else decoder.get("decoders", [decoder])
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        return BYTE_LEVEL
    if kinds & {"ByteFallback", "Metaspace"} or any(_SPACE in json.dumps(step, ensure_ascii=False) for step in steps):
        return SENTENCE_PIECE
    if not kinds and any(token.startswith(_SPACE) for token in tokenizer.get_vocab()):
        return SENTENCE_PIECE
    decoder = ", ".join(sorted(kinds)) or "no decoder"
    raise UserError(
        f"{name}: its tokenizer marks tokens in a way that is not known here ({decoder}); "
        f"expected a {BYTE_LEVEL} or {SENTENCE_PIECE} tokenizer, or a pair of one tokenizer"
    )


def _bytes_of(token: str, kind: str) -> bytes:
    if kind == BYTE_LEVEL:
        alphabet = _alphabet()
        return bytes(alphabet[char] for char in token) if all(char in alphabet for char in token) else token.encode()
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE, " ").encode()


@lru_cache(1)
def _alphabet() -> dict[str, int]:
    """The byte of each character of byte-level tokens: printable ones stand for themselves, the others follow 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


def _begins(tokenizer: Any) -> tuple[int, ...]:
    whole, bare = tokenizer.encode("a"), tokenizer.encode("a", add_special_tokens=False)
    return next(
        (tuple(whole[:place]) for place in range(len(whole)) if whole[place : place + len(bare)] == bare),
        (),
    )
