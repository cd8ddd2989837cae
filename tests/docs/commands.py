"""The commands on the pages: what they are, and how each is tested."""

import shlex
from collections.abc import Iterator
from enum import StrEnum
from itertools import product
from typing import NamedTuple

from tests.docs.pages import PAGES, ROOT, WALK_THROUGH, blocks_of, inline_code


class Kind(StrEnum):
    """How a command is tested."""

    RUN = "runs to its end"
    CHECKED = "runs until it would load its models"
    PARSED = "its options and values are parsed"
    PYTEST = "pytest parses it, and its paths exist"
    LEFT_OUT = "not tested"


class Rule(NamedTuple):
    """How the commands that begin so are tested, and why not more."""

    kind: Kind
    reason: str = ""


# A command takes the longest beginning that fits; one that fits none fails the test.
RULES = {
    "infer.py": Rule(Kind.RUN),
    "infer.py run": Rule(Kind.RUN),
    "infer.py run --from": Rule(Kind.PARSED, "reads what another command wrote; tests/handover runs it"),
    "infer.py prefill": Rule(Kind.CHECKED, "writes files; tests/handover runs it"),
    "infer.py prefill --listen": Rule(Kind.PARSED, "listens until it is stopped; tests/handover asks it"),
    "infer.py demo": Rule(Kind.RUN),
    "infer.py methods": Rule(Kind.RUN),
    "infer.py selftest": Rule(Kind.CHECKED, "minutes"),
    "infer.py ablate": Rule(Kind.CHECKED, "minutes to hours"),
    "infer.py invariance": Rule(Kind.CHECKED, "it differs by machine"),
    "infer.py audit": Rule(Kind.CHECKED, "minutes; tests/engines/audit asks servers"),
    "infer.py quality": Rule(Kind.CHECKED, "minutes"),
    "infer.py profile": Rule(Kind.CHECKED, "half a minute"),
    "infer.py advise": Rule(Kind.CHECKED, "minutes"),
    "infer.py acceptance": Rule(Kind.CHECKED, "minutes; tests/ablation runs it on tiny models"),
    "infer.py acceptance --text": Rule(Kind.PARSED, "reads a text of one's own; tests/ablation runs it"),
    "infer.py acceptance --trace": Rule(Kind.PARSED, "reads what another command wrote"),
    "infer.py serve": Rule(Kind.CHECKED, "serves until it is stopped; tests/serve asks it"),
    "scripts/run_ablation.py": Rule(Kind.CHECKED, "minutes to hours"),
    "scripts/run_ablation.py one_pass": Rule(Kind.PARSED, "its heads have to be trained first"),
    "scripts/run_ablation.py --workers": Rule(Kind.PARSED, "needs GPUs; tests/ablation runs workers on cores"),
    "scripts/run_ablation.py --devices": Rule(Kind.PARSED, "needs GPUs; tests/ablation runs workers on cores"),
    "scripts/run_ablation.py --ray": Rule(Kind.PARSED, "needs Ray's cluster; tests/ablation plays on one"),
    "ray start": Rule(Kind.LEFT_OUT, "starts daemons"),
    "scripts/merge_ablation.py": Rule(Kind.PARSED, "reads what other commands wrote; tests/ablation merges"),
    "torchrun": Rule(Kind.LEFT_OUT, "starts several processes; tests/sharded does"),
    "sbatch": Rule(Kind.LEFT_OUT, "needs Slurm; tests/ablation runs the script of a task"),
    "scripts/report_ablation.py": Rule(Kind.RUN),
    "scripts/replay.py": Rule(Kind.PARSED, "reads what another command wrote; tests/ablation runs it"),
    "scripts/verify_growth.py": Rule(Kind.CHECKED, "minutes"),
    "scripts/gpu_check.py": Rule(Kind.PARSED, "half an hour on a GPU; test_gpu_check.py rehearses every stage"),
    "scripts/verify_strategies.py": Rule(Kind.CHECKED, "an hour"),
    "scripts/interval_coverage.py": Rule(Kind.PARSED, "minutes; tests/scripts runs it on few samples"),
    "scripts/view_cost.py": Rule(Kind.CHECKED, "minutes"),
    "scripts/processor_cost.py": Rule(Kind.PARSED, "minutes, and it measures the machine alone"),
    "scripts/attention_cost.py": Rule(Kind.PARSED, "minutes, and it measures the machine alone"),
    "scripts/lean_parity.py": Rule(Kind.LEFT_OUT, "it needs a checkpoint that no package of the lock holds"),
    "scripts/lean_cost.py": Rule(Kind.LEFT_OUT, "minutes, and it measures the machine alone"),
    "scripts/rollback_cost.py": Rule(Kind.LEFT_OUT, "minutes, and it measures the machine alone"),
    "scripts/packed_cost.py": Rule(Kind.LEFT_OUT, "minutes, and it measures the machine alone"),
    "scripts/spin_cost.py": Rule(Kind.PARSED, "minutes, and it measures the machine alone"),
    "scripts/compare_checkouts.py": Rule(Kind.LEFT_OUT, "minutes, and it needs two checkouts"),
    "--group site mkdocs": Rule(Kind.LEFT_OUT, "serves until it is stopped; .ci/run builds the site"),
    "--group mutation scripts/mutate.py": Rule(Kind.LEFT_OUT, "half an hour, and it needs cosmic-ray"),
    "scripts/lookup_cost.py": Rule(Kind.PARSED, "minutes, and it loads no model"),
    "scripts/compare_servers.py": Rule(Kind.PARSED, "half an hour; tests/scripts runs it on servers of its own"),
    "scripts/batch_turns.py": Rule(Kind.PARSED, "minutes, and it measures the machine alone"),
    "scripts/batch_cost.py": Rule(Kind.PARSED, "a minute, and it measures the machine alone"),
    "--with arctic-inference scripts/suffix_reference.py": Rule(Kind.LEFT_OUT, "builds arctic-inference, a minute"),
    "scripts/other_tokenizer.py": Rule(Kind.PARSED, "writes a checkpoint of 270 MB"),
    "scripts/train_drafter.py": Rule(Kind.CHECKED, "an hour"),
    "scripts/ablate_training.py": Rule(Kind.CHECKED, "hours"),
    "scripts/write_training_prompts.py": Rule(Kind.RUN),
    "scripts/train_seq2seq.py": Rule(Kind.PARSED, "minutes, and it loads no model"),
    "scripts/draw_book.py": Rule(Kind.RUN),
    "scripts/draw_readme.py": Rule(Kind.PARSED, "records a session, half a minute"),
    "scripts/plain_english.py": Rule(Kind.RUN),
    "scripts/generate_docs.py": Rule(Kind.RUN),
    "scripts/generate_models.py": Rule(Kind.LEFT_OUT, "a minute, and tests/families judges every family"),
    "docs/examples/compare.py": Rule(Kind.LEFT_OUT, "test_examples.py runs every example"),
    "--with jupyterlab jupyter lab docs/tutorial.ipynb": Rule(Kind.LEFT_OUT, "test_tutorial.py runs its cells"),
    "pytest": Rule(Kind.PYTEST, "tests do not run tests"),
    "ruff": Rule(Kind.LEFT_OUT, "checks every change"),
    "mypy": Rule(Kind.LEFT_OUT, "checks every change"),
    "lint-imports": Rule(Kind.LEFT_OUT, "checks every change"),
    "bash .ci/run": Rule(Kind.LEFT_OUT, "runs these tests"),
    "pip install uv": Rule(Kind.LEFT_OUT, "installs"),
    "uv sync": Rule(Kind.LEFT_OUT, "installs"),
    "uv build": Rule(Kind.LEFT_OUT, "tests/wheel builds"),
    "uvx": Rule(Kind.LEFT_OUT, "tests/wheel installs and runs"),
    "uv venv": Rule(Kind.LEFT_OUT, "installs"),
    "pip download": Rule(Kind.LEFT_OUT, "downloads"),
    "cmake": Rule(Kind.LEFT_OUT, "builds llama.cpp, eleven minutes"),
    "build/bin/llama-quantize": Rule(Kind.LEFT_OUT, "is not a part of this project"),
    "export": Rule(Kind.LEFT_OUT, "sets what the next line reads"),
    "uv pip install": Rule(Kind.LEFT_OUT, "builds llama.cpp, minutes"),
    "git checkout": Rule(Kind.LEFT_OUT, "goes to another version"),
}
LOOK = Rule(Kind.RUN, "--dry-run writes nothing")
FAR = Rule(Kind.CHECKED, "its models come from the hub")
MENTION = Rule(Kind.PARSED, "a part of a command")
HUB = ("Qwen/", "google/", "meta-llama/")
# What a page writes for any plan.
PLACEHOLDERS = {"PLAN": "quick", "SECONDS": "60"}


class Command(NamedTuple):
    """A command as its words, without `uv run`. mention: prose names it without `uv run`, and maybe in part."""

    words: tuple[str, ...]
    mention: bool = False

    def __str__(self) -> str:
        return shlex.join(self.words)

    @property
    def rule(self) -> Rule | None:
        """How it is tested; None = nobody has said."""
        if self.mention:
            return MENTION
        if any(word.startswith(HUB) for word in self.words):
            return FAR
        if self.words[0] == "scripts/run_ablation.py" and "--dry-run" in self.words:
            return LOOK
        beginnings = (" ".join(self.words[:count]) for count in range(len(self.words), 0, -1))
        return next((RULES[beginning] for beginning in beginnings if beginning in RULES), None)


def commands() -> list[Command]:
    """Every command of the pages, once."""
    return list(dict.fromkeys(found for found in _found() if found.words))


def _found() -> Iterator[Command]:
    for block in blocks_of("sh", "bash"):
        if block.page != WALK_THROUGH:
            for line in block.text.replace("\\\n", " ").splitlines():
                yield from _commands(line)
    for page in PAGES:
        if page != WALK_THROUGH:
            for code in inline_code(page):
                yield from _inline(code)


def _inline(code: str) -> Iterator[Command]:
    """Commands that prose names: whole ones, and mentions of a program of ours with arguments."""
    if code.startswith(("uv run ", "pip ", "bash ", "git ")):
        yield from _commands(code)
    elif code.startswith(("infer.py ", "scripts/")) and " " in code:
        yield from (Command(words, mention=True) for words in _meant(code))


def _commands(line: str) -> Iterator[Command]:
    for part in line.split(" && "):
        for words in _meant(part):
            yield Command(words[2:] if words[:2] == ("uv", "run") else words)


def _meant(line: str) -> Iterator[tuple[str, ...]]:
    """The words of a line; `a|b` stands for a line with each."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line, comments=True)]
    yield from product(*(word.split("|") for word in words))


def exists(path: str) -> bool:
    """Whether a path of a command is in the project."""
    return (ROOT / path).exists()
