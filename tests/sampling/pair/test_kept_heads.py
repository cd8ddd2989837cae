"""Heads outlive their drafters: one that is built anew finds the graphs of the one before."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from sampling.pair.kept.heads import KeptHeads
from sampling.pair.pair_engine import PairEngine
from tests.emulated_graphs import emulate
from tests.sampling.forward.test_graph_memory import TREE, pair_of, said
from utils.device import graphed
from utils.device.spare import drop_all

PROMPT = [5, 6, 7, 5, 6]


class Target:
    """What heads stand on."""


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is captured from now on, by the name of its function."""
    emulate(monkeypatch)
    found, recorded = list[str](), graphed._recorded_on

    def noted(device: Any, function: Any, *given: Any) -> Any:
        found.append(function.func.__name__)
        return recorded(device, function, *given)

    monkeypatch.setattr(graphed, "_recorded_on", noted)
    yield found


@pytest.mark.parametrize(
    ("method", "given"),
    [("eagle", TREE), ("mtp", {"gamma": "3"}), ("medusa", {"gamma": "3"}), ("hydra", {"gamma": "3"})],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_drafter_built_anew_captures_nothing(method: str, given: dict[str, str], captured: list[str]) -> None:
    engine = PairEngine(pair_of(256))
    first = [said(engine, method, PROMPT, **given) for _ in range(2)]
    assert captured
    captured.clear()
    engine.forget()
    assert said(engine, method, PROMPT, **given) == first[0] == first[1] and not captured
    engine.renew()
    assert said(engine, method, PROMPT, **given) == first[0] and captured


def test_a_head_is_made_once_for_a_target_and_its_files(tmp_path: Path) -> None:
    kept, target, made = KeptHeads(), Target(), list[int]()

    def take(on: object, about: str = "full") -> int:
        return kept.take(on, tmp_path, about, lambda: made.append(len(made)) or len(made))

    (tmp_path / "config.json").write_text("{}")
    assert take(target) == take(target) == 1 and take(target, "int8") == 2 and take(Target()) == 3
    os.utime(tmp_path / "config.json", ns=(1, 1))
    assert take(target) == 4
    drop_all()
    assert take(target) == 5


def test_a_head_goes_with_its_target() -> None:
    kept, target, made = KeptHeads(), Target(), Target()
    gone = ref(made)
    kept.take(target, None, (), lambda made=made: made)  # type: ignore[misc]
    del made
    assert gone() is not None
    del target
    other = Target()
    kept.take(other, None, (), lambda: 0)
    assert gone() is None
