"""Bad inputs, over every door of the program: what each is told, and that nothing else happens.

A row is a door, what is brought to it, the exit status and what the message quotes. For each row the one test in
`test_doors.py` sees to it that

- the exit status is the expected one, and no traceback is shown or logged;
- the message quotes what was given, and what was expected;
- no line is longer than 400 characters, and no control character reaches the terminal;
- no file of the row's folder has changed, but for those that the row says it `makes`.

Rows stand in the modules of this folder, as a list `ROWS`; every module that has one is collected. To add rows, add a
module, or lines to the one of the same room:

    from tests.hostile.row import Row

    ROWS = [
        Row("infer", ("run", "--prompt", "a", "--length", "0"), 2, ("length: '0'", 1)),
        Row("infer", ("run", "--prompts", "p.jsonl"), 2, ("line 1: not JSON",), files={"p.jsonl": "{"}),
        Row("session", ("/gamma x",), 1, ("gamma: 'x'", 0)),
        Row("infer", ("run", "--target", "{tiny}", "--prompt", "a"), 0, ("target",)),
        Row("python", lambda folder: read_prompts(folder / "none.jsonl"), 2, ("cannot be read",)),
    ]

The doors are in `doors.py`. Without `--target` a tiny pair is loaded; `{tiny}` is the folder of a tiny checkpoint,
`{folder}` the row's own. A row must cost milliseconds: all of this folder takes less than a minute in one process.
"""
