"""Plans: files, names, and what a command line says in their place."""

import json

from tests.hostile.row import Row

_METHODS = '[[methods]]\nmethod = "speculative"\n'
_PROMPTS = {"mine.jsonl": '{"prompt": "a"}\n'}
_HEAD = 'prompts = ["mine.jsonl"]\nlimit = 1\nlength = 2\n'


def _plan(text: str | bytes, *says: object, status: int = 2, name: str = "") -> Row:
    """A plan file, looked at."""
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return Row(
        "ablate",
        ("p.toml", "--dry-run"),
        status,
        says,
        files={**_PROMPTS, "p.toml": content},
        name=name or str(says[0]),
    )


def _line(line: str, *says: object) -> Row:
    return _plan(f"{_HEAD}{line}\n{_METHODS}", *says)


def _flag(*flags: str, says: tuple[object, ...]) -> Row:
    return Row("ablate", ("quick", "--dry-run", *flags), 2, says)


def _session(name: str, *says: object) -> Row:
    """A plan of this name in the session."""
    text = f"name = {json.dumps(name)}\n{_HEAD}{_METHODS}"
    return Row("session", ("/ablate p.toml",), 1, says, files={**_PROMPTS, "p.toml": text}, name=f"name {name[:30]}")


_NAMES = (
    "../../x",
    "/tmp/x",
    "a/b",
    "a\\b",
    "",
    " ",
    ".",
    "..",
    "a/",
    "a\nb",
    "a\x00b",
    "\x1b[2J",
    "x" * 101,
    "\u202ea",
)
_MANY = ("max_tree_depth", "max_cached_requests", "num_speculative_tokens")
_EACH = [f for name in _MANY for f in ("--set", f"{name}={','.join(map(str, range(2, 102)))}")]

ROWS = [
    # which plan
    Row("ablate", ("quik",), 2, ("plan", "'quik'", "'quick'", ".toml")),
    Row("ablate", ("",), 2, ("plan", "''")),
    Row("ablate", ("../quick",), 2, ("plan", "'../quick'")),
    Row("ablate", ("q" * 5_000_000,), 2, ("plan", "'qqq", "(5,000,000 characters)")),
    Row("ablate", ("none.toml",), 2, ("plan 'none.toml' cannot be read: No such file",)),
    Row("ablate", ("~nouser/p.toml",), 2, ("plan: '~nouser/p.toml' given: could not determine home directory",)),
    Row("ablate", ("n" * 5000 + ".toml",), 2, ("File name too long",)),
    Row("ablate", ("quick", "gamma"), 2, ("'gamma'",)),
    Row("session", ("/ablate quik",), 1, ("plan", "'quik'", "'quick'")),
    Row("session", ("/ablate ~nouser/p.toml",), 1, ("could not determine home directory",)),
    Row("session", ("/ablate nul\x00.toml",), 1, ("plan: 'nul\\x00.toml'",)),
    Row("session", ("/ablate none.toml",), 1, ("cannot be read: No such file",)),
    # no TOML
    _plan("= 3", "is not TOML"),
    _plan("length", "is not TOML"),
    _plan("length = 3\nlength = 4\n", "is not TOML: Cannot overwrite a value"),
    _plan(b"\xff\xfe", "cannot be read"),
    _plan(b"name = '\x00'", "is not TOML"),
    _plan("x = " + "[" * 50_000 + "]" * 50_000, "nested too deep", name="nested arrays"),
    _plan("x = " + "{a=" * 50_000 + "1" + "}" * 50_000, "nested too deep", name="nested tables"),
    _plan(_HEAD + "length = " + "9" * 5000, "is not TOML", name="a long number"),
    _plan(f"prompts = ['mine.jsonl']\nlength = 0x{'f' * 5000}\n{_METHODS}", "line 2: length: a int"),
    _plan(f"prompts = ['mine.jsonl']\nlength = {'9' * 4000}\n{_METHODS}", "line 2: length: '999", "(4,000 characters)"),
    _plan(".".join("a" * 2000) + " = 3", "key", "'a'", name="a key of many dots"),
    _plan("#" * 2_000_000, "2,000,000 bytes", "1,000,000", name="a plan of 2 MB"),
    _plan('"""\n[' + " " * 20_000 + '\n"""', "is not TOML", name="spaces"),
    _plan(f'{_HEAD}x = """\n[{" " * 20_000}\n"""\n{_METHODS}', "key", "'x'", name="a header of spaces"),
    _plan("".join(f"k{place} = 1\n" for place in range(20_000)), "line 1: unknown key 'k0'", "and 19990 more"),
    # names
    *(_line(f"name = {json.dumps(name)}", "line 4: name: ") for name in _NAMES),
    *(_session(name, "name: ", 100) for name in _NAMES),
    _line("name = 3", "name: 3"),
    _line("name = ['a']", "name: ['a']"),
    Row("ablate", ("a\nb.toml", "--dry-run"), 2, ("name: 'a\\nb'",),
        files={**_PROMPTS, "a\nb.toml": _HEAD + _METHODS}),
    # values
    _line("lenght = 3", "line 4: unknown key 'lenght'", "'length'"),
    _line(f"{'k' * 100_000} = 3", "key", "'kkk", "(100,000 characters)"),
    _line("'\\u001b[2J' = 3", "key", "'\\\\u001b[2J'"),
    _line('"\\u001b[2J" = 3', "key", "'\\x1b[2J'"),
    _line("seeds = '1_0'", "seeds: '1_0'"),
    _line("seeds = ' 3'", "seeds: ' 3'"),
    _line("seeds = 1001", "seeds: '1001'", 1, 1000),
    _line("seeds = [1, 1]", "seed: 1", "twice"),
    _line(f"seeds = {[1] * 50_000}", "seed: 1", "twice"),
    _line("seeds = []", "seed: an empty list"),
    _line("seeds = 1979-05-27", "seeds: datetime.date(1979, 5, 27)"),
    _line("repeats = nan", "repeats: 'nan'"),
    _line("repeats = inf", "repeats: 'inf'"),
    _line("repeats = 1e3", "repeats: '1000.0'"),
    _line("repeats = true", "repeats: 'true'"),
    _line("control = 2", "control: '2'", "on", "off"),
    _line("processors = [['greedy']]", "processor: ['greedy']"),
    _line("processors = 'nucleus nan 0.5'", "temperature: 'nan'"),
    _line("pair = 3", "pair: 3", "[pair]"),
    _line("settings = []", "settings: []", "[settings]"),
    _line("methods = 3", "is not TOML"),
    _plan(_HEAD + "methods = 3", "[[methods]]"),
    _plan(_HEAD + "[methods]\nmethod = 'mtp'", "[[methods]]", name="one table"),
    _plan(_HEAD + "[[methods]]", "method is missing"),
    _plan(_HEAD + "[[methods]]\nmethod = 3", "method", "'3'"),
    _plan(_HEAD + "[[methods]]\nmethod = ['mtp']", "method: ['mtp']"),
    _plan(_HEAD + _METHODS + "gamma = [2, 2]", "gamma: 2", "twice"),
    _plan(_HEAD + _METHODS + "gamma = []", "gamma: an empty list"),
    _plan(_HEAD + _METHODS + "gamma = {a = 1}", "gamma: {'a': 1}"),
    _plan(_HEAD + _METHODS + "gamma = '٣'", "gamma: '٣'"),
    _plan(_HEAD + _METHODS + _METHODS, "is already in the table of line"),
    _plan(_HEAD + "[pair]\ntarget = ''\n" + _METHODS, "target: ''"),
    _plan(_HEAD + "[pair]\ndtype = 'f8'\n" + _METHODS, "dtype", "'f8'"),
    _plan(_HEAD + "[settings]\nlength = 3\n" + _METHODS, "length is not a setting of all configurations"),
    _plan(_HEAD + "[settings]\nchat = 'maybe'\n" + _METHODS, "chat: 'maybe'", "on", "off"),
    # size
    _plan(
        f"{_HEAD}[[methods]]\nmethod = 'suffix'\n"
        + "".join(f"{name} = {list(range(2, 102))}\n" for name in _MANY),
        "multiply out to 1,000,000 configurations", "10,000",
    ),
    _flag("--methods", "suffix", *_EACH, says=("multiply out to 1,000,000 configurations",)),
    # prompts
    _plan("prompts = ['dialoge']\n" + _METHODS, "prompt set", "'dialoge'", "'dialogue'"),
    _plan("prompts = ['nul\\u0000.jsonl']\n" + _METHODS, "nul\\\\u0000.jsonl' cannot be read"),
    _plan('prompts = ["nul\\u0000.jsonl"]\n' + _METHODS, "prompts: 'nul\\x00.jsonl'"),
    _plan("prompts = ['~nouser/p.jsonl']\n" + _METHODS, "could not determine home directory"),
    _plan("prompts = ['none.jsonl']\n" + _METHODS, "line 1: prompt file", "cannot be read"),
    _plan("prompts = ['.']\n" + _METHODS, "prompt set", "'.'"),
    _plan("prompts = 'mine.jsonl'\nprompts = 'mine.jsonl'\n" + _METHODS, "is not TOML"),
    _plan(f"prompts = ['{'n' * 5000}.jsonl']\n" + _METHODS, "File name too long"),
    # in place of the file
    _flag("--prompt", "a", "--prompts", "code", says=("--prompt", "--prompts")),
    _flag("--prompt", "", says=("--prompt: ''",)),
    _flag("--prompts", "nul\x00", says=("prompts: 'nul\\x00'",)),
    _flag("--seeds", "1_0", says=("--seeds: '1_0'", 1)),
    _flag("--seeds", "0", says=("--seeds: '0'",)),
    _flag("--seeds", "5000", says=("seeds: '5000'", 1, 1000)),
    _flag("--limit", "٣", says=("--limit: '٣'",)),
    _flag("--wait-quiet", "nan", says=("--wait-quiet: 'nan'", 0)),
    _flag("--wait-quiet", "inf", says=("--wait-quiet: 'inf'",)),
    _flag("--wait-quiet", "-1", says=("--wait-quiet: '-1'",)),
    _flag("--wait-quiet", "1_0.5", says=("--wait-quiet: '1_0.5'",)),
    _flag("--gamma", "2,2", says=("gamma: 2", "twice")),
    _flag("--gamma", "2,,3", says=("gamma: ''",)),
    _flag("--gamma", "2", "--gamma", "3", says=("--gamma", 2)),
    _flag("--gamma", "2", "--set", "gamma=3", says=("gamma", "'2'", "'3'")),
    _flag("--set", "gamma=2", "--set", "gamma=2", says=("gamma", "twice")),
    _flag("--set", "gama=2", says=("setting", "'gama'", "'gamma'")),
    _flag("--set", "length=2", says=("use --length",)),
    _flag("--set", "num_beams=2", says=("num_beams: no method of the plan has it",)),
    _flag("--processor", "greedy", "--processor", "greedy", says=("processor: greedy", "twice")),
    _flag("--methods", "speculative,mtpp", says=("method", "'mtpp'")),
    # where results go
    *(
        Row("ablate", ("quick", "--out", out, *flags), 2, says, files={"notes.csv": "mine\n", "r.csv": ""})
        for out, flags, says in (
            (".", (), ("--out '.' is a folder",)),
            ("r.txt", (), (".csv",)),
            ("none/r.csv", (), ("there is no folder 'none'",)),
            ("notes.csv", ("--overwrite",), ("notes.csv", "results file")),
            ("notes.csv", ("--resume",), ("notes.csv", "results file")),
            ("r.csv", (), ("give --resume to continue it, --overwrite to replace it",)),
            ("r.csv", ("--resume", "--overwrite"), ("--resume", "--overwrite")),
            ("\x1b[2J.txt", (), ("'\\x1b[2J.txt'",)),
            ("n" * 5000 + ".csv", (), ("File name too long",)),
        )
    ),
]  # fmt: skip
