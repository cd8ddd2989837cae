"""Plans: files, names, and what a command line says in their place."""

import json

from tests.hostile.row import Row

_METHODS = '[[methods]]\nmethod = "speculative"\n'
_PROMPTS = {"mine.jsonl": '{"prompt": "a"}\n'}
_HEAD = 'prompts = ["mine.jsonl"]\nlimit = 1\nlength = 2\n'


def _plan(text: str | bytes, *says: str, status: int = 2, name: str = "") -> Row:
    """A plan file, looked at."""
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return Row(
        "ablate", ("p.toml", "--dry-run"), status, says, files={**_PROMPTS, "p.toml": content}, name=name or says[0]
    )


def _line(line: str, *says: str) -> Row:
    return _plan(f"{_HEAD}{line}\n{_METHODS}", *says)


def _flag(*flags: str, says: tuple[str, ...]) -> Row:
    return Row("ablate", ("quick", "--dry-run", *flags), 2, says)


def _session(name: str, *says: str) -> Row:
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
    Row("ablate", ("quik",), 2, ("unknown plan 'quik'", "Did you mean 'quick'? A .toml file also works")),
    Row("ablate", ("",), 2, ("unknown plan ''",)),
    Row("ablate", ("../quick",), 2, ("unknown plan '../quick'",)),
    Row("ablate", ("q" * 5_000_000,), 2, ("unknown plan 'qqq", "(5,000,000 characters)")),
    Row("ablate", ("none.toml",), 2, ("plan 'none.toml' cannot be read: No such file",)),
    Row("ablate", ("~nouser/p.toml",), 2, ("plan: '~nouser/p.toml' given: could not determine home directory",)),
    Row("ablate", ("n" * 5000 + ".toml",), 2, ("File name too long",)),
    Row("ablate", ("quick", "gamma"), 2, ("'gamma' given; expected nothing there",)),
    Row("session", ("/ablate quik",), 1, ("unknown plan 'quik'", "Did you mean 'quick'?")),
    Row("session", ("/ablate ~nouser/p.toml",), 1, ("could not determine home directory",)),
    Row("session", ("/ablate nul\x00.toml",), 1, ("plan: 'nul\\x00.toml' given; expected a path",)),
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
    _plan(f"prompts = ['mine.jsonl']\nlength = 0x{'f' * 5000}\n{_METHODS}", "line 2: length: a int given"),
    _plan(f"prompts = ['mine.jsonl']\nlength = {'9' * 4000}\n{_METHODS}", "line 2: length: '999", "(4,000 characters)"),
    _plan(".".join("a" * 2000) + " = 3", "unknown key 'a'", name="a key of many dots"),
    _plan("#" * 2_000_000, "2,000,000 bytes given; expected at most 1,000,000", name="a plan of 2 MB"),
    _plan('"""\n[' + " " * 20_000 + '\n"""', "is not TOML", name="spaces"),
    _plan(f'{_HEAD}x = """\n[{" " * 20_000}\n"""\n{_METHODS}', "unknown key 'x'", name="a header of spaces"),
    _plan("".join(f"k{place} = 1\n" for place in range(20_000)), "line 1: unknown key 'k0'", "and 19990 more"),
    # names
    *(_line(f"name = {json.dumps(name)}", "line 4: name: ") for name in _NAMES),
    *(_session(name, "name: ", "expected a name for files") for name in _NAMES),
    _line("name = 3", "name: 3 given; expected a text"),
    _line("name = ['a']", "name: ['a'] given"),
    Row("ablate", ("a\nb.toml", "--dry-run"), 2, ("name: 'a\\nb' given; expected a name for files",),
        files={**_PROMPTS, "a\nb.toml": _HEAD + _METHODS}),
    # values
    _line("lenght = 3", "line 4: unknown key 'lenght'", "Did you mean 'length'?"),
    _line(f"{'k' * 100_000} = 3", "unknown key 'kkk", "(100,000 characters)"),
    _line("'\\u001b[2J' = 3", "unknown key '\\\\u001b[2J'"),
    _line('"\\u001b[2J" = 3', "unknown key '\\x1b[2J'"),
    _line("seeds = '1_0'", "seeds: '1_0' given"),
    _line("seeds = ' 3'", "seeds: ' 3' given"),
    _line("seeds = 1001", "seeds: '1001' given; expected an integer from 1 to 1000"),
    _line("seeds = [1, 1]", "seed: 1 is given twice"),
    _line(f"seeds = {[1] * 50_000}", "seed: 1 is given twice"),
    _line("seeds = []", "seed: an empty list given"),
    _line("seeds = 1979-05-27", "seeds: datetime.date(1979, 5, 27) given"),
    _line("repeats = nan", "repeats: 'nan' given"),
    _line("repeats = inf", "repeats: 'inf' given"),
    _line("repeats = 1e3", "repeats: '1000.0' given"),
    _line("repeats = true", "repeats: 'true' given"),
    _line("control = 2", "control: '2' given; expected on or off"),
    _line("processors = [['greedy']]", "processor: ['greedy'] given"),
    _line("processors = 'nucleus nan 0.5'", "temperature: 'nan' given"),
    _line("pair = 3", "pair: 3 given; expected a [pair] table"),
    _line("settings = []", "settings: [] given; expected a [settings] table"),
    _line("methods = 3", "is not TOML"),
    _plan(_HEAD + "methods = 3", "expected a [[methods]] table for each method"),
    _plan(_HEAD + "[methods]\nmethod = 'mtp'", "expected a [[methods]] table for each method", name="one table"),
    _plan(_HEAD + "[[methods]]", "method is missing"),
    _plan(_HEAD + "[[methods]]\nmethod = 3", "unknown method '3'"),
    _plan(_HEAD + "[[methods]]\nmethod = ['mtp']", "method: ['mtp'] given"),
    _plan(_HEAD + _METHODS + "gamma = [2, 2]", "gamma: 2 is given twice"),
    _plan(_HEAD + _METHODS + "gamma = []", "gamma: an empty list given"),
    _plan(_HEAD + _METHODS + "gamma = {a = 1}", "gamma: {'a': 1} given"),
    _plan(_HEAD + _METHODS + "gamma = '٣'", "gamma: '٣' given"),
    _plan(_HEAD + _METHODS + _METHODS, "is already in the table of line"),
    _plan(_HEAD + "[pair]\ntarget = ''\n" + _METHODS, "target: '' given"),
    _plan(_HEAD + "[pair]\ndtype = 'f8'\n" + _METHODS, "unknown dtype 'f8'"),
    _plan(_HEAD + "[settings]\nlength = 3\n" + _METHODS, "length is not a setting of all configurations"),
    _plan(_HEAD + "[settings]\nchat = 'maybe'\n" + _METHODS, "chat: 'maybe' given; expected on or off"),
    # size
    _plan(
        f"{_HEAD}[[methods]]\nmethod = 'suffix'\n"
        + "".join(f"{name} = {list(range(2, 102))}\n" for name in _MANY),
        "multiply out to 1,000,000 configurations; expected at most 10,000",
    ),
    _flag("--methods", "suffix", *_EACH, says=("multiply out to 1,000,000 configurations",)),
    # prompts
    _plan("prompts = ['dialoge']\n" + _METHODS, "unknown prompt set 'dialoge'", "Did you mean 'dialogue'?"),
    _plan("prompts = ['nul\\u0000.jsonl']\n" + _METHODS, "nul\\\\u0000.jsonl' cannot be read"),
    _plan('prompts = ["nul\\u0000.jsonl"]\n' + _METHODS, "prompts: 'nul\\x00.jsonl' given; expected a path"),
    _plan("prompts = ['~nouser/p.jsonl']\n" + _METHODS, "could not determine home directory"),
    _plan("prompts = ['none.jsonl']\n" + _METHODS, "line 1: prompt file", "cannot be read"),
    _plan("prompts = ['.']\n" + _METHODS, "unknown prompt set '.'"),
    _plan("prompts = 'mine.jsonl'\nprompts = 'mine.jsonl'\n" + _METHODS, "is not TOML"),
    _plan(f"prompts = ['{'n' * 5000}.jsonl']\n" + _METHODS, "File name too long"),
    # in place of the file
    _flag("--prompt", "a", "--prompts", "code", says=("--prompt and --prompts: expected one of them",)),
    _flag("--prompt", "", says=("--prompt: '' given",)),
    _flag("--prompts", "nul\x00", says=("prompts: 'nul\\x00' given",)),
    _flag("--seeds", "1_0", says=("--seeds: '1_0' given; expected an integer of 1 or more",)),
    _flag("--seeds", "0", says=("--seeds: '0' given",)),
    _flag("--seeds", "5000", says=("seeds: '5000' given; expected an integer from 1 to 1000",)),
    _flag("--limit", "٣", says=("--limit: '٣' given",)),
    _flag("--wait-quiet", "nan", says=("--wait-quiet: 'nan' given; expected a number of 0 or more",)),
    _flag("--wait-quiet", "inf", says=("--wait-quiet: 'inf' given",)),
    _flag("--wait-quiet", "-1", says=("--wait-quiet: '-1' given",)),
    _flag("--wait-quiet", "1_0.5", says=("--wait-quiet: '1_0.5' given",)),
    _flag("--gamma", "2,2", says=("gamma: 2 is given twice",)),
    _flag("--gamma", "2,,3", says=("gamma: '' given",)),
    _flag("--gamma", "2", "--gamma", "3", says=("--gamma is given 2 times",)),
    _flag("--gamma", "2", "--set", "gamma=3", says=("gamma is given twice, as '2' and '3'",)),
    _flag("--set", "gamma=2", "--set", "gamma=2", says=("gamma is given twice",)),
    _flag("--set", "gama=2", says=("unknown setting 'gama'", "Did you mean 'gamma'?")),
    _flag("--set", "length=2", says=("use --length",)),
    _flag("--set", "num_beams=2", says=("num_beams: no method of the plan has it",)),
    _flag("--processor", "greedy", "--processor", "greedy", says=("processor: greedy is given twice",)),
    _flag("--methods", "speculative,mtpp", says=("unknown method 'mtpp'",)),
    # where results go
    *(
        Row("ablate", ("quick", "--out", out, *flags), 2, says, files={"notes.csv": "mine\n", "r.csv": ""})
        for out, flags, says in (
            (".", (), ("--out '.' is a folder; expected a file",)),
            ("r.txt", (), ("expected a file that ends in .csv",)),
            ("none/r.csv", (), ("there is no folder 'none'",)),
            ("notes.csv", ("--overwrite",), ("exists and is not a results file; it was left alone",)),
            ("notes.csv", ("--resume",), ("exists and is not a results file; it was left alone",)),
            ("r.csv", (), ("give --resume to continue it, --overwrite to replace it",)),
            ("r.csv", ("--resume", "--overwrite"), ("--resume and --overwrite: expected one of them",)),
            ("\x1b[2J.txt", (), ("'\\x1b[2J.txt' given",)),
            ("n" * 5000 + ".csv", (), ("File name too long",)),
        )
    ),
]  # fmt: skip
