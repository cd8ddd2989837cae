"""Prompt lines and files; ids and tasks that would steer a terminal."""

import json
from typing import Any

from tests.hostile.row import Row

_RUN = ("run", "--prompts", "p.jsonl", "--methods", "target", "--length", "2")
_DIR = ("run", "--prompts-dir", "sets", "--methods", "target", "--length", "2")
_BAD: list[tuple[Any, tuple[str, ...]]] = [
    ("{", ("not JSON",)),
    ("nothing", ("not JSON",)),
    ("'single'", ("not JSON",)),
    ("3", ("a int given; expected a JSON object",)),
    ("[" * 50_000 + "]" * 50_000, ("nested too deep",)),
    ('{"prompt": "a", "id": ' + "[" * 50_000 + "]" * 50_000 + "}", ("nested too deep",)),
    ('{"turns": ' + "[" * 50_000 + "]" * 50_000 + "}", ("nested too deep",)),
    ('{"prompt": "a", "id": ' + "7" * 5000 + "}", ("number of thousands of digits",)),
    ('{"prompt": "a", "id": ' + "7" * 4000 + "}", ("id: 4000 characters given; expected at most 200",)),
    ('{"prompt": "a", "max_new_tokens": ' + "7" * 4000 + "}", ("max_new_tokens: '777", "(4,000 characters)")),
    ('{"prompt": "a", "max_new_tokens": NaN}', ("NaN given",)),
    ('{"prompt": "a", "prompt": "b"}', ("key 'prompt' is there twice; expected once",)),
    ('{"prompt": "a", "id": 1, "id": 2}', ("key 'id' is there twice",)),
    ('{"prompt": "a"} {"prompt": "b"}', ("not JSON",)),
    ('{"prompt": "a"},', ("not JSON",)),
    ({}, ("none of 'prompt', 'data', 'turns' and 'messages' is there",)),
    ({"prompt": "a", "turns": ["b"]}, ("'prompt' and 'turns' are both there; expected one of them",)),
    ({"turns": ["a"], "id": 1, "question_id": 2}, ("'id' and 'question_id' are both there",)),
    ({"prompt": "a", "task": "t", "category": "c"}, ("'task' and 'category' are both there",)),
    ({"data": ["a"]}, ("data: ['a'] given; expected a string",)),
    ({"data": "a", "prompt": "b"}, ("'prompt' and 'data' are both there; expected one of them",)),
    ({"data": "a", "answer": "b"}, ("unknown key 'answer'",)),
    ({"prompt": ""}, ("prompt: '' given; expected a string that is not empty",)),
    ({"prompt": " \n"}, ("prompt: ' \\n' given",)),
    ({"prompt": None}, ("prompt: None given",)),
    ({"prompt": ["a"]}, ("prompt: ['a'] given",)),
    ({"prompt": {"a": "b" * 100_000}}, ("characters) given; expected a string",)),
    ({"prompt": "half \ud800"}, ("prompt: 'half \\ud800' holds half a character at 5",)),
    ({"prompt": "a", "id": "\udfff"}, ("id: '\\udfff' holds half a character",)),
    ({"prompt": "a", "task": "\udfff"}, ("task: '\\udfff' holds half a character",)),
    ({"prompt": "a", "id": ""}, ("id: '' given; expected a string that is not empty",)),
    ({"prompt": "a", "id": None}, ("id: None given; expected a string or an integer",)),
    ({"prompt": "a", "id": True}, ("id: True given",)),
    ({"prompt": "a", "id": 1.5}, ("id: 1.5 given",)),
    ({"prompt": "a", "id": "i" * 201}, ("id: 201 characters given; expected at most 200",)),
    ({"prompt": "a", "task": "t" * 5000}, ("task: 5,000 characters given; expected at most 200",)),
    ({"prompt": "a", "task": 3}, ("task: 3 given; expected a string",)),
    ({"prompt": "a", "max_new_tokens": 0}, ("max_new_tokens: '0' given; expected an integer of 1 or more",)),
    ({"prompt": "a", "max_new_tokens": -5}, ("max_new_tokens: '-5' given",)),
    ({"prompt": "a", "max_new_tokens": "5"}, ("max_new_tokens: '5' given",)),
    ({"prompt": "a", "max_new_tokens": 5.0}, ("max_new_tokens: 5.0 given",)),
    ({"prompt": "a", "max_new_tokens": True}, ("max_new_tokens: True given",)),
    ({"prompt": "a", "max_new_tokens": 2**64}, ("max_new_tokens: '18446744073709551616' given",)),
    ({"prompt": "a", "max_new_tokns": 5}, ("unknown key 'max_new_tokns'", "Did you mean 'max_new_tokens'?")),
    ({"prompt": "a", "k" * 5_000_000: 5}, ("unknown key 'kkk", "(5,000,000 characters)")),
    ({"prompt": "a", "\x1b[2J": 5}, ("unknown key '\\x1b[2J'",)),
    ({"turns": []}, ("turns: [] given; expected a list of one or more strings",)),
    ({"turns": "a"}, ("turns: 'a' given",)),
    ({"turns": ["a", ""]}, ("turn 2: '' given",)),
    ({"turns": ["a", 2]}, ("turn 2: 2 given",)),
    ({"turns": {"0": "a"}}, ("turns: {'0': 'a'} given",)),
    ({"turns": ["a"], "question_id": []}, ("question_id: [] given",)),
    ({"turns": ["a"], "category": 3}, ("category: 3 given",)),
]


def _line(entry: Any) -> str:
    return entry if isinstance(entry, str) else json.dumps(entry)


def _file(content: str | bytes, says: tuple[str, ...]) -> Row:
    return Row("infer", _RUN, 2, says, files={"p.jsonl": content}, name=f"prompts {says[0]}")


_STEERING = {"prompt": "a", "id": "\x1b[2J\x07\n| id", "task": "\x1b]0;owned\x07\u202etask"}

ROWS = [
    *(
        Row("infer", _RUN, 2, ("prompt file 'p.jsonl': line 1:", *says), files={"p.jsonl": _line(entry)}, name=says[0])
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
    Row("infer", _DIR, 2, ("folder 'sets' cannot be read: No such file or directory; expected files NAME.jsonl",)),
    Row("infer", _DIR, 2, ("prompt folder 'sets' cannot be read: Not a directory",), files={"sets": ""}),
    Row("infer", _DIR, 2, ("'sets' holds 'a.txt'; expected either files NAME.jsonl",), files={"sets/a.txt": ""}),
    Row("infer", _DIR, 2, ("holds 'a.jsonl' and 'b/question.jsonl'; expected either",),
        files={"sets/a.jsonl": '{"data": "a"}', "sets/b/question.jsonl": '{"turns": ["a"]}'}),
    Row("infer", _DIR, 2, ("a.jsonl' cannot be read", "b.jsonl': line 1: not JSON"),
        files={"sets/a.jsonl": b"\xff\xfe", "sets/b.jsonl": "{"}, name="two bad files of a folder"),
    Row("infer", _DIR, 2, ("a.jsonl' holds no prompt",), files={"sets/a.jsonl": ""}),
    Row("infer", _DIR, 0, ("\\x1b[2J:1",), files={"sets/\x1b[2J.jsonl": '{"data": "a"}'}, name="a set that steers"),
    Row("infer", ("run", "--prompts-dir", "nul\x00"), 2, ("prompts_dir: 'nul\\x00' given; expected a path",)),
    Row("infer", ("run", "--prompts-dir", ""), 2, ("prompts_dir: '' given; expected a path",)),
    Row("infer", ("run", "--prompts-dir", "a", "--prompt", "b"), 2, ("--prompt and --prompts-dir: expected one of",)),
    Row("infer", ("run", "--prompts", "none.jsonl"), 2, ("'none.jsonl' cannot be read: No such file",)),
    Row("infer", ("run", "--prompts", "."), 2, ("'.' cannot be read: Is a directory",)),
    Row("infer", ("run", "--prompts", "~nouser/p.jsonl"), 2, ("'~nouser/p.jsonl' cannot be read",)),
    Row("infer", ("run", "--prompts", "n" * 5000), 2, ("cannot be read: File name too long",)),
    Row("infer", ("run", "--prompts", "\x1b[2J"), 2, ("'\\x1b[2J' cannot be read",)),
    Row("infer", ("run", "--prompts", "nul\x00"), 2, ("--prompts", "embedded null byte")),
    Row("infer", (*_RUN, "--seed", "3"), 0, ("\\x1b[2J\\x07\\n| id",), files={"p.jsonl": json.dumps(_STEERING)}),
    Row("infer", (*_RUN, "--json"), 0, ('"task": "\\u001b]0;owned',), files={"p.jsonl": json.dumps(_STEERING)}),
    Row("infer", _RUN, 0, ("prompt [/nope]",), files={"p.jsonl": '{"prompt": "a", "id": "[/nope]"}'}),
    Row("infer", _RUN, 1, ("400,000 characters; expected at most 51,200", "target failed"),
        files={"p.jsonl": json.dumps({"prompt": "word" * 100_000})}, name="a prompt that no context holds"),
    Row("infer", _RUN, 1, ("51,201 characters; expected at most 51,200",),
        files={"p.jsonl": json.dumps({"turns": ["a" * 51_201, "b"]})}, name="a turn that no context holds"),
    Row("infer", _RUN, 1, ("tokens; the context window of 512 leaves no room",),
        files={"p.jsonl": json.dumps({"prompt": "a b" * 1000})}, name="a prompt that is too long"),
]  # fmt: skip
