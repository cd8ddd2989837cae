"""What decoding reads from memory, and what memory gives."""

from dataclasses import replace

import pytest
import torch

from sampling.forward import traffic
from sampling.forward.traffic import Traffic, copy_bandwidth, weight_bytes
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.tiny import tiny_llama, tiny_pair
from utils.events import Round


def test_the_docstrings_bytes() -> None:
    assert Traffic(100, 1).a_token(10, [2, 1]) == pytest.approx(74.0)
    assert Traffic(100, 1).a_token(10, []) is None


def test_a_forward_reads_every_weight_but_the_rows_of_an_untied_embedding() -> None:
    model = tiny_llama()
    found = Traffic.of(model)
    assert found is not None and found.cached == 2 * 3 * 2 * 8 * 4  # keys and values, layers, heads, width, float32
    shared = 0 if model.tied else model.embedding.numel() * 4
    assert found.weights == weight_bytes(model) - shared
    assert Traffic.of(object()) is None  # type: ignore[arg-type]


def test_drafts_that_pass_read_less_for_a_token() -> None:
    pair = tiny_pair()
    engine, prompt = PairEngine(replace(pair, drafter=pair.target.another())), [5, 9, 2, 7]
    read = engine.describe().traffic
    assert read is not None
    plain, drafted = (
        read.a_token(len(prompt), [len(event.emitted) for event in made if isinstance(event, Round)])
        for made in (engine.stream(name, {**Settings(), "length": 24}, prompt) for name in ("target", "speculative"))
    )
    assert plain is not None and drafted is not None and drafted < plain / 2


def test_memory_gives_gigabytes_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a copy of a few MiB here, so that nothing large is held; asked again, it is not copied again."""
    monkeypatch.setattr(traffic, "_BYTES", 1 << 22)
    copy_bandwidth.cache_clear()
    found = copy_bandwidth(torch.device("cpu"))
    assert 1e8 < found < 1e13 and copy_bandwidth(torch.device("cpu")) == found
    copy_bandwidth.cache_clear()
