"""What a result depends on beside its plan: code, weights, versions and the machine."""

import hashlib
import platform
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

ROOT = Path(__file__).resolve().parent.parent
CHECKOUT = (ROOT / "pyproject.toml").is_file()
"""Whether this is the project's own folder; else an installed wheel, where nothing is written."""
PROJECT = "speculative-workbench"
HOST = platform.node()
# What decides a row; what shows or reports rows may change between two runs into one file.
_SOURCES = (
    "sampling",
    "ngram_assisted",
    "egag",
    "utils",
    "ablation/run/configuration_run.py",
    "ablation/run/execute.py",
    "ablation/plan/grid.py",
    "ablation/results/make_record.py",
    "ablation/results/record.py",
)
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt")
# What decides the output beside the weights: sizes and positions, how text becomes tokens, what ends a text.
_CONFIGS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)
_SENTENCEPIECE = ".model"


def code_digest(root: Path = ROOT) -> str:
    """sha256 of the source files that decide a row, so that an uncommitted change shows as well."""
    paths = [root / source for source in _SOURCES]
    files = sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py")))
    return _digest(root, files) or ""


def weights_digest(place: str) -> str | None:
    """sha256 of the weight files in a folder, or of a hub id's files in the local cache; None where none are found."""
    folder = _folder(place)
    if folder is None:
        return None
    return _digest(folder, sorted(file for file in folder.rglob("*") if file.suffix in _WEIGHTS and file.is_file()))


def config_digest(place: str) -> str | None:
    """The same of what decides a model's output beside its weights: config, tokenizer and generation defaults."""
    folder = _folder(place)
    if folder is None:
        return None
    files = (file for file in folder.iterdir() if file.name in _CONFIGS or file.suffix == _SENTENCEPIECE)
    return _digest(folder, sorted(file for file in files if file.is_file()))


def commit(root: Path = ROOT) -> tuple[str | None, bool | None]:
    """(commit, whether tracked files differ from it), or (None, None) outside a git work tree."""
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head.strip(), bool(_git(root, "status", "--porcelain", "--untracked-files=no").strip())
    except (OSError, subprocess.CalledProcessError):
        return None, None


def project_version() -> str:
    """This project's: that of its package, or of its own folder where it is not installed; "unknown" where neither."""
    try:
        return version(PROJECT)
    except PackageNotFoundError:
        said = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8")) if CHECKOUT else {}
        return str(said.get("project", {}).get("version", "unknown"))


def versions(names: Iterable[str] = ("torch", "transformers", "numpy")) -> dict[str, str]:
    """Version of Python and of the packages that are installed."""
    versions_known = {"python": platform.python_version()}
    for name in names:
        try:
            versions_known[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions_known


def machine(device: "torch.device") -> dict[str, Any]:
    """The processor, its threads, the system, and the GPU where one is used."""
    import torch  # seconds, which reading a manifest does not need

    about: dict[str, Any] = {"cpu": cpu_name(), "threads": torch.get_num_threads(), "system": platform.platform()}
    if device.type == "cuda":
        about["gpu"] = torch.cuda.get_device_name(device)
    return about


def cpu_name() -> str:
    """The processor's model as the system calls it."""
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git(root: Path, *arguments: str) -> str:
    run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=20)
    return run.stdout


def _hub_folder(place: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(place, "config.json")
    return Path(cached).parent if isinstance(cached, str) else None


def _folder(place: str) -> Path | None:
    return Path(place) if Path(place).is_dir() else _hub_folder(place)


def _digest(root: Path, files: Sequence[Path]) -> str | None:
    if not files:
        return None
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            total.update(f"{path.relative_to(root)} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()
