"""The text of an answer: characters whole, spaces right, every draft's fate told."""

from collections.abc import Sequence

import pytest
from transformers import PreTrainedTokenizerFast

from repl.screen.round_text import judgements, round_text
from sampling.measure.answer import Answer, Span, TokenText
from utils.events import Round


def make_round(
    drafts: tuple[int, ...] = (),
    path: tuple[int, ...] = (),
    next_token: int | None = 0,
    parents: tuple[int, ...] | None = None,
) -> Round:
    ones = (1.0,) * len(drafts)
    return Round(0, 10, len(drafts), drafts, parents, ones, ones, path, next_token, None, 100, 0.001, 0.002)


TEXTS = [
    "the quick brown fox",
    "🙂",
    "a🙂b 👩‍👩‍👧 c",
    "日本語のテキスト、漢字。",
    "naïve café — Ωμέγα",
    "  two  spaces\n\tand a tab",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_whole_and_add_up(text: str, tokenizer: PreTrainedTokenizerFast) -> None:
    stream = TokenText(tokenizer.decode)
    pieces = [stream.push(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert stream.flush() == ""


def test_a_split_emoji_appears_with_its_last_byte(tokenizer: PreTrainedTokenizerFast) -> None:
    stream = TokenText(tokenizer.decode)
    *first, last = tokenizer.encode("🙂")
    assert len(first) == 3
    assert [stream.push(token) for token in first] == ["", "", ""]
    assert stream.push(last) == "🙂"


def test_half_a_character_at_the_end_is_shown_once_nothing_follows(tokenizer: PreTrainedTokenizerFast) -> None:
    stream = TokenText(tokenizer.decode)
    half = tokenizer.encode("🙂")[:2]
    assert [stream.push(token) for token in half] == ["", ""]
    assert stream.flush() == "\ufffd"


def test_bytes_that_never_become_a_character_do_not_stop_the_text(tokenizer: PreTrainedTokenizerFast) -> None:
    stray = tokenizer.encode("🙂")[1]
    stream = TokenText(tokenizer.decode)
    shown = "".join(stream.push(token) for token in [stray] * 40)
    assert len(shown) > 20
    assert (shown + stream.push(tokenizer.encode("a")[0])).endswith("a")


def test_words_of_a_sentencepiece_tokenizer_keep_their_spaces() -> None:
    """Such a decoder drops the space before the first word: single tokens would run into each other."""
    words = ["▁Hello", "▁big", "▁world", "s", "▁!"]

    def decode(ids: Sequence[int]) -> str:
        return "".join(words[i] for i in ids).replace("▁", " ").removeprefix(" ")

    stream = TokenText(decode)
    assert "".join(stream.push(i) for i in range(len(words))) == "Hello big worlds !"


def test_the_cost_of_a_token_does_not_grow(tokenizer: PreTrainedTokenizerFast) -> None:
    longest = 0

    def decode(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return str(tokenizer.decode(ids))

    stream = TokenText(decode)
    for token in tokenizer.encode("日本語 the fox 🙂 ") * 20:
        stream.push(token)
    assert longest <= 12


def _decode(ids: Sequence[int]) -> str:
    return "".join(f"<{i}>" for i in ids)


def test_a_round_has_its_rejected_draft_and_the_next_round_has_not() -> None:
    answer = Answer(_decode)
    answer.add(make_round((5, 7, 9), (0,), 4))
    assert answer.last == [Span("<5>", "accepted"), Span("<7>", "rejected"), Span("<4>", "target")]
    assert answer.text == "<5><4>"
    answer.add(make_round((6,), (0,), 8))
    assert answer.old == [Span("<5>", "accepted"), Span("<4>", "target")]
    assert answer.last == [Span("<6>", "accepted"), Span("<8>", "target")]
    answer.finish()
    assert answer.last == [] and answer.text == "<5><4><6><8>"


@pytest.mark.parametrize(
    ("round", "words"),
    [
        (make_round((1, 2, 3), (0, 1, 2)), "accepted accepted accepted"),
        (make_round((1, 2, 3), (0,)), "accepted rejected not-tested"),
        (make_round((1, 2), ()), "rejected not-tested"),
        (make_round((1, 2), (0,), None), "accepted not-tested"),
        (make_round((), ()), ""),
        # Children of the root: rows 0 and 1; of row 1: rows 2 and 3; of row 0: row 4.
        (
            make_round((1, 2, 3, 4, 5), (1, 3), parents=(-1, -1, 1, 1, 0)),
            "rejected accepted rejected accepted not-tested",
        ),
        (make_round((1, 2, 3), (), parents=(-1, -1, 0)), "rejected rejected not-tested"),
        (make_round((1, 2, 3), (0,), parents=(-1, -1, 0)), "accepted not-tested rejected"),
    ],
)  # fmt: skip
def test_judgements(round: Round, words: str) -> None:
    assert " ".join(word.replace(" ", "-") for word in judgements(round)) == words


def test_a_round_is_told_a_line_a_draft() -> None:
    assert round_text(make_round((5, 7), (0,), 4), _decode).plain.split("\n   ") == [
        "#1  position 10, gamma 2, draft 1.0 ms, verify 2.0 ms",
        "'<5>'  accepted  q=1.00 p=1.00",
        "'<7>'  rejected  q=1.00 p=1.00",
        "'<4>'  recovered",
    ]
    ends = {(5,): "'<4>'  bonus", (): "'<4>'  target"}
    for drafts, end in ends.items():
        assert round_text(make_round(drafts, (0,) * len(drafts), 4), _decode).plain.endswith(end)
    assert round_text(make_round((5,), (0,), None), _decode).plain.endswith("stopped by an accepted draft")


def test_a_draft_of_a_tree_is_indented_by_its_depth_and_coloured_by_what_became_of_it() -> None:
    text = round_text(make_round((1, 2, 3), (0,), parents=(-1, -1, 0)), _decode)
    assert [len(line) - len(line.lstrip()) for line in text.plain.splitlines()[1:4]] == [3, 3, 5]
    colours = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert (colours["'<1>'"], colours["'<2>'"], colours["'<3>'"]) == ("green", "dim", "red")
