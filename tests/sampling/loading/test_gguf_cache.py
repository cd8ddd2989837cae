"""Conversion of GGUF files into the cache: exact, once, whole, and safe between processes."""

import multiprocessing
import shutil
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file
from transformers import AutoTokenizer

from sampling.loading.gguf import cache as gguf_cache
from sampling.loading.gguf.cache import META, converted
from sampling.loading.pairs import LoadOptions, load_pair
from tests import tiny
from tests.refusals import refused
from utils.files import CACHE_VARIABLE, cache_folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint and the same as a GGUF file."""
    folder = tmp_path_factory.mktemp("gguf")
    checkpoint = tiny.save_checkpoint(folder / "llama", tiny.llama())
    return checkpoint, tiny.save_gguf(folder / "tiny.gguf", checkpoint)


@pytest.fixture
def gguf(made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The GGUF file, and a cache that is empty."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return made[1]


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files converted so far, each time anew."""
    done: list[Path] = []
    convert = gguf_cache.convert

    def counted(gguf: Path, *rest: object) -> None:
        done.append(gguf)
        convert(gguf, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(gguf_cache, "convert", counted)
    return done


def test_weights_and_tokenizer_survive(made: tuple[Path, Path], gguf: Path) -> None:
    folder = converted(gguf)
    expected, found = load_file(made[0] / "model.safetensors"), load_file(folder / "model.safetensors")
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == tiny.CHAT
    assert tokenizer.get_vocab().items() >= tiny.tiny_tokenizer().get_vocab().items()


def test_the_converted_file_computes_what_the_checkpoint_computes(made: tuple[Path, Path], gguf: Path) -> None:
    pair = load_pair(LoadOptions(str(gguf), str(made[0]), device="cpu", dtype="float32"))
    assert pair.drafter is not None
    torch.testing.assert_close(pair.target.forward([7, 90, 12]).logits, pair.drafter.forward([7, 90, 12]).logits)


def test_progress_rises_to_one(gguf: Path) -> None:
    told: list[float] = []
    converted(gguf, lambda message, fraction=None: told.append(-1.0 if fraction is None else fraction))
    known = [fraction for fraction in told if fraction >= 0]
    assert known == sorted(known) and known[0] == 0.0 and known[-1] == 1.0 and len(known) > 10


def test_a_file_is_converted_once(gguf: Path, conversions: list[Path], tmp_path: Path) -> None:
    folder = converted(gguf)
    assert converted(gguf) == folder
    other = Path(shutil.copy(gguf, tmp_path / "other-name.gguf"))
    assert converted(other) == folder
    assert len(conversions) == 1


def test_a_known_file_is_not_hashed_again(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    sha256 = gguf_cache._sha256
    monkeypatch.setattr(gguf_cache, "_sha256", lambda path: (hashed.append(path), sha256(path))[1])
    converted(gguf)
    converted(gguf)
    assert len(hashed) == 1


def test_a_changed_file_is_converted_again(made: tuple[Path, Path], gguf: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(gguf, tmp_path / "mine.gguf"))
    before = converted(file)
    changed = tiny.save_checkpoint(tmp_path / "changed", tiny.llama(), seed=1)
    tiny.save_gguf(file, changed)
    after = converted(file)
    assert after != before
    assert torch.equal(
        load_file(after / "model.safetensors")["model.norm.weight"],
        load_file(changed / "model.safetensors")["model.norm.weight"],
    )


def test_a_new_converter_version_rebuilds(gguf: Path, conversions: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    before = converted(gguf)
    monkeypatch.setattr(gguf_cache, "CONVERTER_VERSION", gguf_cache.CONVERTER_VERSION + 1)
    after = converted(gguf)
    assert after != before and len(conversions) == 2
    assert not before.exists()


def test_what_a_killed_process_left_is_ignored_and_removed(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(gguf: Path, folder: Path, progress: object) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gguf_cache, "convert", killed)
        patch.setattr(gguf_cache.shutil, "rmtree", lambda *_, **__: None)  # a killed process cleans nothing up
        with pytest.raises(KeyboardInterrupt):
            converted(gguf)
    (left,) = cache_folder().glob(".gguf-*")
    folder = converted(gguf)
    assert (folder / META).is_file() and (folder / "model.safetensors").stat().st_size > 4
    assert not left.exists()


DAMAGES = (None, b"", b"[]", b"garbage " * 99)
NAMES = ("config.json", "tokenizer.json", "chat_template.jinja", META)


@pytest.mark.parametrize(
    ("name", "content"), [*(("model.safetensors", damage) for damage in DAMAGES), *zip(NAMES, DAMAGES, strict=True)]
)
def test_a_kept_folder_that_was_damaged_is_made_again(
    gguf: Path, conversions: list[Path], name: str, content: bytes | None
) -> None:
    folder, told = converted(gguf), list[str]()
    whole = (folder / name).read_bytes()
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    assert converted(gguf, lambda message, fraction=None: told.append(message)) == folder
    assert len(conversions) == 2 and "What was kept of tiny.gguf is damaged: converting it again" in told
    assert name == META or (folder / name).read_bytes() == whole
    assert converted(gguf) == folder and len(conversions) == 2


def test_waiting_is_told_only_while_another_process_converts(gguf: Path) -> None:
    told: list[str] = []
    lock = FileLock(cache_folder() / f"{gguf_cache._sha256(gguf)[:16]}.lock")

    def tell(message: str, fraction: float | None = None) -> None:
        told.append(message)
        if message.startswith("Waiting"):
            lock.release(force=True)

    cache_folder().mkdir(parents=True)
    with lock:
        converted(gguf, tell)
    assert any(message.startswith("Waiting") for message in told)
    told.clear()
    (cache_folder() / converted(gguf) / META).unlink()
    converted(gguf, tell)
    assert told and not any(message.startswith("Waiting") for message in told)


def _convert(start: Barrier, gguf: Path) -> None:
    start.wait()
    converted(gguf)


def test_two_processes_at_once_make_one_folder(gguf: Path) -> None:
    """Forked, so that they start at once and import nothing anew."""
    forks = multiprocessing.get_context("fork")
    start = forks.Barrier(2)
    racers = [forks.Process(target=_convert, args=(start, gguf)) for _ in range(2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(200)
    assert [racer.exitcode for racer in racers] == [0, 0]
    folders = {converted(gguf)}
    assert folders == set(cache_folder().glob("gguf-*-v*"))
    assert not list(cache_folder().glob(".gguf-*"))
    assert (folders.pop() / META).is_file()


def test_a_corrupt_file_is_refused(gguf: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(gguf.read_bytes()[: gguf.stat().st_size // 2])
    noise = tmp_path / "noise.gguf"
    noise.write_bytes(b"not a gguf file at all" * 10)
    for file in (cut, noise):
        with refused(file, "GGUF"):
            converted(file)
    assert not list(cache_folder().glob("*gguf-*-*"))


def test_a_cache_that_cannot_be_written(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    with refused(gguf, tmp_path / "file", CACHE_VARIABLE):
        converted(gguf)
