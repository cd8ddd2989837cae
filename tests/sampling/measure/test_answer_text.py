"""The text of an answer as it comes is the text of its ids, whatever bytes they are."""

import random
from collections.abc import Sequence

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers.convert_slow_tokenizer import bytes_to_unicode

from sampling.measure.answer import Answer, Decode, TokenText
from serve.answers.writing import ResponseWriting
from tests.tiny import tiny_tokenizer
from utils.events import Round

LEADS = (b"\x80\x80\x80", b"\x80" * 4, b"\x80" * 5, b"\x80" * 6, b"\xff" * 40, b"\xf0\x9f", b"\xe0\x80\xf0")
WORDS = ("🙂", "日本語", "é", "a b", "ߊ", "x" * 40, "\n", "🙂🙂é")


def bytewise() -> tuple[Decode, dict[int, int]]:
    """A tokenizer whose tokens are bytes, and the id of each."""
    tokenizer, of_byte = tiny_tokenizer(), bytes_to_unicode()
    ids = {byte: tokenizer.convert_tokens_to_ids(sign) for byte, sign in of_byte.items()}
    return lambda given: str(tokenizer.decode(given)), ids


def told(decode: Decode, ids: list[int]) -> str:
    text = TokenText(decode)
    return "".join(map(text.push, ids)) + text.flush()


def strings(count: int) -> list[bytes]:
    """Stray bytes before, between and behind words, and bytes at random."""
    chance = random.Random(0)
    found = [lead + word.encode() for lead in LEADS for word in WORDS]
    while len(found) < count:
        parts = [chance.choice((*LEADS, *(word.encode() for word in WORDS), chance.randbytes(4))) for _ in range(4)]
        found.append(b"".join(parts)[: chance.randint(1, 40)])
    return found


def test_text_is_that_of_the_ids() -> None:
    decode, ids = bytewise()
    for raw in strings(400):
        tokens = [ids[byte] for byte in raw]
        assert told(decode, tokens) == decode(tokens) == raw.decode(errors="replace"), raw


def test_half_a_character_is_held_back_and_no_longer() -> None:
    decode, ids = bytewise()
    text = TokenText(decode)
    assert [text.push(ids[byte]) for byte in "🙂!".encode()] == ["", "", "", "🙂", "!"]
    stray = TokenText(decode)
    shown = [len(stray.push(ids[0x80])) for _ in range(300)]
    assert 297 <= sum(shown) < 300 and max(shown) <= 4, "what can be no character any more is told"
    assert len(stray._window) <= 33, "and is not decoded again for ever"


def test_stray_bytes_are_held_back_until_the_sixth() -> None:
    """The last three may still become a character; the fifth is held back with those before it."""
    decode, ids = bytewise()
    text = TokenText(decode)
    assert [len(text.push(ids[0x80])) for _ in range(8)] == [0, 0, 0, 0, 0, 3, 1, 1]


def test_characters_of_bytes_that_stand_for_nothing_else() -> None:
    """Llama's way: a run of byte tokens is text where all of it is, and a sign a byte where it is not."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"a": 256}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    for word in WORDS:
        tokens = [*word.replace("x", "").encode()]
        assert told(lambda given: str(tokenizer.decode(given)), tokens) == bytes(tokens).decode()


@pytest.mark.parametrize("lead", LEADS[:5])
def test_a_stop_string_behind_stray_bytes_is_found(lead: bytes) -> None:
    decode, ids = bytewise()
    writing = ResponseWriting(decode, ["日本"])
    tokens = [ids[byte] for byte in lead + "日本語".encode()]
    kept = writing.push(tokens)
    assert writing.stopped and kept == len(lead) + 6
    assert writing.told() + writing.rest() == lead.decode(errors="replace")


def letters(ids: Sequence[int]) -> str:
    return "".join("abcdefgh"[token] for token in ids)


def judged(drafts: tuple[int, ...], accepted: int, token: int | None) -> Round:
    flat = (0.5,) * len(drafts)
    return Round(0, 0, 4, drafts, None, flat, flat, tuple(range(accepted)), token, None, 8)


def test_an_answer_shows_what_was_drafted_and_what_became_of_it() -> None:
    """Two of three accepted; all of two; none drafted; an accepted draft that ends the text."""
    answer = Answer(letters)
    assert not answer.begun
    told = []
    for round in (judged((0, 1, 2), 2, 3), judged((4, 5), 2, 6), judged((), 0, 7), judged((1, 0), 1, None)):
        answer.add(round)
        told.append([(span.text, span.kind) for span in answer.last])
    assert answer.begun and told == [
        [("a", "accepted"), ("b", "accepted"), ("c", "rejected"), ("d", "target")],
        [("e", "accepted"), ("f", "accepted"), ("g", "target")],
        [("h", "target")],
        [("b", "accepted")],
    ]
    answer.finish()
    assert answer.text == "abdefghb" and not answer.last
    assert [span.kind for span in answer.old].count("rejected") == 0
