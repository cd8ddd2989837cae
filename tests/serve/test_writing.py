"""Text as it may be told while it grows: stop strings and half characters."""

from hypothesis import given
from hypothesis import strategies as st

from serve.answers.writing import ResponseWriting
from tests.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def decode(ids: object) -> str:
    return str(TOKENIZER.decode(ids, skip_special_tokens=True))


def written(ids: list[int], stops: tuple[str, ...], width: int) -> tuple[str, list[int], list[str]]:
    """All that was told of these ids, so many a round; the ids that were kept; and the pieces."""
    writing, kept, pieces = ResponseWriting(decode, stops), list[int](), list[str]()
    for start in range(0, len(ids), width):
        some = ids[start : start + width]
        kept += some[: writing.push(some)]
        pieces.append(writing.told())
        if writing.stopped:
            break
    pieces.append(writing.rest())
    return "".join(pieces), kept, pieces


@given(st.text(max_size=40), st.integers(1, 5))
def test_without_stops_the_pieces_are_the_whole_text(text: str, width: int) -> None:
    ids = TOKENIZER.encode(text)
    told, kept, _ = written(ids, (), width)
    assert told == decode(ids) and kept == ids


@given(st.text("abc🙂", max_size=30), st.lists(st.text("abc🙂", min_size=1, max_size=4), max_size=3), st.integers(1, 5))
def test_the_text_ends_before_the_stop_string_that_is_complete_first(text: str, stops: list[str], width: int) -> None:
    ids = TOKENIZER.encode(text)
    told, kept, _ = written(ids, tuple(stops), width)
    count = next((n for n in range(1, len(ids) + 1) if any(stop in decode(ids[:n]) for stop in stops)), None)
    whole = decode(ids[:count])
    expected = whole[: min(whole.find(stop) for stop in stops if stop in whole)] if count else whole
    assert told == expected and kept == ids[:count]


def test_what_may_become_a_stop_string_is_held_back_and_told_when_it_does_not() -> None:
    ids = TOKENIZER.encode("a STOx STOP b")
    told, kept, pieces = written(ids, ("STOP",), 1)
    assert told == "a STOx " and decode(kept) == "a STOx STOP"
    assert all("S" not in piece or "x" in piece or piece.startswith("S") for piece in pieces)


def test_half_a_character_is_held_back() -> None:
    ids = TOKENIZER.encode("é!")
    _, _, pieces = written(ids, (), 1)
    assert pieces[0] == "" and "".join(pieces) == "é!"
