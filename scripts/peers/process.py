"""llama.cpp in a process of its own, asked for one answer at a time: a JSON line there, a JSON line back."""

from utils.threads import SPIN_COUNT

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from utils.errors import UserError, wrong_value
from utils.provenance import ROOT
from utils.text import quoted

FOLDER = ".peers/llama.cpp"
HOW = (
    f"`uv venv {FOLDER} && uv pip install --python {FOLDER} llama-cpp-python` gets it "
    "(built from source, some minutes, with a C++ compiler)"
)
WORKER = Path(__file__).with_name("llama_worker.py")
_INSTALLED = "import importlib.util, sys; sys.exit(importlib.util.find_spec('llama_cpp') is None)"
_PATIENCE_S = 10.0


class PeerError(UserError):
    """The other process ended, or said what no answer is."""


@dataclass(frozen=True, slots=True)
class Answer:
    """New ids; seconds of prefill (the prompt but for its last token), of decoding, and of decoding in forwards."""

    ids: list[int]
    prefill_s: float
    decode_s: float
    forward_s: float

    @property
    def tokens_per_s(self) -> float:
        """Of decoding, without the prompt."""
        return len(self.ids) / self.decode_s


def find_python(given: str | None) -> Path | None:
    """The interpreter that has llama-cpp-python: the given one, else that of `.peers/llama.cpp`; None: not installed.

    Raises `UserError` for one that is given and has it not.
    """
    place = ("Scripts", "python.exe") if sys.platform == "win32" else ("bin", "python")
    python = Path(given).expanduser() if given is not None else ROOT.joinpath(FOLDER, *place)
    try:
        has = subprocess.run([python, "-c", _INSTALLED], capture_output=True, check=False).returncode == 0
    except OSError:
        has = False
    if given is not None and not has:
        raise wrong_value("--peer-python", given, f"an interpreter that has llama-cpp-python; {HOW}")
    return python if has else None


def environment() -> dict[str, str]:
    """This process's, but its threads wait as libgomp and the user want, not as ours are told to (utils/threads.py)."""
    own = dict(os.environ)
    if own.get("GOMP_SPINCOUNT") == SPIN_COUNT:
        del own["GOMP_SPINCOUNT"]
    return own


class Peer:
    """The process; leave the context to end it. `described`: what runs there, as it said itself.

    Raises `PeerError` where it does not start, or runs with anything but what it was asked for.
    """

    def __init__(self, python: Path, file: Path, threads: int, context: int, worker: Path = WORKER) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        words: list[str | Path] = [python, worker, file, str(threads), str(context)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=self._said, text=True, encoding="utf-8", env=environment()
        )
        try:
            self.described = self._read()
            self._check(threads)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def ask(self, ids: Sequence[int], length: int, drafts: int, ngram: int, stop: Collection[int]) -> Answer:
        """Its answer to a prompt: drafts 0 is plain decoding, else prompt lookup. Raises `PeerError`."""
        request = {"ids": list(ids), "length": length, "drafts": drafts, "ngram": ngram, "stop": sorted(stop)}
        assert self._process.stdin is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except OSError:
            raise self._ended() from None
        said = self._read()
        try:
            return Answer(**said)
        except TypeError:
            raise PeerError(f"llama.cpp said {quoted(json.dumps(said))}; expected an answer") from None

    def cpu_s(self) -> float:
        """Processor time that it has used so far."""
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def close(self) -> None:
        """End it: by the end of its input, else by force."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise PeerError(f"llama.cpp said {quoted(line.strip())}; expected a JSON object")
        return said

    def _ended(self) -> PeerError:
        status = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return PeerError(f"llama.cpp ended with status {status}: {lines[-1] if lines else 'it gave no reason'}")

    def _check(self, threads: int) -> None:
        wanted = {"threads": threads, "batch_threads": threads, "gpu": False}
        for name, value in wanted.items():
            if self.described.get(name) != value:
                raise PeerError(f"llama.cpp runs with {name} {self.described.get(name)!r}; expected {value!r}")
