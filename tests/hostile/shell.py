"""Flags of the commands."""

from tests.hostile.row import Row

_RUN = ("run", "--prompt", "a")
_SETTING = "names, which `infer.py methods` and `/help all` list"


def _wrong(*flags: str, says: tuple[object, ...]) -> Row:
    return Row("infer", (*_RUN, *flags), 2, says, never=("Usage:",))


ROWS = [
    # what is not there
    Row("infer", ("/nope",), 2, ("command", "'/nope'", "one of demo, run, ablate, selftest, invariance, audit")),
    Row("infer", ("rnu",), 2, ("command", "'rnu'", "'run'")),
    Row("infer", ("x" * 5_000_000,), 2, ("command", "'xxx", "(5,000,000 characters)")),
    Row("infer", ("run", "extra"), 2, ("'extra'",)),
    Row("infer", ("run", "--", "--prompt"), 2, ("'--prompt'",)),
    Row("infer", ("run",), 2, ("--prompt", "--prompts")),
    Row("infer", ("methods", "mtpp"), 2, ("method", "'mtpp'", "'mtp'")),
    Row("infer", ("methods", ""), 2, ("method", "''")),
    Row("infer", ("methods", "mtp", "egag"), 2, ("'egag'",)),
    Row("infer", ("methods", "\x1b[2J"), 2, ("method", "'\\x1b[2J'")),
    Row("infer", ("selftest", "--methods", "mtpp"), 2, ("method", "'mtpp'")),
    Row("infer", ("selftest", "--prompt", "a"), 2, ("option", "'--prompt'")),
    Row("infer", ("quality", "--formats", "int9"), 2, ("format", "'int9'", "int8, int4")),
    Row("infer", ("quality", "--formats", ""), 2, ("format", "''")),
    Row("infer", ("quality", "--formats", "int8,full"), 2, ("'int8,full'", "int8, int4")),
    Row("infer", ("quality", "--formats", "int8,int8"), 2, ("int8", 2)),
    Row("infer", ("quality", "--limit", "0"), 2, ("--limit: '0'", 1)),
    Row("infer", ("quality", "--length", "x"), 2, ("--length: 'x'", 1)),
    Row("infer", ("quality", "--prompts", "dialog"), 2, ("prompt set", "'dialog'", "'dialogue'")),
    Row("infer", ("quality", "--dtype", "float23"), 2, ("float32",)),
    Row("infer", ("quality", "--drafter", "x"), 2, ("option", "'--drafter'")),
    Row("infer", ("quality", "--output", "no/such/f.jsonl"), 2, ("cannot be written", "no folder")),
    Row("infer", ("quality", "--output", "."), 2, ("'.'",)),
    Row("infer", ("audit",), 2, ("URL", "--engine", "--plan")),
    Row("infer", ("audit", "http://h:1", "--engine", "transformers"), 2, ("URL", "--engine", "--plan")),
    Row("infer", ("audit", "--engine", "vllm=http://h:1"), 2, ("'vllm=http://h:1'", "vllm target=")),
    Row("infer", ("audit", "h:1"), 2, ("'h:1'", "http://HOST:PORT")),
    Row("infer", ("audit", "--engine", "transformers", "--methods", "mtpp"), 2, ("method", "'mtpp'")),
    Row("infer", ("audit", "--engine", "transformers", "--methods", "speculative"), 2, ("target",)),
    Row("infer", ("audit", "--engine", "transformers", "--draws", "3"), 2, ("--draws: '3'", 50)),
    Row("infer", ("audit", "--engine", "transformers", "--level", "2"), 2, ("--level: '2.0'", 0, 1)),
    Row("infer", ("audit", "--engine", "transformers", "--processors", "topk 1"), 2, ("topk",)),
    Row("infer", ("audit", "--engine", "transformers", "--processors", "greedy"), 2, ("greedy",)),
    Row("infer", ("audit", "--engine", "transformers", "--output", "a.txt"), 2, ("'a.txt'", ".jsonl")),
    Row("infer", ("profile", "--seconds", "-1"), 2, ("--seconds: '-1'", 0)),
    Row("infer", ("profile", "--refrsh"), 2, ("'--refresh'",)),
    Row("infer", ("--nope",), 2, ("option", "'--nope'")),
    Row("infer", ("--scrip", "x"), 2, ("option", "'--scrip'", "'--script'")),
    _wrong("--nope", "3", says=("option", "'--nope'", "run --help")),
    _wrong("--jsn", says=("'--json'",)),
    _wrong("--" + "n" * 100_000, says=("option", "'--nnn", "characters)")),
    _wrong("--json=3", says=("'--json' does not take a value",)),
    _wrong("--length", says=("'--length' requires an argument",)),
    _wrong("-l", "3", says=("option", "'-l'")),
    # what stands at the wrong place is not passed over
    Row("infer", ("--target", "x", *_RUN), 2, ("--target given before run",)),
    Row("infer", ("--trust-remote-code", *_RUN), 2, ("--trust-remote-code given before run",)),
    Row("infer", ("--script", "x", *_RUN), 2, ("--script given before run",)),
    # numbers
    *(
        _wrong("--repeat", text, says=(f"--repeat: {text!r}", 1))
        for text in ("0", "-1", "x", "", " ", "1.5", "1e3", "1_0", " 3", "3 ", "٣", "３", "0x10", "nan", "inf", "--")
    ),
    _wrong("--repeat", "9" * 5000, says=("--repeat: '999", "(5,000 characters)", "an integer of 1 or more")),
    _wrong("--repeat=\x1b[2J", says=("--repeat: '\\x1b[2J'",)),
    *(_wrong("--length", text, says=(f"--length: {text!r}",)) for text in ("1_0", " 10", "٣", "1.0")),
    _wrong("--length", "0", says=("length: '0'", 1)),
    _wrong("--length", "-3", says=("length: '-3'",)),
    _wrong("--length", "9" * 30, says=("length: '999", 10_000_000)),
    _wrong("--seed", "-1", says=("seed: '-1'", 0)),
    _wrong("--seed", "True", says=("--seed: 'True'",)),
    _wrong("--seed", "4" * 4000, says=("seed: '444", "(4,000 characters)")),
    # the same twice
    _wrong("--prompt", "b", says=("--prompt", 2)),
    _wrong("--length", "3", "--length", "4", says=("--length", 2)),
    _wrong("--json", "--json", says=("--json", 2)),
    _wrong("--seed", "1", "--seed", "2", "--seed", "3", says=("--seed", 3)),
    _wrong("--set", "gamma=2", "--set", "gamma=3", says=("gamma", "'2'", "'3'")),
    _wrong("--set", "gamma=2", "--set", "gamma=2", says=("gamma", "twice")),
    _wrong("--set", "length=2", "--length", "3", says=("length", "'2'", "'3'")),
    Row("infer", ("--script", "a", "--script", "b"), 2, ("--script", 2)),
    Row("infer", ("--target", "a", "--target", "b"), 2, ("--target", 2)),
    # settings
    _wrong("--set", "gama=2", says=("setting", "'gama'", _SETTING, "'gamma'")),
    _wrong("--set", "GAMMA=2", says=("setting", "'GAMMA'")),
    _wrong("--set", "=2", says=("setting", "''")),
    _wrong("--set", "", says=("setting", "''")),
    _wrong("--set", "gamma", says=("--set 'gamma'", "gamma=VALUE")),
    _wrong("--set", "gamma=", says=("gamma: ''", 0)),
    _wrong("--set", "gamma=2=3", says=("gamma: '2=3'",)),
    _wrong("--set", "gamma=٣", says=("gamma: '٣'",)),
    _wrong("--set", "gamma=1_0", says=("gamma: '1_0'",)),
    _wrong("--set", "gamma= 10", says=("gamma: ' 10'",)),
    _wrong("--set", "gamma=+", says=("gamma: '+'",)),
    _wrong("--set", "gamma=" + "1" * 5_000_000, says=("gamma: '111", "(5,000,000 characters)")),
    _wrong("--set", "g" * 5_000_000 + "=2", says=("setting", "'ggg", "(5,000,000 characters)")),
    *(
        _wrong("--set", f"min_token_prob={text}", says=(f"min_token_prob: {text!r}", "0 <= NUMBER <= 1"))
        for text in ("nan", "inf", "-inf", "1e400", "1_0.5", "٠.5", "0x1p-1", "1,5", "infinity", "-0.1", ".", "e5")
    ),
    _wrong("--set", "cache=maybe", says=("cache: 'maybe'", "on", "off")),
    _wrong("--set", "verify_strategy=rejecton", says=("'rejecton'", "'rejection'")),
    _wrong("--set", "egag_gamma_min=9", says=("egag_gamma_min 9 is above egag_gamma_max 6",)),
    _wrong("--set", "gamma=\x1b]0;title\x07", says=("gamma: '\\x1b]0;title\\x07'",)),
    _wrong("--set", "set_ngramstorage=basic -3", says=("'-3'",)),
    _wrong("--set", "set_ngramstorage=", says=("unknown",)),
    # the chat template
    _wrong("--thinking", "maybe", says=("thinking 'maybe'", "auto, on, off")),
    _wrong("--thinking", "", says=("thinking ''",)),
    _wrong("--thinking", "on", says=("thinking on given", "reads neither enable_thinking nor thinking")),
    _wrong("--thinking", "on", "--set", "thinking=off", says=("thinking", "twice", "'off'", "'on'")),
    _wrong("--thinking", "on", "--set", "chat=off", says=("thinking on given", "without its chat template")),
    *(
        _wrong("--chat-template-kwargs", text, says=("chat_template_kwargs: ", "JSON object"))
        for text in ("", "x", "[]", "3", "null", "{a: 1}", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000)
    ),
    _wrong("--chat-template-kwargs", '{"a": "\\ud800"}', says=("chat_template_kwargs", "half a character")),
    _wrong("--chat-template-kwargs", '{"foo": 1}', says=("'foo'", "does not read")),
    _wrong("--chat-template-kwargs", '{"messages": []}', says=("'messages'", "does not read")),
    _wrong("--chat-template-kwargs", '{"\\u001b[2J": 1}', says=("'\\x1b[2J'",)),
    # processors
    _wrong("--processor", "", says=("unknown",)),
    _wrong("--processor", "nuclus 1 1", says=("'nucleus'",)),
    _wrong("--processor", "nucleus 0.8", says=("nucleus needs top_p",)),
    _wrong("--processor", "nucleus 0.8 0.9 1", says=("too many arguments",)),
    _wrong("--processor", "nucleus 0.8 " + "9 " * 100_000, says=("too many arguments in 'nucleus", "characters)")),
    _wrong("--processor", "nucleus temperature=1 temperature=2", says=("temperature", "twice")),
    _wrong("--processor", "nucleus temprature=1", says=("'temperature'",)),
    _wrong("--processor", "nucleus nan 0.9", says=("temperature: 'nan'",)),
    _wrong("--processor", "nucleus 1 1.5", says=("top_p: '1.5'",)),
    _wrong("--processor", "topk 1 0", says=("top_k: '0'",)),
    _wrong("--processor", "topk 1 1_0", says=("top_k: '1_0'",)),
    # methods
    _wrong("--methods", "", says=("target", "beam")),
    _wrong("--methods", ",,,", says=("target", "beam")),
    _wrong("--methods", "Target", says=("method", "'Target'", "target")),
    _wrong("--methods", "mtp gamma=1,mtp gamma=1", says=("'mtp gamma=1'", "twice")),
    _wrong("--methods", "mtp gamma=1 gamma=2", says=("gamma", "twice")),
    _wrong("--methods", "mtp gamma", says=("mtp: 'gamma'", "NAME=VALUE")),
    _wrong("--methods", "mtp gama=1", says=("parameter of mtp", "'gama'", "'gamma'")),
    _wrong("--methods", "mtp num_beams=1", says=("num_beams is not a parameter of mtp, it belongs to beam",)),
    _wrong("--methods", 'ngram set_ngramstorage="onelevel 4', says=("a quote is not closed",)),
    _wrong("--methods", "target gamma=1", says=("gamma is not a parameter of target", "none")),
    _wrong("--methods", "a" * 1_000_000, says=("methods: 'aaa", "at most 2,000 characters")),
    _wrong("--methods", "mtp gamma=1" + " " * 1_000_000 + "x=1", says=("at most 2,000 characters",)),
    _wrong("--methods", "\x00", says=("method", "'\\x00'")),
    # texts
    Row("infer", ("run", "--prompt", ""), 2, ("--prompt: ''",)),
    Row("infer", ("run", "--prompt", " \n\t"), 2, ("--prompt: ' \\n\\t'",)),
    Row("infer", ("run", "--prompt", "half \udcff"), 2, ("--prompt: 'half \\udcff' holds half a character at 5",)),
    Row("infer", ("run", "--prompt", "a " * 3_000_000, "--length", "2", "--methods", "target"), 1,
        ("6,000,000 characters", "51,200")),
    _wrong("--prompts", "b.jsonl", says=("--prompt", "--prompts")),
    # what is loaded
    _wrong("--dtype", "float8", says=("dtype", "'float8'", "auto, float32, bfloat16, float16")),
    _wrong("--kernel", "fast", says=("kernel", "'fast'", "auto, packed, plain")),
    _wrong("--target", "", says=("target: ''", "ID|DIR|FILE.gguf")),
    _wrong("--target", "/nope", says=("/nope: no such file or folder",)) ,
    _wrong("--target", "{folder}/nope/deeper", says=("nope/deeper: no such file or folder",)),
    _wrong("--target", "/no\x1bpe", says=("/no\\x1bpe: no such file or folder",)),
    _wrong("--target", "/" + "n" * 5000, says=("/nnn", "(5,001 characters)", "File name too long")),
    # traces
    _wrong("--trace", "none/t.jsonl", says=("'none/t.jsonl' cannot be written",)),
    _wrong("--trace", ".", says=("'.' cannot be written",)),
    Row("infer", (*_RUN, "--trace", "t.jsonl"), 2, ("t.jsonl", "trace"),
        files={"t.jsonl": "my notes\n"}),
    # scripts of the session
    Row("infer", ("--script", "none.txt"), 2, ("cannot read none.txt", "script")),
    Row("infer", ("--script", "."), 2, ("cannot read .",)),
]  # fmt: skip
