"""Why a machine with a card computes on its CPU: driver and build are named."""

from pathlib import Path

import pytest
import torch

from sampling.loading import devices, pairs
from sampling.loading.devices import why_no_cuda
from sampling.loading.options import LoadOptions
from tests.tiny import tiny_pair

VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build"


def too_old() -> None:
    raise RuntimeError("The NVIDIA driver on your system is too old (found version 12040).\nMore.")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the driver says its version; torch finds no device."""
    path = tmp_path / "version"
    path.write_text(VERSION)
    monkeypatch.setattr(devices, "_DRIVER", path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.cuda, "init", too_old)
    return path


@pytest.mark.parametrize(("said", "version"), [(VERSION, "550.54.15"), (OPEN, "570.86.15")])
def test_a_driver_that_is_too_old_is_named(said: str, version: str, driver: Path) -> None:
    driver.write_text(said)
    why = why_no_cuda()
    assert why and f"driver {version} is" in why and torch.__version__ in why and "too old (found version 12040)" in why


def test_a_build_without_cuda_and_hidden_devices_are_named(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert "CUDA_VISIBLE_DEVICES is 7" in str(why_no_cuda())
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "built without CUDA" in str(why_no_cuda())


def test_nothing_is_said_without_a_driver_or_with_a_device(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert why_no_cuda() is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    driver.unlink()
    assert why_no_cuda() is None


@pytest.mark.parametrize(("device", "noted"), [("auto", True), ("cpu", False)])
def test_a_pair_notes_it_where_the_device_was_chosen(
    device: str, noted: bool, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "_loaded_pair", lambda options, progress: tiny_pair())
    pair = pairs.load_pair(LoadOptions(device=device))
    assert any("550.54.15" in note for note in pair.notes) == noted
