"""What a result depends on: the digest of the code that decides a row."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from utils import provenance
from utils.provenance import _SOURCES, ROOT, code_digest, config_digest, project_version, weights_digest


def test_every_source_of_the_digest_is_there() -> None:
    """A file that was moved would drop out of the digest without a word."""
    assert [source for source in _SOURCES if not (ROOT / source).exists()] == []


def test_a_change_in_a_source_changes_the_digest(tmp_path: Path) -> None:
    digests = set()
    for source in _SOURCES:
        path = tmp_path / source if source.endswith(".py") else tmp_path / source / "any.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
        digests.add(code_digest(tmp_path))
    assert len(digests) == len(_SOURCES)


@pytest.mark.parametrize(
    ("name", "weights", "config"),
    [
        ("model.safetensors", True, False),
        ("config.json", False, True),
        ("generation_config.json", False, True),
        ("tokenizer.json", False, True),
        ("tokenizer_config.json", False, True),
        ("chat_template.jinja", False, True),
        ("tokenizer.model", False, True),
        ("README.md", False, False),
        ("training.svg", False, False),
    ],
)
def test_weights_and_what_stands_beside_them_have_a_digest_each(
    tmp_path: Path, name: str, weights: bool, config: bool
) -> None:
    for file in ("model.safetensors", "config.json"):
        (tmp_path / file).write_text("a")
    before = weights_digest(str(tmp_path)), config_digest(str(tmp_path))
    (tmp_path / name).write_text("b")
    after = weights_digest(str(tmp_path)), config_digest(str(tmp_path))
    assert (before[0] != after[0], before[1] != after[1]) == (weights, config)


def test_a_folder_without_any_has_none(tmp_path: Path) -> None:
    assert weights_digest(str(tmp_path)) is None and config_digest(str(tmp_path)) is None


def test_the_version_is_known_where_the_project_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> str:
        raise PackageNotFoundError(name)

    installed = project_version()
    monkeypatch.setattr(provenance, "version", not_installed)
    assert project_version() == installed != "unknown"
    monkeypatch.setattr(provenance, "CHECKOUT", False)
    assert project_version() == "unknown"
