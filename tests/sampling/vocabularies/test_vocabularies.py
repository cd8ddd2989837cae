"""Tokens as bytes, what two tokenizers share, and how a text is read and written anew: by hand, on tiny tokenizers."""

from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from sampling.methods.settings import Settings
from sampling.methods.tables import METHODS
from sampling.pair.pair_engine import PairEngine
from sampling.vocabularies.crossing import Crossing
from sampling.vocabularies.own_text import OwnText
from sampling.vocabularies.tokens import Vocabulary
from tests import tiny
from tests.refusals import refused
from tests.vocabularies import G, S, alphabet, byte_level, crossed_pair, crossing, sentence_piece

EMOJI = "\U0001f600"
TEXTS = (
    "the cat",
    " the  cat\n\n sat",
    f"a {EMOJI} b",
    "caf\u00e9 \u4f60\u597d",
    "nul \0 inside",
    "\t tabs",
    "<end> as text",
    "",
)
WORDS = ["th", "the", f"{G}the", f"{G}t", f"{G}th", f"{G}c", "at", f"{G}cat"]
PIECES = [S, *"abcdefhnst", "th", "the", f"{S}the", f"{S}t", f"{S}th", f"{S}c", "at", f"{S}cat"]


def big() -> PreTrainedTokenizerFast:
    return byte_level([*alphabet(), *WORDS], ["<end>", "<user>"], "<end>")


def small() -> PreTrainedTokenizerFast:
    return sentence_piece(PIECES, ["<unk>", "<s>", "</s>"], "</s>")


def vocabulary(tokenizer: PreTrainedTokenizerFast) -> Vocabulary:
    return Vocabulary("one", tokenizer, len(tokenizer))


@pytest.mark.parametrize("make", [big, small])
@pytest.mark.parametrize("text", TEXTS)
def test_what_is_written_says_the_same_bytes(make: Any, text: str) -> None:
    one = vocabulary(make())
    assert one.said(one.written(text.encode())) == text.encode()
    assert one.said(one.written(text.encode(), True)) in (text.encode(), b" " + text.encode())


@pytest.mark.parametrize("make", [big, small])
@pytest.mark.parametrize(
    "data", [EMOJI.encode()[:3], b"\xff\xfe a", b"a\x80", EMOJI.encode()[1:], b"\xc3(", bytes(256)]
)
def test_bytes_that_are_no_text_are_written_byte_by_byte(make: Any, data: bytes) -> None:
    one = vocabulary(make())
    assert one.said(one.written(data)) == data


def test_inside_a_text_no_space_is_put_first() -> None:
    """SentencePiece marks the begin of a text as if a space were there."""
    one, ids = vocabulary(small()), small().get_vocab()
    assert one.written(b"the") == (ids["the"],)
    assert one.written(b"the", True) == (ids[f"{S}the"],) == one.written(b" the")


def test_marks_of_both_kinds_stand_for_the_same_bytes() -> None:
    both = crossing(big(), small())
    ours, theirs = big().get_vocab(), small().get_vocab()
    for mine, other in ((f"{G}the", f"{S}the"), ("the", "the"), ("\u010a", "<0x0A>"), ("\u00ff", "<0xFF>"), (G, S)):
        assert both.own_of[ours[mine]] == theirs[other], mine
        assert both.target_of[theirs[other]] == ours[mine]
    assert both.own_of[ours["a"]] == theirs["a"], "the token, and not the byte that it could fall back to"


def test_special_tokens_are_shared_by_name_and_ends_with_each_other() -> None:
    both = crossing(big(), small())
    ours, theirs = big().get_vocab(), small().get_vocab()
    assert both.own_of[ours["<end>"]] == theirs["</s>"]
    assert ours["<user>"] not in both.own_of and theirs["<s>"] not in both.target_of
    same = crossing(big(), byte_level(["a", "<end>"], ["<user>", "<stop>"], "<stop>"))
    assert same.own_of[ours["<user>"]] == 0
    assert same.own_of[ours["<end>"]] == 1, "the end, and not the ordinary token of that name"


def test_rows_without_logits_are_left_out() -> None:
    one = Vocabulary("one", big(), 100)
    assert all(number < 100 for number in (*one.id_of.values(), *one.written("the cat \u4f60".encode())))


def test_a_tokenizer_of_unknown_marks_is_refused_by_name() -> None:
    backend = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    with refused("bert", "WordPiece", "byte-level", "SentencePiece"):
        Vocabulary("bert", PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="[UNK]"), 3)


def test_the_intersection_is_drawn_from_where_text_is_written_with_it() -> None:
    full = crossing(big(), small())
    assert full.chosen("auto") == "tli"
    apart = crossing(big(), byte_level([*alphabet()], ["<stop>"], "<stop>"))
    assert apart.coverage.drafter == 1.0 > apart.coverage.target
    foreign = crossing(big(), byte_level([chr(0x4E00 + number) for number in range(9)], ["<stop>"], "<stop>"))
    assert foreign.chosen("auto") == foreign.chosen("slem") == "slem"
    with refused("vocabulary", "tli", "big", "small", "slem"):
        foreign.chosen("tli")


def read(text: OwnText, both: Crossing, *parts: str) -> list[list[int]]:
    """What is read as a text grows by these parts."""
    tokens: list[int] = []
    found = []
    for part in parts:
        tokens += both.target.written(part.encode())
        found.append(text.ids(tokens))
    return found


def own_text(both: Crossing) -> OwnText:
    return OwnText(SimpleNamespace(length=0, window=99), both)  # type: ignore[arg-type]


def test_a_word_is_read_as_the_drafter_would_write_it_and_anew_as_it_grows() -> None:
    both = crossing(big(), small())
    grown = read(own_text(both), both, "the", " t", "h", "e", " cat")
    theirs = small().get_vocab()
    assert grown == [
        [theirs[f"{S}the"]],
        [theirs[f"{S}the"], theirs[f"{S}t"]],
        [theirs[f"{S}the"], theirs[f"{S}th"]],
        [theirs[f"{S}the"], theirs[f"{S}the"]],
        [theirs[f"{S}the"], theirs[f"{S}the"], theirs[f"{S}cat"]],
    ]


def test_reading_as_it_grows_is_reading_at_once() -> None:
    both = crossing(big(), small())
    ids = [*both.target.written(f"the cat {EMOJI}\n\nth".encode()), 1, *both.target.written(b"a  the"), 0]
    text = own_text(both)
    for end in range(1, len(ids) + 1):
        assert text.ids(ids[:end]) == own_text(both).ids(ids[:end]), end


def test_special_tokens_are_read_as_the_drafters_or_as_their_name() -> None:
    both = crossing(big(), small())
    ours, theirs = big().get_vocab(), small().get_vocab()
    ids = own_text(both).ids([ours["<user>"], *both.target.written(b" the"), ours["<end>"]])
    assert both.drafter.said(ids[:-2]) == b"<user>" and ids[-2:] == [theirs[f"{S}the"], theirs["</s>"]]


def test_a_text_without_spaces_is_cut_at_some_length() -> None:
    both = crossing(big(), small())
    ids = list(both.target.written(("\u4f60" * 60).encode()))
    text = own_text(both)
    assert both.drafter.said(text.ids(ids)) == (" " + "\u4f60" * 60).encode()
    assert len(text.word(ids)) < 33


def theirs(both: Crossing, text: bytes) -> tuple[int, ...]:
    return both.drafter.written(text)


def test_a_draft_continues_the_word_that_is_begun() -> None:
    both = crossing(big(), small())
    ours = big().get_vocab()
    begun = [ours[f"{G}t"]]  # the target would write " the" as one token, and has begun it otherwise
    assert both.target.said(both.continued(begun, theirs(both, b"he cat"))) == b"he cat"
    assert both.continued([ours[f"{G}the"]], theirs(both, b" cat")) == [ours[f"{G}cat"]]


def test_a_draft_counts_up_to_its_last_whole_character() -> None:
    both = crossing(big(), small())
    whole, cut = f" {EMOJI}".encode(), f" {EMOJI}".encode()[:-1]
    assert both.target.said(both.continued([], theirs(both, whole))) == whole
    assert both.target.said(both.continued([], theirs(both, cut))) == b" "
    broken = b"a\xff the"  # bytes that no further ones make a character of are drafted as they are
    assert both.target.said(both.continued([], theirs(both, broken))) == broken


def test_a_draft_ends_at_the_end_of_the_text() -> None:
    both = crossing(big(), small())
    ours, own = big().get_vocab(), small().get_vocab()
    said = [*theirs(both, b" the"), own["</s>"], *theirs(both, b" cat")]
    assert both.continued([], said) == [ours[f"{G}the"], ours["<end>"]]
    assert both.continued([], [*theirs(both, b" the"), own["<s>"]]) == [ours[f"{G}the"]]
    assert both.continued([], [own["<unk>"]]) == []


def test_what_the_target_cannot_write_is_not_drafted() -> None:
    both = crossing(byte_level(["a", "b"], ["<end>"], "<end>"), small())
    assert both.continued([], theirs(both, b"ab")) == [1, 2]
    assert both.continued([], theirs(both, b"the")) == []


@pytest.mark.parametrize("way", ["tli", "slem"])
def test_what_was_chosen_is_told_and_recorded(way: str) -> None:
    engine = PairEngine(crossed_pair())
    assert engine.resolve("speculative", {**Settings(), "vocabulary": way})["vocabulary"] == way
    assert engine.resolve("speculative", Settings())["vocabulary"] in ("tli", "slem")
    assert "vocabulary" not in engine.resolve("prompt_lookup", Settings())


@pytest.mark.parametrize("name", ["drafter", "staged"])
def test_what_needs_one_vocabulary_is_refused_by_name(name: str) -> None:
    told = crossed_pair().lacks(METHODS[name], {**Settings(), "staged_drafter": "suffix"})
    assert told is not None and name in told and "another tokenizer" in told
    for able in ("speculative", "egag", "extended", "suffix_or_model", "auto"):
        assert crossed_pair().lacks(METHODS[able], Settings()) is None


def test_a_pair_of_one_tokenizer_has_nothing_to_choose() -> None:
    pair, values = tiny.tiny_pair(), {**Settings(), "vocabulary": "slem"}
    assert "one tokenizer" in str(pair.lacks(METHODS["speculative"], values))
    assert pair.lacks(METHODS["prompt_lookup"], values) is None
    assert pair.lacks(METHODS["speculative"], Settings()) is None


def test_an_end_beyond_the_rows_is_none() -> None:
    """A model without a row for its tokenizer's end cannot be asked what follows it."""
    tokenizer = big()
    assert Vocabulary("one", tokenizer, len(tokenizer)).end == tokenizer.eos_token_id
    cut = Vocabulary("one", tokenizer, tokenizer.eos_token_id)
    assert cut.end is None and all(number < cut.rows for number in cut.begins)
