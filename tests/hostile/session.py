"""Lines of the session: commands, prompts, scripts and the files that they name."""

import json

from tests.hostile.row import Content, Row


def _line(line: str, *says: object, files: dict[str, Content] | None = None, name: str = "") -> Row:
    return Row("session", (line,), 1, says, files=files or {}, name=name or line[:60])


def _script(content: str | bytes, *says: object, status: int = 1) -> Row:
    return Row("script", ("s.txt",), status, says, files={"s.txt": content}, name=str(says[0]) if says else "script")


def _counts(content: str | bytes, *says: object) -> Row:
    return _line("/ngram_load c.ngrams", *says, files={"c.ngrams": content}, name=f"counts {says[0][:50]}")


# What may be on once a pair has decided, whenever that is.
ON = ("target", "speculative", "ngram", "suffix", "suffix_or_model", "auto")
_HEAD = {"format": "n-gram counts", "version": 1, "storage": "basic", "n": 3, "vocabulary": "x", "contexts": 0}

ROWS = [
    # commands
    _line("/", "command", "'/'", "/help all lists them"),
    _line("//", "command", "'//'"),
    _line("/nope", "command", "'/nope'"),
    _line("/gama 3", "command", "'/gama'", "/gamma"),
    _line("/" + "x" * 5_000_000, "command", "'/xxx", "characters)"),
    _line("/\x1b[2J", "command", "'/\\x1b[2J'"),
    _line("/help nope", "command", "'nope'"),
    _line("/help " + "n" * 1_000_000, "characters)"),
    _line("/status now", "/status: 'now'"),
    _line("/clear " + "x" * 100_000, "(100,000 characters)"),
    _line("/quit now", "/quit: 'now'"),
    _line("/results all", "/results: 'all'"),
    _line("/results", "there are no results yet; run /ablate first"),
    # settings
    _line("/gamma -1", "gamma: '-1'", 0),
    _line("/gamma 1_0", "gamma: '1_0'"),
    _line("/gamma ٣", "gamma: '٣'"),
    _line("/gamma 3 4", "gamma: '3 4'"),
    _line("/gamma " + "9" * 5000, "(5,000 characters)"),
    _line("/gamma \x1b[2J", "gamma: '\\x1b[2J'"),
    _line("/length 0", "length: '0'", 1),
    _line("/length " + "1" * 5_000_000, "(5,000,000 characters)"),
    _line("/seed 1e3", "seed: '1e3'"),
    _line("/min_token_prob nan", "min_token_prob: 'nan'"),
    _line("/processor nuclues 1", "'nucleus'"),
    _line("/processor nucleus 1_0 0.9", "temperature: '1_0'"),
    _line("/egag_gamma_min 9", "egag_gamma_min 9 is above egag_gamma_max 6"),
    _line("/debug maybe", "debug: 'maybe'", "on", "off"),
    _line("/target maybe", "target: 'maybe'", "on", "off"),
    # methods
    _line("/method", "target", "beam"),
    _line("/method mtpp", "'mtp'"),
    _line("/add", "/add"),
    _line("/add mtpp gamma=1", "method", "'mtpp'"),
    _line("/add mtp gamma=x", "gamma: 'x'"),
    _line("/add mtp gamma=1 gamma=2", "gamma", "twice"),
    _line("/add mtp gamma=1, mtp gamma=1", "'mtp gamma=1'", "twice"),
    _line("/add ngram set_ngramstorage='x", "a quote is not closed"),
    _line("/add " + "mtp gamma=1 " * 100_000, "at most 2,000 characters"),
    _line("/add speculative gamma=1" + " " * 500_000 + "x", "at most 2,000 characters"),
    Row("session", ("/add ngram gamma=1", "/add ngram gamma=1"), 1, ("'ngram gamma=1' is already there",)),
    _line("/drop", "run", "''"),
    _line("/drop mtp gamma=7", "run", "'mtp gamma=7'"),
    _line("/drop " + "d" * 1_000_000, "run", "'ddd", "(1,000,000 characters)"),
    _line("/drop '", "unknown run"),
    # files
    _line("/load", "/load FILE"),
    _line("/load none.txt", "cannot read none.txt: No such file or directory"),
    _line("/load .", "cannot read .: Is a directory"),
    _line("/load nul\x00.txt", "/load: 'nul\\x00.txt'"),
    _line("/load ~nouser/s.txt", "/load: '~nouser/s.txt' given: could not determine home directory"),
    _line("/load " + "n" * 5000, "File name too long"),
    _line("/load \x1b[2J", "cannot read \\x1b[2J"),
    _line("/load b.bin", "b.bin is not a text file", files={"b.bin": b"GGUF\xff\xfe\x00"}),
    _line("/load s.txt", "a script cannot /load another one", files={"s.txt": "/load s.txt\n"}),
    _line("/save", "/save FILE"),
    _line("/save none/s.txt", "cannot save to none/s.txt: No such file"),
    _line("/save nul\x00", "/save: 'nul\\x00'"),
    _line("/save half\ud800", "holds half a character"),
    _line("/save ~nouser/s", "could not determine home directory"),
    _line("/save " + "n" * 5000, "File name too long"),
    _line("/save .", "cannot save to ."),
    _line("/save mine.txt", "mine.txt exists and is not a saved session", files={"mine.txt": "mine"}),
    _line("/ngram_save c", "NASD has counted nothing yet"),
    _line("/ngram_save nul\x00", "/ngram_save: 'nul\\x00'"),
    _line("/ngram_load none", "none cannot be read: No such file"),
    _line("/ngram_load .", ". cannot be read: Is a directory"),
    _line("/ngram_load nul\x00", "/ngram_load: 'nul\\x00'"),
    _line("/ngram_load ~nouser/c", "could not determine home directory"),
    # saved counts
    _counts("", "c.ngrams: line 1: not JSON"),
    _counts(b"\xff\xfe", "c.ngrams cannot be read"),
    _counts("[" * 50_000, "c.ngrams: line 1: not JSON"),
    _counts("null", "not a file of n-gram counts"),
    _counts("{}", "not a file of n-gram counts"),
    _counts(json.dumps({**_HEAD, "version": 2}), "not a file of n-gram counts"),
    _counts(json.dumps(_HEAD), "its counts are for a different tokenizer"),
    # prompts
    _line("word " * 1_000_000, "4,999,999 characters", "51,200", name="a line of 5 MB"),
    _line("a b" * 1000, "tokens; the context window of 512 leaves no room", name="a line that is too long"),
    Row("session", (*(f"/{name} off" for name in ON), "hello"), 1, ("no method is on",)),
    Row("session", ("\x1b[2J\x07 hello \u202e",), 0, ("[AR]",), name="a prompt that steers"),
    # scripts
    Row("script", ("none.txt",), 2, ("cannot read none.txt: No such file", "script")),
    Row("script", (".",), 2, ("cannot read .: Is a directory",)),
    Row("script", ("~nouser/s.txt",), 2, ("cannot read ~nouser/s.txt",)),
    Row("script", ("n" * 5000,), 2, ("File name too long",)),
    _script(b"GGUF\xff\xfe\x00", "is not a text file", status=2),
    _script("/gamma x\n/gamma y\n", "s.txt:1: gamma: 'x'", "s.txt:2: gamma: 'y'"),
    _script("\ufeff/gamma x\n", "s.txt:1: gamma: 'x'"),
    _script("/gamma 3\r\n/gamma x\r\n", "s.txt:2: gamma: 'x'"),
    _script("/gama\n" * 50, "s.txt:50: unknown command '/gama'"),
    _script("/load s.txt\n", "a script cannot /load another one"),
    _script("/" + "x" * 1_000_000 + "\n", "command", "'/xxx"),
    _script("word " * 1_000_000, "4,999,999 characters", "51,200"),
    _script("/ablate p.toml\n", "cannot be read"),
]  # fmt: skip
