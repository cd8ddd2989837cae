"""Prompts as conversations of chats: what is played, what is context, where a system message goes."""

import json
from pathlib import Path
from typing import Any

import pytest

from ablation.plan.prompts.file import read_prompts
from ablation.plan.prompts.messages import read_messages
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.pair.pair import Pair
from tests.ablation.conftest import Invoke, objects
from tests.ablation.plan_files import Write
from tests.refusals import refused
from utils.errors import UserError

# Takes a system message, leaves it out without a word, or refuses it.
TAKES = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
DROPS = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
RAISES = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + DROPS


def chat(*said: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in said]


def written(tmp_path: Path, *lines: Any) -> Path:
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def test_all_forms_stand_in_one_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"prompt": "a", "id": "first"},
        {"question_id": 81, "category": "writing", "turns": ["a", "b"]},
        {
            **{"question_id": "s-1", "category": "coding", "sub_category": "python", "source": "x", "src_id": "9"},
            "messages": chat(("user", "a"), ("user", "b")),
        },
        {"messages": chat(("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c")), "max_new_tokens": 5},
    )
    plain, turns, speed, context = read_prompts(path)
    assert (plain.turns, plain.system, plain.before(1), plain.opening) == (("a",), None, (), ["a"])
    assert (turns.id, turns.turns, turns.before(2)) == (81, ("a", "b"), ())
    assert (speed.id, speed.task, speed.turns, speed.given) == ("s-1", "coding", ("a", "b"), ((), ()))
    assert (context.id, context.turns, context.system, context.max_new_tokens) == (4, ("c",), "s", 5)
    assert context.opening == ["a", "b", "c"] and context.texts == ["s", "a", "b", "c"]


@pytest.mark.parametrize(
    ("roles", "turns", "given"),
    [
        ("u", "a", ((),)),
        ("uu", "ab", ((), ())),
        ("uau", "c", (("a", "b"),)),
        ("uauau", "e", (("a", "b", "c", "d"),)),
        ("uuau", "ad", ((), ("b", "c"))),
        ("uauu", "cd", (("a", "b"), ())),
    ],
)
def test_user_messages_with_an_answer_are_context(roles: str, turns: str, given: tuple[tuple[str, ...], ...]) -> None:
    names = {"u": "user", "a": "assistant"}
    said = chat(*((names[role], "abcdef"[place]) for place, role in enumerate(roles)))
    made = read_messages(said)
    assert (made.turns, made.given, made.system) == (tuple(turns), given, None)
    assert read_messages([*chat(("system", "s")), *said]).given == given


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "messages: [] given; expected a list of one or more objects with role and content"),
        ("a", "messages: 'a' given"),
        (["a"], "message 1: 'a' given; expected an object with role and content"),
        ([{"role": "user"}], "message 1: {'role': 'user'} given"),
        (chat(("user", "a"), ("tool", "b")), "message 2, role: 'tool' given; expected one of system, user, assistant"),
        ([{"role": [], "content": "a"}], "message 1, role: [] given"),
        (chat(("user", " ")), "message 1, content: ' ' given; expected a string that is not empty"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], "message 1, content: [{'type'"),
        (chat(("user", "half \ud800")), "message 1: 'half \\ud800' holds half a character at 5"),
        (chat(("user", "a"), ("system", "b")), "message 2: a system message is not the first"),
        (chat(("system", "a"), ("system", "b"), ("user", "c")), "message 2: a system message is not the first"),
        (chat(("assistant", "a"), ("user", "b")), "message 1: an assistant message follows nothing; expected a user"),
        (chat(("system", "s"), ("assistant", "a")), "message 2: an assistant message follows system"),
        (chat(("user", "a"), ("assistant", "b"), ("assistant", "c")), "message 3: an assistant message follows assist"),
        (chat(("user", "a"), ("assistant", "b")), "the last message is of role assistant; expected user"),
        (chat(("user", "z"), ("user", "a"), ("assistant", "b")), "the last message is of role assistant"),
        (chat(("system", "a")), "the last message is of role system; expected user, whom the model answers"),
    ],
)
def test_what_is_wrong_is_told_by_line_and_message(tmp_path: Path, messages: Any, said: str) -> None:
    path = written(tmp_path, {"prompt": "right"}, {"messages": messages})
    with pytest.raises(UserError) as caught:
        read_prompts(path)
    assert "line 2: " in str(caught.value) and said in str(caught.value)


def test_a_line_says_it_in_one_way(tmp_path: Path) -> None:
    path = written(tmp_path, {"prompt": "a", "messages": chat(("user", "a"))}, {"id": 3})
    with pytest.raises(UserError) as caught:
        read_prompts(path)
    assert "line 1: 'prompt' and 'messages' are both there; expected one of them" in str(caught.value)
    assert "line 2: none of 'prompt', 'data', 'turns' and 'messages' is there" in str(caught.value)


def heard(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], bool, str | None]]:
    """What is asked of the tokenizer from now on."""
    asked: list[tuple[list[str], bool, str | None]] = []
    own = Pair.encode

    def encode(
        self: Pair, turns: Any, chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        asked.append((list(turns), chat, system))
        return own(self, turns, chat, system, variables)

    monkeypatch.setattr(Pair, "encode", encode)
    return asked


def test_a_run_continues_what_was_given_and_plays_what_was_not(
    invoke: Invoke, pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pair.tokenizer.chat_template = TAKES
    asked = heard(pair, monkeypatch)
    said = chat(
        ("system", "s"),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("user", "d"),
        ("assistant", "e"),
        ("user", "f"),
    )
    path = written(tmp_path, {"messages": said})
    result = invoke("run", "--prompts", path, "--methods", "target", "--length", 3, "--json")
    first, second = objects(result.stdout)
    assert [one["turn"] for one in (first, second)] == [1, 2] and not first["error"] and not second["error"]
    played = [one for one in asked if one[2] == "s"]
    assert (["a", "b", "c"], True, "s") in played
    assert played[-1] == (["a", "b", "c", first["text"], "d", "e", "f"], True, "s")


def test_a_plan_reads_messages(write: Write, tmp_path: Path) -> None:
    from ablation.plan.file import read_experiment

    line = {"id": 1, "category": "code", "messages": chat(("user", "a"), ("assistant", "b"), ("user", "c"))}
    written(tmp_path, line)
    (prompt,) = read_experiment(write('[[methods]]\nmethod = "ngram"', prompts='prompts = ["p.jsonl"]')).plan.prompts
    assert (prompt.turns, prompt.opening) == (("c",), ["a", "b", "c"])


def test_a_system_message_goes_to_the_template(pair: Pair) -> None:
    pair.tokenizer.chat_template = TAKES
    ids = pair.encode(["a"], True, "be brief")
    assert ids == pair.tokenizer.encode("<system>be brief<user>a<assistant>", add_special_tokens=False)
    assert pair.encode(["a"], True) != ids


@pytest.mark.parametrize(
    ("template", "chat"),
    [(DROPS, True), (RAISES, True), (None, True), (TAKES, False)],
)
def test_a_system_message_is_never_dropped(pair: Pair, template: str | None, chat: bool) -> None:
    pair.tokenizer.chat_template = template
    pair.encode(["a"], chat)
    with refused("system message", "tiny", "chat template"):
        pair.encode(["a"], chat, "be brief")


def test_a_prompt_with_a_system_message_fails_by_itself(invoke: Invoke, pair: Pair, tmp_path: Path) -> None:
    pair.tokenizer.chat_template = RAISES
    path = written(tmp_path, {"messages": chat(("system", "s"), ("user", "a"))}, {"prompt": "b"})
    result = invoke("run", "--prompts", path, "--methods", "target", "--length", 3, "--json")
    failed, ran = objects(result.stdout)
    assert result.exit_code == 1 and "the prompt has a system message" in failed["error"] and ran["error"] is None
