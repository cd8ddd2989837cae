"""What a result depends on: the digest of the code that decides a row."""

from pathlib import Path

from utils.provenance import _SOURCES, ROOT, code_digest


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
