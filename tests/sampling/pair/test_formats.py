"""A target in another format of its weights: what its values become, and that every method says what its AR says."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config

from sampling.forward.kernels import int4, int8
from sampling.forward.kernels.formats import FORMATS, refuse_format
from sampling.forward.kernels.int4 import Int4Linear, on_grid
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.kernels.quantisation_scales import GROUP
from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner, prefill
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.methods.settings import Settings
from sampling.methods.tables import METHODS
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.pair_messages import own_layers
from tests.heads import random_heads
from tests.refusals import refused
from tests.tiny import TOKENS, llama, random_model, save_checkpoint
from tests.tiny_heads import saved, task_of
from tests.tiny_models import ids
from utils.events import Round

pytestmark = pytest.mark.skipif(not (int8.runs() and int4.runs()), reason="this CPU or torch lacks the products")
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}


def back(weight: torch.Tensor) -> torch.Tensor:
    levels, steps, lowest = on_grid(weight)
    return (levels * steps.unsqueeze(-1) + lowest.unsqueeze(-1)).flatten(1)


@pytest.mark.parametrize("lowest", [-8, 0])
def test_values_that_lie_on_a_grid_of_sixteen_levels_are_kept_bit_for_bit(lowest: int) -> None:
    """As Q4_0 stores them (levels from -8, no minimum) and Q4_1 (levels from 0, a minimum)."""
    chance = torch.Generator().manual_seed(0)
    levels = torch.randint(lowest, lowest + 16, (48, 8, GROUP), generator=chance).float()
    levels[0, 0] = 3  # a group of one value, and groups that reach only some of the levels
    levels[1] = levels[1].clamp(lowest + 2, lowest + 9)
    steps, minimum = (torch.rand(48, 8, 1, generator=chance).half().float() for _ in range(2))
    weight = (levels * steps + (minimum if lowest == 0 else 0)).flatten(1)
    torch.testing.assert_close(back(weight), weight, rtol=2**-22, atol=2**-22)


def test_other_values_are_off_by_half_a_step_at_most() -> None:
    weight = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    steps = (weight.unflatten(1, (-1, GROUP)).amax(-1) - weight.unflatten(1, (-1, GROUP)).amin(-1)) / 15
    assert bool(((back(weight) - weight).unflatten(1, (-1, GROUP)).abs() <= steps.unsqueeze(-1) * 0.5001).all())


def test_products_in_int4_are_those_of_the_rounded_weights_to_bfloat16() -> None:
    chance = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(48, 96, generator=chance), torch.randn(48, generator=chance)
    x = torch.randn(5, 96, generator=chance) * torch.logspace(-2, 2, 5).unsqueeze(1)
    expected = DenseLinear(back(weight), bias)(x)
    for row, right in zip(Int4Linear(weight, bias)(x), expected, strict=True):
        assert (row - right).norm() < 0.02 * right.norm()
    again = Int4Linear(weight, bias).with_kernel(DenseLinear)(x)
    assert (again - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_a_row_depends_on_no_other(name: str) -> None:
    x = torch.randn(19, 64, generator=torch.Generator().manual_seed(0))
    x[1] *= 1000
    layer = FORMATS[name].blocks(torch.randn(48, 64, generator=torch.Generator().manual_seed(1)))
    for count in (1, 2, 3, 4, 5, 8, 9, 16, 17):
        assert torch.equal(layer(x[:count]), layer(x)[:count])
        assert torch.equal(layer(x[-count:]), layer(x)[-count:])


PROMPT, DRAFTS, PARENTS = 37, (5, 9, 200, 7, 30), (-1, -1, 0, 2, 1)


@pytest.mark.parametrize("name", ["int8", "int4"])
@pytest.mark.parametrize("rows", [2, 5, 17, PROMPT])
def test_a_row_is_the_same_bit_for_bit_however_many_are_fed_with_it(name: str, rows: int) -> None:
    """Across a multiple of the unit, and behind a rollback that leaves stale rows."""
    model = lean.from_transformers(random_model(llama(**SIZES), 0), format=FORMATS[name])
    said, alone, together = ids(PROMPT), ModelRunner(model), ModelRunner(model)
    expected = torch.cat([alone.forward([token]).logits for token in said])
    together.forward(ids(PROMPT, 3))
    together.crop(0)
    found = torch.cat([together.forward(said[at : at + rows]).logits for at in range(0, PROMPT, rows)])
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_a_tree_and_branches_are_the_same_bit_for_bit_as_their_paths(name: str) -> None:
    model = lean.from_transformers(random_model(llama(**SIZES), 0), format=FORMATS[name])
    tree, alone, said = ModelRunner(model), ModelRunner(model), ids(PROMPT)
    prefill(tree, said[:-1])
    found = tree.forward([said[-1], *DRAFTS], PARENTS).logits
    for path in ((0, 2, 3), (1, 4)):
        prefill(alone, said[:-1])
        expected = torch.cat([alone.forward([token]).logits for token in (said[-1], *(DRAFTS[i] for i in path))])
        assert torch.equal(found[[0, *(i + 1 for i in path)]], expected)
    tree.keep(PROMPT - 1, (1, 4))
    assert torch.equal(tree.forward([17]).logits, alone.forward([17]).logits)


@cache
def engine(name: str) -> PairEngine:
    target = lean.from_transformers(random_model(llama(**SIZES), 0), format=FORMATS[name])
    other = lean.from_transformers(random_model(llama(**SIZES), 0))
    info = ModelInfo("tiny", "cpu", "float32")
    pair = Pair(ModelRunner(target), ModelRunner(other), None, frozenset(), info, info)  # type: ignore[arg-type]
    return PairEngine(pair)


@cache
def spoken(name: str, method: str, seed: int) -> list[int]:
    settings = Settings()
    settings.assign_all([("length", "48"), ("processor", "greedy"), ("gamma", "3"), ("draft_weights", "full")])
    rounds = [event for event in engine(name).stream(method, settings, ids(9, seed)) if isinstance(event, Round)]
    return [token for round in rounds for token in round.emitted]


@pytest.mark.parametrize("name", ["int8", "int4"])
@pytest.mark.parametrize("method", ["speculative", "ngram", "prompt_lookup", "suffix", "recycling"])
def test_every_method_says_what_plain_decoding_on_the_same_weights_says(name: str, method: str) -> None:
    for seed in range(3):
        assert spoken(name, method, seed) == spoken(name, "target", seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("target"), llama(**SIZES))


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_a_target_is_loaded_in_a_format_and_records_say_so(folder: Path, name: str) -> None:
    pair = load_pair(LoadOptions(str(folder), device="cpu", target_weights=name))
    assert (pair.target_info.stored, pair.target_info.kernel, pair.target_info.dtype) == (name, None, "float32")
    plain = load_pair(LoadOptions(str(folder), device="cpu", dtype="float32"))
    mine, theirs = (one.target.forward(ids(9)).logits for one in (pair, plain))
    assert not torch.equal(mine, theirs) and (mine - theirs).norm() < 0.35 * theirs.norm()


@pytest.mark.parametrize("weights", ["full", "int8"])
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_a_target_drafts_for_itself_in_another_format(folder: Path, weights: str, name: str) -> None:
    pair = load_pair(LoadOptions(str(folder), f"self:{name}", device="cpu", dtype="float32", target_weights=weights))
    assert pair.drafter_info is not None and pair.drafter_info.stored == name
    assert pair.target_info.stored == weights
    settings = Settings()
    settings.assign_all([("length", "40"), ("processor", "greedy"), ("gamma", "3")])
    rounds = [one for one in PairEngine(pair).stream("speculative", settings, ids(9)) if isinstance(one, Round)]
    plain = [one for one in PairEngine(pair).stream("target", settings, ids(9)) if isinstance(one, Round)]
    assert [t for one in rounds for t in one.emitted] == [t for one in plain for t in one.emitted]
    assert sum(one.accepted for one in rounds) > sum(len(one.drafts) for one in rounds) / 8


@pytest.mark.parametrize("weights", ["full", "int8"])
@pytest.mark.parametrize(
    ("inner", "tree"), [("mtp", "chain"), ("eagle", "dynamic"), ("medusa", "chain"), ("prompt_lookup", "chain")]
)
def test_the_rounded_self_is_drafted_for_in_turn(folder: Path, weights: str, inner: str, tree: str) -> None:
    pair = load_pair(LoadOptions(str(folder), "self:int4", device="cpu", dtype="float32", target_weights=weights))
    heads = random_heads(64, 2, pair.target.window, tuple(range(TOKENS)), TOKENS)
    engine = PairEngine(replace(pair, drafter_heads=heads))
    settings = Settings()
    settings.assign_all([("length", "40"), ("gamma", "4"), ("staged_drafter", inner), ("draft_tree", tree)])
    for seed in range(3):
        said = {
            name: [one for one in engine.stream(name, settings, ids(9, seed)) if isinstance(one, Round)]
            for name in ("target", "staged")
        }
        texts = {name: [token for one in rounds for token in one.emitted] for name, rounds in said.items()}
        assert texts["staged"] == texts["target"]
        assert any(inside.drafts for one in said["staged"] for inside in one.inner)


def test_heads_of_a_target_draft_for_its_rounded_self_and_for_no_other_model(folder: Path, tmp_path: Path) -> None:
    task = task_of("mtp", lean.from_transformers(random_model(llama(**SIZES), 0)))
    given = LoadOptions(str(folder), "self:int8", device="cpu", dtype="float32", heads=str(saved(task, tmp_path)))
    pair = load_pair(given)
    assert pair.drafter_heads == pair.heads == {"mtp": tmp_path}
    other = load_pair(replace(given, drafter=str(save_checkpoint(tmp_path / "other", llama(**SIZES), seed=1))))
    assert other.heads == {"mtp": tmp_path} and not other.drafter_heads
    assert "no mtp head for the drafter model" in str(other.lacks(METHODS["staged"], Settings()))


@pytest.mark.parametrize(
    ("given", "quoted"),
    [
        ({"target_weights": "int5"}, ("target_weights", "'int5'", "int8", "int4")),
        ({"drafter": "self:int5"}, ("--drafter", "'self:int5'", "self:int8", "self:int4")),
        ({"drafter": "self:full"}, ("--drafter", "'self:full'", "self:int8", "self:int4")),
    ],
)
def test_other_formats_are_refused(folder: Path, given: dict[str, str], quoted: tuple[str, ...]) -> None:
    with refused(*quoted):
        load_pair(LoadOptions(str(folder), device="cpu", dtype="float32", **given))


def test_a_model_without_a_lean_forward_keeps_its_weights(tmp_path: Path) -> None:
    gpt2 = save_checkpoint(tmp_path / "gpt2", GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=TOKENS))
    with refused(own_layers("target_weights int8", "gpt2")):
        load_pair(LoadOptions(str(gpt2), device="cpu", dtype="float32", target_weights="int8"))
    with refused("--drafter self:int8", "gpt2", "docs/models.md"):
        load_pair(LoadOptions(str(gpt2), "self:int8", device="cpu", dtype="float32"))


def test_a_format_without_products_on_the_device_is_refused() -> None:
    with refused("target_weights int4", "meta", "full"):
        refuse_format("int4", torch.device("meta"), "target_weights int4")
    refuse_format("full", torch.device("meta"), "target_weights full")
