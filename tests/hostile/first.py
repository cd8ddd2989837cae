"""One row a door."""

from ablation.plan.prompt_file import read_prompts
from tests.hostile.row import Row

ROWS = [
    Row("infer", ("run", "--prompt", "a", "--length", "0"), 2, ("length: '0' given", "1 or more")),
    Row("infer", ("run", "--prompts", "p.jsonl"), 2, ("line 1: not JSON",), files={"p.jsonl": "{"}),
    Row("infer", ("run", "--target", "{tiny}", "--prompt", "a", "--length", "2"), 0, ("target",)),
    Row("ablate", ("quik",), 2, ("unknown plan 'quik'", "Did you mean 'quick'?")),
    Row("report", ("none.csv",), 2, ("'none.csv' cannot be read",)),
    Row("session", ("/gamma x",), 1, ("gamma: 'x' given", "an integer of 0 or more")),
    Row("script", ("s.txt",), 1, ("s.txt:1: gamma: 'x' given",), files={"s.txt": "/gamma x\n"}),
    Row("python", lambda folder: read_prompts(folder / "none.jsonl"), 2, ("cannot be read",)),
]
