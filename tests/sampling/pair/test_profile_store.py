"""Profiles on disk: of which pair they are, and what becomes of a file that is damaged."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sampling.pair import profile_store
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.profile import LatencyProfile
from sampling.pair.profile_store import drop, keep, store_path, with_stored
from tests.egag.test_cost_model import PROFILE
from tests.heads import random_heads
from tests.tiny import TOKENS, tiny_pair
from utils.files import CACHE_VARIABLE

OTHER = replace(PROFILE, rest_s=2.0)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


def known(pair: Pair) -> LatencyProfile | None:
    return with_stored(pair).profile


def with_heads(pair: Pair, *kinds: str) -> Pair:
    heads = random_heads(32, 3, 512, tuple(range(TOKENS)), TOKENS)
    return replace(pair, heads={kind: heads[kind] for kind in kinds})


def test_a_profile_is_read_back_by_whoever_loads_the_same_weights() -> None:
    assert known(tiny_pair()) is None
    assert keep(tiny_pair(), PROFILE)
    assert known(tiny_pair()) == PROFILE
    assert keep(tiny_pair(), OTHER)
    assert known(tiny_pair()) == OTHER
    drop(tiny_pair())
    assert known(tiny_pair()) is None


@pytest.mark.parametrize("field", ["dtype", "stored", "kernel", "compiled", "device"])
@pytest.mark.parametrize("role", ["target_info", "drafter_info"])
def test_what_times_depend_on_is_part_of_the_key(role: str, field: str) -> None:
    pair = tiny_pair()
    info = getattr(pair, role)
    other = replace(pair, **{role: replace(info, **{field: "other"})})
    keep(pair, PROFILE)
    assert known(other) is None
    keep(other, OTHER)
    assert (known(pair), known(other)) == (PROFILE, OTHER)


def test_a_name_is_no_part_of_the_key() -> None:
    keep(tiny_pair(), PROFILE)
    pair = tiny_pair()
    assert known(replace(pair, target_info=replace(pair.target_info, name="called otherwise"))) == PROFILE


def test_other_weights_are_another_pair() -> None:
    keep(tiny_pair(), PROFILE)
    assert known(tiny_pair(seed=1)) is None
    pair = tiny_pair()
    assert known(replace(pair, drafter=None, drafter_info=None)) is None
    assert pair.drafter is not None
    assert known(replace(pair, drafter=pair.target)) is None


def test_other_heads_are_another_pair(tmp_path: Path) -> None:
    pair = with_heads(tiny_pair(), "mtp")
    keep(pair, PROFILE)
    assert known(pair) == PROFILE
    assert known(tiny_pair()) is None and known(with_heads(tiny_pair(), "mtp", "medusa")) is None
    retrained = tmp_path / "mtp"
    retrained.mkdir()
    weights = (pair.heads["mtp"] / "model.safetensors").read_bytes()
    (retrained / "model.safetensors").write_bytes(weights)
    config = (pair.heads["mtp"] / "config.json").read_bytes()
    (retrained / "config.json").write_bytes(config)
    assert known(replace(pair, heads={"mtp": retrained})) == PROFILE
    (retrained / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    assert known(replace(pair, heads={"mtp": retrained})) is None
    (retrained / "model.safetensors").write_bytes(weights)
    (retrained / "config.json").write_bytes(config + b" ")
    assert known(replace(pair, heads={"mtp": retrained})) is None


def test_another_number_of_threads_is_another_machine() -> None:
    keep(tiny_pair(), PROFILE)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert known(tiny_pair()) is None
        keep(tiny_pair(), OTHER)
    finally:
        torch.set_num_threads(threads)
    assert known(tiny_pair()) == PROFILE


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"format": 0, "machines": {}}',
        '{"format": 2, "machines": []}',
        '{"format": 2, "machines": {"MACHINE": []}}',
        '{"format": 2, "machines": {"MACHINE": {"KEY": 3}}}',
        '{"format": 2, "machines": {"MACHINE": {"KEY": {"profile": {"forward": 3}}}}}',
        '{"format": 2, "machines": {"MACHINE": {"KEY": {"profile": WHOLE}}}}',
    ],
)
def test_a_damaged_file_costs_a_measurement_and_nothing_else(content: str) -> None:
    keep(tiny_pair(), PROFILE)
    machines = json.loads(store_path().read_text())["machines"]
    ((machine, pairs),) = machines.items()
    text = content.replace("MACHINE", machine.replace('"', "")).replace("KEY", next(iter(pairs)))
    whole = {**next(iter(pairs.values()))["profile"], "rest_s": 10**400}  # which no float holds
    text = text.replace("WHOLE", json.dumps(whole))
    store_path().write_text(text)
    assert known(tiny_pair()) is None
    drop(tiny_pair())
    assert keep(tiny_pair(), PROFILE)
    assert known(tiny_pair()) == PROFILE


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    assert not keep(tiny_pair(), PROFILE)
    assert known(tiny_pair()) is None


def test_nothing_is_digested_before_anything_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(*weights: object) -> str:
        raise AssertionError("weights were read")

    monkeypatch.setattr(profile_store, "fingerprint", digest)
    assert known(tiny_pair()) is None


def test_a_format_reads_its_own_profile() -> None:
    engine = PairEngine(tiny_pair())
    keep(engine.pair, PROFILE)
    rounded = engine.pair.in_format("int8")
    keep(rounded, OTHER)
    engine = PairEngine(with_stored(tiny_pair()))
    assert (engine.profile(), engine.in_format("int8").profile()) == (PROFILE, OTHER)


def test_a_pair_without_a_cache_has_no_profile() -> None:
    keep(tiny_pair(), PROFILE)
    assert known(with_stored(tiny_pair()).recomputing()) is None
