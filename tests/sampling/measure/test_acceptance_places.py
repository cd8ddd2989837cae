"""Places of an answer: buckets, and the phase of the text, told from what stands before."""

import pytest

from sampling.measure.acceptance.place_rates import place_shares, rounds_at
from sampling.measure.acceptance.places import CONTEXT, OUTPUT, PhaseReader, Place, bucket, group_order, places_of
from utils.events import Round


def phases(answer: str, prompt: str = "") -> dict[str, str]:
    """The phase of each character, as the characters of each phase in order."""
    reader, found = PhaseReader(list(map(ord, prompt)), chr), dict[str, str]()
    for character in answer:
        found[reader.phase] = found.get(reader.phase, "") + character
        reader.add(ord(character))
    return found


@pytest.mark.parametrize(
    ("number", "begins", "name"),
    [(0, OUTPUT, "0-7"), (40, OUTPUT, "32-127"), (5000, OUTPUT, "2048+"), (32767, CONTEXT, "16384-32767")],
)
def test_buckets(number: int, begins: tuple[int, ...], name: str) -> None:
    assert bucket(number, begins) == name


def test_groups_are_in_the_order_of_the_text() -> None:
    names = ["128-511", "8-31", "0-7", "2048+"]
    assert sorted(names, key=lambda name: group_order("output", name)) == ["0-7", "8-31", "128-511", "2048+"]
    assert sorted(["list", "think", "answer"], key=lambda name: group_order("phase", name))[0] == "answer"


def test_thinking_begins_and_ends_by_its_tags() -> None:
    assert phases("<think>Hm.</think>So") == {"answer": "<think>So", "think": "Hm.</think>"}


def test_a_prompt_may_open_the_thinking() -> None:
    found = phases("Hm.</think>\nSo then", "user\n<think>")
    assert found["think"] == "Hm.</think>" and found["answer"].endswith("So then")


def test_code_stands_between_fences() -> None:
    found = phases("Look:\n```py\nx = 1\n```\nDone")
    assert found["code fence"].endswith("py\nx = 1\n```\n") and "Done" in found["answer"]


def test_json_by_its_brackets_and_by_its_fence() -> None:
    assert phases('{"a": [1, "}"]}\nok')["JSON"].endswith(': [1, "}"]}'[-8:])
    assert "ok" in phases('{"a": [1, "}"]}\nok')["answer"]
    assert '{"a": 1}' in phases('```json\n{"a": 1}\n```\n')["JSON"]
    assert "JSON" not in phases("[a link](there) and {curly}\n")


def test_lists_and_tables_go_on_until_a_line_says_otherwise() -> None:
    found = phases("Two:\n- one\n- two\n\nEnd")
    assert found["list"] == " one\n- two\n\n" and found["answer"].endswith("End")
    assert phases("| a | b |\n| 1 | 2 |\n")["table"].startswith(" a | b |\n| 1")


def test_what_stands_in_the_prompt_is_quoted() -> None:
    found = phases("He said: the river was low. Yes", "In summer the river was low.")
    assert found["quotation"] == "iver was low. "[: len(found["quotation"])] and "Yes" in found["answer"]


def test_places_count_the_prompt() -> None:
    first, second = places_of([1, 2, 3], [65, 66], chr, turn=2)
    assert first == Place(0, 3, "answer", 2) and (second.output, second.context) == (1, 4)
    assert [first.group(kind) for kind in ("output", "context", "phase", "turn")] == ["0-7", "0-127", "answer", "2"]


def made(number: int, position: int, drafts: str, accepted: int, after: str) -> Round:
    ids = tuple(map(ord, drafts))
    zeros = (0.0,) * len(ids)
    return Round(number, position, 4, ids, None, zeros, zeros, tuple(range(accepted)), ord(after), None, 256)


def test_rounds_are_told_by_where_they_began() -> None:
    """Nine tokens: the first round drafts 2 of which 2 pass, the second 3 of which 1 passes, the third none."""
    rounds = [
        made(0, 3, "abcdef", 6, "g"),
        made(1, 10, "hx", 1, "i"),
        made(2, 12, "", 0, "j"),
        made(3, 13, "z", 0, "k"),
    ]
    found = list(rounds_at("sd", [1, 2, 3], rounds, chr))
    assert [(at.place.output, at.judged, at.accepted) for at in found] == [(0, 6, 6), (7, 2, 1), (10, 1, 0)]
    shares = {(share.kind, share.group): share for share in place_shares(found)}
    assert shares["output", "0-7"].share == pytest.approx(7 / 8) and shares["output", "8-31"].share == 0.0
    assert shares["turn", "1"].cases == 9
