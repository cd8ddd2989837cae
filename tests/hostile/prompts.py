"""Prompt lines and files; ids and tasks that would steer a terminal."""

import json
from typing import Any

from tests.hostile.row import Row

_RUN = ("run", "--prompts", "p.jsonl", "--methods", "target", "--length", "2")
_DIR = ("run", "--prompts-dir", "sets", "--methods", "target", "--length", "2")
_BAD: list[tuple[Any, tuple[object, ...]]] = [
    ("{", ("not JSON",)),
    ("nothing", ("not JSON",)),
    ("'single'", ("not JSON",)),
    ("3", ("a int",)),
    ("[" * 50_000 + "]" * 50_000, ("nested too deep",)),
    ('{"prompt": "a", "id": ' + "[" * 50_000 + "]" * 50_000 + "}", ("nested too deep",)),
    ('{"turns": ' + "[" * 50_000 + "]" * 50_000 + "}", ("nested too deep",)),
    ('{"prompt": "a", "id": ' + "7" * 5000 + "}", ("number of thousands of digits",)),
    ('{"prompt": "a", "id": ' + "7" * 4000 + "}", ("id: 4000 characters", "200")),
    ('{"prompt": "a", "max_new_tokens": ' + "7" * 4000 + "}", ("max_new_tokens: '777", "(4,000 characters)")),
    ('{"prompt": "a", "max_new_tokens": NaN}', ("NaN",)),
    ('{"prompt": "a", "prompt": "b"}', ("key 'prompt'",)),
    ('{"prompt": "a", "id": 1, "id": 2}', ("key 'id' is there twice",)),
    ('{"prompt": "a"} {"prompt": "b"}', ("not JSON",)),
    ('{"prompt": "a"},', ("not JSON",)),
    ({}, ("none of 'prompt', 'data', 'turns' and 'messages' is there",)),
    ({"prompt": "a", "turns": ["b"]}, ("'prompt'", "'turns'")),
    ({"turns": ["a"], "id": 1, "question_id": 2}, ("'id'", "'question_id'")),
    ({"prompt": "a", "task": "t", "category": "c"}, ("'task'", "'category'")),
    ({"data": ["a"]}, ("data: ['a']",)),
    ({"data": "a", "prompt": "b"}, ("'prompt'", "'data'")),
    ({"data": "a", "answer": "b"}, ("key", "'answer'")),
    ({"prompt": ""}, ("prompt: ''",)),
    ({"prompt": " \n"}, ("prompt: ' \\n'",)),
    ({"prompt": None}, ("prompt: None",)),
    ({"prompt": ["a"]}, ("prompt: ['a']",)),
    ({"prompt": {"a": "b" * 100_000}}, ("characters)",)),
    ({"prompt": "half \ud800"}, ("prompt: 'half \\ud800' holds half a character at 5",)),
    ({"prompt": "a", "id": "\udfff"}, ("id: '\\udfff' holds half a character",)),
    ({"prompt": "a", "task": "\udfff"}, ("task: '\\udfff' holds half a character",)),
    ({"prompt": "a", "id": ""}, ("id: ''",)),
    ({"prompt": "a", "id": None}, ("id: None",)),
    ({"prompt": "a", "id": True}, ("id: True",)),
    ({"prompt": "a", "id": 1.5}, ("id: 1.5",)),
    ({"prompt": "a", "id": "i" * 201}, ("id: 201 characters", "200")),
    ({"prompt": "a", "task": "t" * 5000}, ("task: 5,000 characters", "200")),
    ({"prompt": "a", "task": 3}, ("task: 3",)),
    ({"prompt": "a", "max_new_tokens": 0}, ("max_new_tokens: '0'", 1)),
    ({"prompt": "a", "max_new_tokens": -5}, ("max_new_tokens: '-5'",)),
    ({"prompt": "a", "max_new_tokens": "5"}, ("max_new_tokens: '5'",)),
    ({"prompt": "a", "max_new_tokens": 5.0}, ("max_new_tokens: 5.0",)),
    ({"prompt": "a", "max_new_tokens": True}, ("max_new_tokens: True",)),
    ({"prompt": "a", "max_new_tokens": 2**64}, ("max_new_tokens: '18446744073709551616'",)),
    ({"prompt": "a", "max_new_tokns": 5}, ("key", "'max_new_tokns'", "'max_new_tokens'")),
    ({"prompt": "a", "k" * 5_000_000: 5}, ("key", "'kkk", "(5,000,000 characters)")),
    ({"prompt": "a", "\x1b[2J": 5}, ("key", "'\\x1b[2J'")),
    ({"turns": []}, ("turns: []",)),
    ({"turns": "a"}, ("turns: 'a'",)),
    ({"turns": ["a", ""]}, ("turn 2: ''",)),
    ({"turns": ["a", 2]}, ("turn 2: 2",)),
    ({"turns": {"0": "a"}}, ("turns: {'0': 'a'}",)),
    ({"turns": ["a"], "question_id": []}, ("question_id: []",)),
    ({"turns": ["a"], "category": 3}, ("category: 3",)),
]


def _line(entry: Any) -> str:
    return entry if isinstance(entry, str) else json.dumps(entry)


def _file(content: str | bytes, says: tuple[object, ...]) -> Row:
    return Row("infer", _RUN, 2, says, files={"p.jsonl": content}, name=f"prompts {says[0]}")


_STEERING = {"prompt": "a", "id": "\x1b[2J\x07\n| id", "task": "\x1b]0;owned\x07\u202etask"}

ROWS = [
    *(
        Row("infer", _RUN, 2, ("'p.jsonl': line 1:", *says), files={"p.jsonl": _line(entry)}, name=str(says[0]))
        for entry, says in _BAD
    ),
    _file("", ("prompt file 'p.jsonl' holds no prompt",)),
    _file("\n \n\t\n", ("holds no prompt",)),
    _file(b"\xff\xfe\x00", ("cannot be read",)),
    _file(b'{"prompt": "\xe4"}', ("cannot be read",)),
    _file("\x00" * 1000, ("not JSON",)),
    _file('{"prompt": "a", "id": 1}\n{"prompt": "b", "id": 1}', ("line 2: id 1 is taken by an earlier line",)),
    _file('{"prompt": "a", "id": 2}\n{"prompt": "b"}', ("line 2: id 2 is taken by an earlier line",)),
    _file("x\n" * 5000, ("line 1: not JSON", "and 4990 more bad lines")),
    Row("infer", _DIR, 2, ("folder 'sets' cannot be read: No such file or directory",)),
    Row("infer", _DIR, 2, ("prompt folder 'sets' cannot be read: Not a directory",), files={"sets": ""}),
    Row("infer", _DIR, 2, ("'sets' holds 'a.txt'",), files={"sets/a.txt": ""}),
    Row("infer", _DIR, 2, ("holds 'a.jsonl' and 'b/question.jsonl'",),
        files={"sets/a.jsonl": '{"data": "a"}', "sets/b/question.jsonl": '{"turns": ["a"]}'}),
    Row("infer", _DIR, 2, ("a.jsonl' cannot be read", "b.jsonl': line 1: not JSON"),
        files={"sets/a.jsonl": b"\xff\xfe", "sets/b.jsonl": "{"}, name="two bad files of a folder"),
    Row("infer", _DIR, 2, ("a.jsonl' holds no prompt",), files={"sets/a.jsonl": ""}),
    Row("infer", _DIR, 0, ("\\x1b[2J:1",), files={"sets/\x1b[2J.jsonl": '{"data": "a"}'}, name="a set that steers"),
    Row("infer", ("run", "--prompts-dir", "nul\x00"), 2, ("prompts_dir: 'nul\\x00'",)),
    Row("infer", ("run", "--prompts-dir", ""), 2, ("prompts_dir: ''",)),
    Row("infer", ("run", "--prompts-dir", "a", "--prompt", "b"), 2, ("--prompt", "--prompts-dir")),
    Row("infer", ("run", "--prompts", "none.jsonl"), 2, ("'none.jsonl' cannot be read: No such file",)),
    Row("infer", ("run", "--prompts", "."), 2, ("'.' cannot be read: Is a directory",)),
    Row("infer", ("run", "--prompts", "~nouser/p.jsonl"), 2, ("'~nouser/p.jsonl' cannot be read",)),
    Row("infer", ("run", "--prompts", "n" * 5000), 2, ("cannot be read: File name too long",)),
    Row("infer", ("run", "--prompts", "\x1b[2J"), 2, ("'\\x1b[2J' cannot be read",)),
    Row("infer", ("run", "--prompts", "nul\x00"), 2, ("--prompts", "embedded null byte")),
    Row("infer", (*_RUN, "--seed", "3"), 0, ("\\x1b[2J\\x07\\n| id",), files={"p.jsonl": json.dumps(_STEERING)}),
    Row("infer", (*_RUN, "--json"), 0, ('"task": "\\u001b]0;owned',), files={"p.jsonl": json.dumps(_STEERING)}),
    Row("infer", _RUN, 0, ("prompt [/nope]",), files={"p.jsonl": '{"prompt": "a", "id": "[/nope]"}'}),
    Row("infer", _RUN, 1, ("400,000 characters", "51,200", "target failed"),
        files={"p.jsonl": json.dumps({"prompt": "word" * 100_000})}, name="a prompt that no context holds"),
    Row("infer", _RUN, 1, ("51,201 characters", "51,200"),
        files={"p.jsonl": json.dumps({"turns": ["a" * 51_201, "b"]})}, name="a turn that no context holds"),
    Row("infer", _RUN, 1, ("tokens; the context window of 512 leaves no room",),
        files={"p.jsonl": json.dumps({"prompt": "a b" * 1000})}, name="a prompt that is too long"),
]  # fmt: skip
