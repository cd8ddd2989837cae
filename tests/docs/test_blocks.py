"""Fenced blocks say what is true: excerpts are the files', programs run, plans are read, sessions play."""

import ast
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import infer
from ablation.plan.file import read_experiment
from ablation.plan.prompts.file import read_prompts
from repl.commands.table import find
from sampling.loading.options import LoadOptions
from tests.docs.conftest import Load
from tests.docs.pages import PAGES, ROOT, WALK_THROUGH, CodeBlock, blocks, blocks_of, inline_code, page_name
from tests.serve.running import running

_SOURCE = re.compile(r"# from (\S+)\n")
# Commands are in test_commands.py; text blocks are written by a script (API reference) or pictures (README, rooms).
LANGUAGES = {"python", "sh", "bash", "text", "toml", "jsonl"}

PYTHON = [block for block in blocks_of("python") if block.page != WALK_THROUGH]
ADDRESS = "http://127.0.0.1:8000"
CLIENTS = [block for block in PYTHON if block.text.startswith(f"# with a server at {ADDRESS}")]
PROGRAMS = [block for block in PYTHON if not block.text.startswith("# from ") and block not in CLIENTS]
OUTLINES = [block for block in PYTHON if block not in (*PROGRAMS, *CLIENTS) and block.text.endswith("...\n")]
EXCERPTS = [block for block in PYTHON if block not in (*PROGRAMS, *OUTLINES, *CLIENTS)]
SESSIONS = [block for block in blocks_of("text") if block.text.startswith("> ")]


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {block.language for block in blocks()} == LANGUAGES
    rest = {block.page.name for block in blocks_of("text") if block not in SESSIONS}
    assert rest == {"api-reference.md", "architecture.md", "server.md", "README.md", "README.zh-CN.md"}


def _source(block: CodeBlock) -> tuple[str, str]:
    """The file that a block is from, and the part of the block that is."""
    source = _SOURCE.match(block.text)
    assert source, "an excerpt begins with the path of its file and nothing else"
    return source[1], block.text[source.end() :].strip("\n")


@pytest.mark.parametrize("block", EXCERPTS, ids=str)
def test_an_excerpt_is_a_part_of_its_file(block: CodeBlock) -> None:
    path, text = _source(block)
    assert text and text in (ROOT / path).read_text(encoding="utf-8"), f"not in {path}"


def _signatures(source: str, class_name: str) -> set[str]:
    """The methods of a class, without their bodies."""
    classes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    body = next(node.body for node in classes if node.name == class_name)
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    return {f"{node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns or node)}" for node in functions}


@pytest.mark.parametrize("block", OUTLINES, ids=str)
def test_an_outline_has_the_signatures_of_its_class(block: CodeBlock) -> None:
    path, text = _source(block)
    name = ast.parse(text).body[0].name  # type: ignore[attr-defined]
    missing = _signatures(text, name) - _signatures((ROOT / path).read_text(encoding="utf-8"), name)
    assert not missing, f"not in {path}"


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_runs(block: CodeBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(block.text, str(block), "exec"), {"__name__": "__page__"})


@pytest.mark.parametrize("block", CLIENTS, ids=str)
def test_a_client_is_answered(block: CodeBlock, load_once: Load) -> None:
    """By a server of the default models, wherever it listens."""
    with running(load_once(LoadOptions(dtype="float32"))) as served:
        text = block.text.replace(ADDRESS, served.url)
        exec(compile(text, str(block), "exec"), {"__name__": "__page__"})


@pytest.mark.parametrize("block", SESSIONS, ids=str)
def test_a_session_plays(block: CodeBlock, place: Path) -> None:
    """With short answers, and one at the end, which waits for the models."""
    lines = [line.removeprefix("> ") for line in block.text.splitlines()]
    Path("session").write_text("\n".join(["/length 4", *lines, "Say hello."]), encoding="utf-8")
    played = CliRunner().invoke(infer.app, ["--script", "session"])
    assert played.exit_code == 0, played.output


@pytest.mark.parametrize("page", [page for page in PAGES if page != WALK_THROUGH], ids=page_name)
def test_commands_of_the_session_are_there(page: Path) -> None:
    for code in inline_code(page):
        if named := re.fullmatch(r"/([a-z_]+)( .*)?", code):
            find(named[1])


@pytest.mark.parametrize("block", blocks_of("jsonl"), ids=str)
def test_lines_of_prompts_are_read(block: CodeBlock, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(block.text, encoding="utf-8")
    assert len(read_prompts(path)) == len(block.text.splitlines())


@pytest.mark.parametrize("block", blocks_of("toml"), ids=str)
def test_a_plan_is_read(block: CodeBlock, tmp_path: Path) -> None:
    """As a whole, every key; prompt files that it names hold one prompt."""
    for name in re.findall(r"\"(\S+\.jsonl)\"", block.text):
        (tmp_path / name).write_text('{"prompt": "Why?"}\n', encoding="utf-8")
    path = tmp_path / "my.toml"
    path.write_text(block.text, encoding="utf-8")
    assert read_experiment(str(path)).plan.generations
