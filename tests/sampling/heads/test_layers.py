"""Heads of several layers and with windows draft what a plain forward over the whole text says, in float64.

The reference is `tests.published_reference.eagle3`: no cache, teacher-forced, the tokens of one path at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from sampling.distill.tasks import last_blocks
from sampling.forward.kernels import probe
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.models import lean
from sampling.forward.models.blocks import Blocks
from sampling.forward.models.steps import Norm
from sampling.forward.requests import run_batched, run_single
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import load_head, save_head
from sampling.heads.inference import RecurrentForward
from sampling.heads.published.formats import read_head
from sampling.heads.recurrent import RecurrentHead
from sampling.heads.recurrent_runner import RecurrentRunner, RecurrentSlot
from tests import published_reference
from tests.published import LLAMA, SIZE, Made, eagle3_counted, speculators, write
from tests.published_reference import Text
from tests.refusals import refused
from tests.tiny_models import VOCAB, ids, make

WINDOWS: Sequence[tuple[int, ...]] = ((0,), (4,), (1,), (0, 0), (5, 3), (0, 4), (0, 0, 0), (3, 0, 6), (40, 2, 0))
ROWS, EXACT = 14, 1e-10


@dataclass(frozen=True)
class Given(Text):
    """A text whose states were given, `[T, H]` each, and not computed by a target."""

    read: Sequence[Tensor]

    def states(self) -> list[Tensor]:
        return list(self.read)

    def embedding(self) -> Tensor:
        return super().embedding().double()


@dataclass(frozen=True)
class Tried:
    """A head in float64, what lies on disk, and a text."""

    forward: RecurrentForward
    model: PreTrainedModel
    config: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    tokens: Sequence[int]
    states: Sequence[Tensor]

    def expected(self, tokens: Sequence[int], drafts: Sequence[int]) -> Tensor:
        """Logits `[len(drafts) + 1, V]` behind the text and behind each draft of a path."""
        read = [state[: len(tokens) - 1] for state in self.states]
        text = Given(self.model, tokens, drafts, read)
        return published_reference.eagle3(text, self.config, self.weights)

    def slot(self, graphs: bool = False) -> RecurrentSlot:
        return RecurrentRunner(self.forward, graphs).another()

    def rows(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Tokens and features of rows of the text."""
        tokens = torch.tensor(self.tokens[start + 1 : stop + 1])
        return tokens, self.forward.read([self.states[layer][start:stop] for layer in self.forward.config.features])


def made_of(windows: Sequence[int]) -> Made:
    """speculators' layout, a layer for each window, 0 = none."""
    _, weights = eagle3_counted(len(windows))
    kinds = ["sliding_attention" if window else "full_attention" for window in windows]
    inner = LLAMA | {"num_hidden_layers": len(windows), "layer_types": kinds, "sliding_window": max(windows)}
    return speculators("eagle3", inner, draft_vocab_size=len(weights["d2t"])), weights


@lru_cache
def targets() -> tuple[PreTrainedModel, lean.LeanModel]:
    """The model, and the same in float64."""
    return make("llama"), lean.from_transformers(make("llama").double())


@pytest.fixture(autouse=True)
def dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products in the dtype of their rows: a CPU's kernel for others than float32 computes many rows in float32."""
    monkeypatch.setattr(probe, "kernel", lambda *_: DenseLinear)


def in_double(forward: RecurrentForward) -> RecurrentForward:
    """The same, its norms in the dtype of their weights, as a card computes them: a CPU's take float32."""
    layers = [norm for layer in forward.blocks.layers for _, norm in layer.norms()]
    beside = (forward.embed_norm, forward.feature_norm, forward.norm, *forward.state_norms)
    for norm in (*layers, *filter(None, beside)):
        norm._short = False
    return forward


def tried(windows: tuple[int, ...], folder: Path, **changes: Any) -> Tried:
    """changes: of the head's config, so that it is not what the reference computes."""
    model, target = targets()
    torch.manual_seed(4)
    config, weights = made_of(windows)
    head = read_head(write(folder, (config, weights), "model.safetensors"), target)
    sizes = windows if any(windows) else ()
    assert head.config.layers == len(windows)
    assert head.config.attention_windows == tuple(max(windows) if size else 0 for size in sizes)
    head = replace(head, config=replace(head.config, **{"attention_windows": sizes, **changes}))
    forward = in_double(RecurrentForward.of(head, target))
    inner = config["transformer_layer_config"] | {"windows": windows}
    wide = {name: weight.double() if weight.is_floating_point() else weight for name, weight in weights.items()}
    states = [torch.randn(ROWS, SIZE, dtype=torch.float64) for _ in range(target.num_layers + 1)]
    given = config | {"transformer_layer_config": inner}
    return Tried(forward, model, given, wide, ids(ROWS + 1, seed=2), states)


def gap(found: Tensor, expected: Tensor) -> float:
    """The largest difference of logits that are drafted from; the others are hidden in both."""
    drafted = expected.isfinite()
    assert drafted.sum() >= 80 * len(expected) and (found[~drafted] < -1e30).all()
    return float((found[drafted] - expected[drafted]).abs().max())


def chain(slot: RecurrentSlot, rows: tuple[Tensor, Tensor], drafts: Sequence[int]) -> Tensor:
    """Logits behind more rows of the text, and behind each draft of a chain."""
    logits = [run_single(slot.feed(*rows)).clone()]
    return torch.cat(logits + [run_single(slot.branch(torch.tensor([draft]))).clone() for draft in drafts])


@pytest.mark.parametrize("graphs", [False, True], ids=["", "fixed shapes"])
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@torch.inference_mode()
def test_chains_are_those_of_a_plain_forward(windows: tuple[int, ...], graphs: bool, tmp_path: Path) -> None:
    made, drafts = tried(windows, tmp_path), [17, 65, 3, 99]
    slot = made.slot(graphs)
    slot.read(*made.rows(0, 9))
    found = chain(slot, made.rows(9, ROWS), drafts)
    assert found.dtype == torch.float64
    assert gap(found, made.expected(made.tokens, drafts)) < EXACT


@pytest.mark.parametrize("graphs", [False, True], ids=["", "fixed shapes"])
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@torch.inference_mode()
def test_every_path_of_a_tree_is_that_of_a_plain_forward(
    windows: tuple[int, ...], graphs: bool, tmp_path: Path
) -> None:
    made = tried(windows, tmp_path)
    slot = made.slot(graphs)
    slot.read(*made.rows(0, 9))
    run_single(slot.feed(*made.rows(9, ROWS)))
    layers = ([17, 65], [-1, -1]), ([3, 99, 40], [0, 0, 1]), ([8, 12], [3, 4])
    drafts, parents, found = list[int](), list[int](), list[Tensor]()
    for tokens, below in layers:
        found.append(run_single(slot.branch(torch.tensor(tokens), torch.tensor(below))).clone())
        drafts, parents = [*drafts, *tokens], [*parents, *below]
    for node, logits in enumerate(torch.cat(found)):
        path, at = list[int](), node
        while at >= 0:
            path.insert(0, drafts[at])
            at = parents[at]
        expected = made.expected(made.tokens, path)[-1:]
        assert gap(logits[None], expected) < EXACT, (node, path)


@pytest.mark.parametrize("windows", [(4,), (0, 0), (0, 4), (3, 0, 6)], ids=str)
@torch.inference_mode()
def test_rows_that_are_taken_back_leave_nothing(windows: tuple[int, ...], tmp_path: Path) -> None:
    made, drafts = tried(windows, tmp_path), [17, 65, 3]
    slot = made.slot()
    slot.read(*made.rows(0, 6))
    chain(slot, made.rows(6, 9), [50, 51, 52, 53])
    run_single(slot.branch(torch.tensor([1, 2]), torch.tensor([-1, 3])))
    assert gap(chain(slot, made.rows(9, 12), drafts), made.expected(made.tokens[:13], drafts)) < EXACT
    slot.crop(5)
    assert gap(chain(slot, made.rows(5, 8), drafts), made.expected(made.tokens[:9], drafts)) < EXACT


@pytest.mark.parametrize("windows", [(4,), (0, 0), (3, 0, 6)], ids=str)
@torch.inference_mode()
def test_texts_side_by_side_draft_what_each_drafts_alone(windows: tuple[int, ...], tmp_path: Path) -> None:
    made = tried(windows, tmp_path)
    runner = RecurrentRunner(made.forward)
    slots, lengths = [runner.another() for _ in range(3)], (4, 9, ROWS)
    for slot, length in zip(slots, lengths, strict=True):
        slot.read(*made.rows(0, length - 1))
    steps = [slot.feed(*made.rows(length - 1, length)) for slot, length in zip(slots, lengths, strict=True)]
    tree, below = (torch.tensor([17, 65]), torch.tensor([-1, -1])), (torch.tensor([3]), torch.tensor([1]))
    found = [[rows.clone() for rows in run_batched(steps)[0] if isinstance(rows, Tensor)]]
    for fed in (tree, below):
        logits, _ = run_batched([slot.branch(*fed) for slot in slots])
        found.append([rows[-1:].clone() for rows in logits if isinstance(rows, Tensor)])
    for length, *path in zip(lengths, *found, strict=True):
        assert gap(torch.cat(path), made.expected(made.tokens[: length + 1], [65, 3])) < EXACT


def mistaken(made: Tried) -> float:
    """How far a chain is from the reference."""
    slot, drafts = made.slot(), [17, 65, 3]
    slot.read(*made.rows(0, 9))
    return gap(chain(slot, made.rows(9, ROWS), drafts), made.expected(made.tokens, drafts))


@pytest.mark.parametrize(
    ("windows", "wrong"),
    [((4,), (3,)), ((4,), (5,)), ((0, 4), (0, 5)), ((5, 3), (3, 5)), ((0, 4), (4, 0)), ((0, 4), ())],
    ids=str,
)
@torch.inference_mode()
def test_another_window_is_noticed(windows: tuple[int, ...], wrong: tuple[int, ...], tmp_path: Path) -> None:
    assert mistaken(tried(windows, tmp_path)) < EXACT
    assert mistaken(tried(windows, tmp_path, attention_windows=wrong)) > 1e-3


class Misread(Norm):
    """A later layer that reads half of what the first one reads: the normed feature."""

    instead: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return self.instead


class Misfed(RecurrentForward):
    """Its second layer reads what the first one reads."""

    def rows(self, tokens: Tensor, feature: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        norm = self.blocks.layers[1].attention_norm
        assert isinstance(norm, Misread) and self.feature_norm is not None
        norm.instead = self.feature_norm(feature)
        return super().rows(tokens, feature, *rest)


def with_layers(forward: RecurrentForward, layers: Sequence[Any], kind: type[RecurrentForward]) -> RecurrentForward:
    blocks = Blocks(tuple(layers), forward.blocks.tables, forward.blocks.shape)
    parts = {field.name: getattr(forward, field.name) for field in fields(RecurrentForward)}
    return kind(**{**parts, "blocks": blocks})


@torch.inference_mode()
def test_a_second_layer_that_is_misfed_left_out_or_moved_is_noticed(tmp_path: Path) -> None:
    made = tried((0, 0, 0), tmp_path)
    first, second, third = made.forward.blocks.layers
    assert second.attention_norm is not None
    misread = replace(second, attention_norm=Misread(second.attention_norm.weight, 1e-3))
    wrong = {
        "misfed": with_layers(made.forward, (first, misread, third), Misfed),
        "left out": with_layers(made.forward, (first, third), RecurrentForward),
        "moved": with_layers(made.forward, (first, third, second), RecurrentForward),
    }
    assert mistaken(replace(made, forward=with_layers(made.forward, (first, second, third), RecurrentForward))) < EXACT
    for name, forward in wrong.items():
        assert mistaken(replace(made, forward=forward)) > 1e-2, name


def trained(layers: int, windows: tuple[int, ...]) -> tuple[HeadConfig, RecurrentHead]:
    config = HeadConfig(
        "eagle", "tiny", "", SIZE, VOCAB, VOCAB, features=(1, 2), layers=layers, intermediate_size=40,
        heads=4, kv_heads=2, head_dim=12, attention_windows=windows,
    )  # fmt: skip
    torch.manual_seed(0)
    return config, RecurrentHead(config)


def test_a_head_of_several_layers_lies_on_disk_as_it_was(tmp_path: Path) -> None:
    config, module = trained(3, (4, 0, 2))
    save_head(tmp_path, config, module.state_dict(), torch.arange(VOCAB))
    loaded = load_head(tmp_path)
    assert loaded.config == config
    assert sum(name.startswith("later.") for name in loaded.weights) == 2 * 9
    for name, weight in module.state_dict().items():
        assert torch.equal(loaded.weights[name], weight.bfloat16().float())


def test_windows_of_another_kind_are_refused(tmp_path: Path) -> None:
    config, module = trained(1, (4,))
    save_head(tmp_path, replace(config, method="medusa"), module.state_dict(), torch.arange(VOCAB))
    with refused(tmp_path, "attention_windows", "medusa"):
        load_head(tmp_path)


def test_later_blocks_begin_as_the_targets_last() -> None:
    assert last_blocks(1, 30) == {"block.": "model.layers.29."}
    assert last_blocks(3, 30) == {
        "block.": "model.layers.27.",
        "later.0.": "model.layers.28.",
        "later.1.": "model.layers.29.",
    }
