"""`--batch-invariant`: what a target is on this machine, what a difference is then, and what is refused."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward import invariance
from sampling.forward.invariance import COUNTS, first_difference
from sampling.forward.kernels import probe
from sampling.forward.kernels.formats import FORMATS, Format
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.models.lean import LeanModel, from_transformers
from sampling.forward.runner import ModelRunner, has_one_width
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.measure import comparison
from sampling.measure.comparison import Comparison
from sampling.methods.settings import Settings
from sampling.pair import model_info
from sampling.pair.model_info import ModelInfo, batch_invariant
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.share import shared_runner
from sampling.proof.faults import batch_wide
from tests.refusals import refused
from tests.tiny import gpt2, llama, random_model, save_checkpoint, tiny_tokenizer

TEXT = list(range(5, 200))
needs_packed = pytest.mark.skipif(not probe.packs(torch.float32), reason="torch has no oneDNN here")


def model(dtype: torch.dtype = torch.float32, batch_invariant: bool = True) -> LeanModel:
    full = replace(FORMATS["full"], batch_invariant=batch_invariant)
    return from_transformers(random_model(llama()).to(dtype), format=full)


def info(**changes: str) -> ModelInfo:
    return ModelInfo("tiny", "cpu", "float32", **changes)


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sampling.forward.kernels.autotune_cache._made", {})
    monkeypatch.setenv("SPECULATIVE_WORKBENCH_CACHE", str(tmp_path / "cache"))


@needs_packed
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_of_full_weights_are_alike_for_every_count(dtype: torch.dtype) -> None:
    if not probe.packs(dtype):
        pytest.skip("torch has no packed products in it here")
    probe.use_kernel("packed")
    try:
        assert first_difference(ModelRunner(model(dtype)), TEXT) is None
    finally:
        probe.use_kernel("auto")


def test_the_first_count_that_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ModelRunner(model().with_format(batch_wide(batch_invariant=True)))
    assert first_difference(broken, TEXT) == COUNTS[0]
    monkeypatch.setattr(invariance, "COUNTS", (5, 9))
    assert first_difference(broken, TEXT) == 5


def test_a_short_window_is_tried_as_far_as_it_goes() -> None:
    short = from_transformers(random_model(llama(max_position_embeddings=8)))
    assert first_difference(ModelRunner(replace(short, batch_invariant=True)), []) in (None, 2, 3, 4)


def test_auto_is_on_where_rows_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_info, "batch_invariant_here", lambda *about: True)
    made, found, note = batch_invariant(model(batch_invariant=False), info(), "auto", tiny_tokenizer())
    assert isinstance(made, LeanModel) and made.batch_invariant and found.batch_invariant and note is None
    off, found, note = batch_invariant(made, info(), "off", tiny_tokenizer())
    assert isinstance(off, LeanModel) and not off.batch_invariant and not found.batch_invariant and note is None


@pytest.mark.parametrize("missing", ["batch_invariant_here", "within_its_price"])
def test_auto_says_why_it_is_off(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("batch_invariant_here", "within_its_price"):
        monkeypatch.setattr(model_info, name, lambda *about, name=name: name != missing)
    made, found, note = batch_invariant(model(), info(kernel="plain"), "auto", tiny_tokenizer())
    assert isinstance(made, LeanModel) and not made.batch_invariant and not found.batch_invariant
    assert note is not None and note.startswith("is not batch-invariant")
    if missing == "within_its_price":
        assert "10 %" in note and batch_invariant(model(), info(), "on", tiny_tokenizer())[1].batch_invariant
        return
    assert "kernel plain" in note


def test_rounded_weights_are_not_asked_for_their_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_info, "batch_invariant_here", lambda *about: True)
    monkeypatch.setattr(model_info, "within_its_price", lambda *about: False)
    assert batch_invariant(model(), info(stored="int8"), "auto", tiny_tokenizer())[1].batch_invariant


def test_what_is_found_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[object]()
    monkeypatch.setattr(invariance, "first_difference", lambda *about: asked.append(about))
    for kernel in ("packed", "packed", "plain"):
        monkeypatch.setattr("sampling.forward.kernels.autotune_cache._made", {})
        batch_invariant(model(), info(kernel=kernel), "auto", tiny_tokenizer())
    assert len(asked) == 2


def loaded(folder: Path, **options: str) -> Pair:
    return load_pair(LoadOptions(str(folder), device="cpu", dtype="float32", **options))


def test_loading_decides_and_a_difference_is_a_bug_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_info, "batch_invariant_here", lambda *about: True)
    folder = save_checkpoint(tmp_path / "llama", llama())
    assert loaded(folder).target_info.batch_invariant and not loaded(folder, batch_invariant="off").notes
    assert not loaded(folder, graphs="on").target_info.batch_invariant
    with refused("graphs on", "batch-invariant"):
        loaded(folder, graphs="on", batch_invariant="on")
    with refused("batch_invariant", "maybe", "auto", "on", "off"):
        loaded(folder, batch_invariant="maybe")
    asked = list[bool]()
    monkeypatch.setattr(comparison, "judge", lambda ask, reference, output, alike: asked.append(alike))
    for options in ({}, {"batch_invariant": "off"}):
        runs = Comparison(PairEngine(loaded(folder, **options)), {**Settings(), "length": 4}, [5, 6, 7])
        for name in ("target", "ngram"):
            list(runs.run(name))
        runs.divergence("ngram")
    assert asked == [True, False]


@needs_packed
def test_transformers_own_layers_are_batch_invariant_on_packed_products(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "gpt2", gpt2())
    packed = loaded(folder, kernel="packed", batch_invariant="on")
    assert packed.target_info.batch_invariant and packed.target_info.kernel == "packed"
    plain = loaded(folder, kernel="plain")
    assert plain.target_info.kernel == "plain" and bool(plain.notes) is not plain.target_info.batch_invariant
    loaded(folder)  # the kernel is chosen again


def test_other_models_say_why() -> None:
    other: Any = SimpleNamespace(device=torch.device("cpu"))
    for device, why in (("cpu", "keeps more than rows"), ("cuda", "is on cuda")):
        other.device = torch.device(device)
        assert batch_invariant(other, info(), "auto", tiny_tokenizer()) == (other, info(), None)
        assert batch_invariant(other, info(), "on", tiny_tokenizer()) == (other, info(), why)


def not_by_itself(runner: ModelRunner, *about: object) -> bool:
    """What a machine finds whose products are not alike: one width is left."""
    return has_one_width(runner)


def test_on_takes_one_width_where_rows_are_not_alike_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_info, "batch_invariant_here", not_by_itself)
    folder = save_checkpoint(tmp_path / "llama", llama(max_position_embeddings=512))
    pair = loaded(folder, batch_invariant="on")
    assert has_one_width(pair.target)
    assert pair.target_info.batch_invariant and pair.target_info.graphs and "16 rows" in pair.notes[-1]
    rounded = pair.in_format("int8")
    assert has_one_width(rounded.target) and rounded.target_info.batch_invariant
    with refused("one sequence at a time", "batch_invariant off"):
        shared_runner(pair.target)
    automatic = loaded(folder)
    assert not automatic.target_info.batch_invariant and not automatic.target_info.graphs
    with refused("batch_invariant on", "one width", "graphs are off", "auto or off"):
        loaded(folder, batch_invariant="on", graphs="off")
    monkeypatch.setattr(model_info, "batch_invariant_here", lambda *about: False)
    with refused("batch_invariant on", "one width", "auto or off"):
        loaded(folder, batch_invariant="on")
    with refused("batch_invariant on", "one width", "auto or off"):
        pair.in_format("int8")


def test_one_width_is_asked_of_the_machine_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[object]()
    monkeypatch.setattr(invariance, "first_difference", lambda *about: asked.append(about))
    for runner in (ModelRunner(model()), ModelRunner.with_one_width(model()), ModelRunner(model())):
        invariance.batch_invariant_here(runner, "tiny", TEXT)
    assert len(asked) == 2


class ByCount(DenseLinear):
    """A product whose sums go another way where more than one row is fed."""

    def product(self, x: Tensor) -> Tensor:
        return super().product(x) if len(x) == 1 else F.linear(x.double(), self.weight.double()).float()


def test_one_width_has_equal_bits_where_the_kernels_have_not() -> None:
    broken = model(batch_invariant=False).with_format(Format(ByCount, ByCount))
    assert first_difference(ModelRunner(broken), TEXT) == COUNTS[0]
    assert first_difference(ModelRunner.with_one_width(broken), TEXT) is None
