"""Forwards of one width: a row has the same bits alone, among drafts, on a branch of a tree and in a prompt."""

from typing import Any

import pytest
import torch
from torch import Tensor

from sampling.forward.caches import fixed
from sampling.forward.graphs import sequence_graphs
from sampling.forward.graphs.one_width import WIDTH
from sampling.forward.kernels.formats import FORMATS
from sampling.forward.models.adapter import TransformersModel
from sampling.forward.models.lean import LeanModel, from_transformers
from sampling.forward.runner import ModelRunner, feed
from tests.tiny import TOKENS, gpt2, llama, random_model

TEXT = [(3 * place * place + place) % TOKENS for place in range(90)]
BORDER = 32
"""Columns of a bucket here: the text crosses two."""


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed, "BUCKET", BORDER)


def lean(dtype: torch.dtype, window: int = 128) -> LeanModel:
    return from_transformers(random_model(llama(max_position_embeddings=window)).to(dtype), format=FORMATS["full"])


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def known(request: pytest.FixtureRequest) -> tuple[ModelRunner, Tensor]:
    """A runner, and the logits of every token of the text fed alone."""
    runner = ModelRunner.with_one_width(lean(request.param))
    return runner, torch.cat([runner.forward([token]).logits.clone() for token in TEXT])


@pytest.mark.parametrize("count", [2, 3, 5, WIDTH - 1, WIDTH, WIDTH + 1, 40, 90])
def test_rows_fed_together_have_the_bits_of_rows_fed_alone(known: tuple[ModelRunner, Tensor], count: int) -> None:
    runner, alone = known
    runner.crop(0)
    for start in range(0, len(TEXT), count):
        part = TEXT[start : start + count]
        assert torch.equal(runner.forward(part).logits, alone[start : start + len(part)])


@pytest.mark.parametrize("length", [1, 20, 30, 31, 33, 60])
def test_a_text_behind_a_prompt_does_not_know_how_it_was_read(known: tuple[ModelRunner, Tensor], length: int) -> None:
    runner, alone = known
    for reading in (TEXT[:length], TEXT[: length // 2]):
        runner.crop(0)
        feed(runner, reading)
        feed(runner, TEXT[len(reading) : length])
        assert torch.equal(runner.forward(TEXT[length : length + 7], rows=2).logits, alone[length + 5 : length + 7])


# Two lines, of which one goes on at two places; the text is the line of the drafts 1, 3, 4.
TREE, LINE = (-1, -1, 0, 1, 3, 3), (1, 3, 4)


@pytest.mark.parametrize("length", [1, 27, 29, 30, 31, 60])
def test_a_line_of_a_tree_has_the_bits_of_a_chain(known: tuple[ModelRunner, Tensor], length: int) -> None:
    runner, alone = known
    runner.crop(0)
    feed(runner, TEXT[:length])
    drafts = [9, TEXT[length + 1], 11, TEXT[length + 2], TEXT[length + 3], 12]
    tree = runner.forward([TEXT[length], *drafts], TREE, hidden=(1,))
    rows = [0, *(row + 1 for row in LINE)]
    assert torch.equal(tree.logits[rows], alone[length : length + 4])
    assert tree.hidden[1].shape[0] == len(drafts) + 1
    runner.keep(length, LINE)
    behind = TEXT[length + 4 : length + 10]
    assert torch.equal(runner.forward(behind).logits, alone[length + 4 : length + 10])


def test_a_tree_of_more_rows_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its paths are short, and its rows many."""
    monkeypatch.setattr(fixed, "ROOM", 512)
    runner = ModelRunner.with_one_width(lean(torch.float32, window=1024))
    feed(runner, [place % TOKENS for place in range(490)])
    alone = runner.forward([3, 4]).logits.clone()
    runner.crop(490)
    tree = runner.forward([3, *[9] * 30, 4], [-1] * 31)
    assert torch.equal(tree.logits[[0, 31]], alone) and runner.length == 490 + 32
    runner.keep(490, (30,))
    assert runner.length == 492


def test_a_tree_is_what_the_other_runners_say() -> None:
    model: LeanModel = from_transformers(random_model(llama()).double())
    plain, other = ModelRunner(model), ModelRunner.with_one_width(model)
    for runner in (plain, other):
        feed(runner, TEXT[:29])
    for runner in (plain, other):
        runner.forward(TEXT[29:33], hidden=(0, 3))
    said, ours = (runner.forward([5, 9, 2, 7, 7, 30, 4], TREE, hidden=(0, 3), rows=5) for runner in (plain, other))
    torch.testing.assert_close(said.logits, ours.logits, rtol=0.0, atol=1e-5)
    for layer in (0, 3):
        torch.testing.assert_close(said.hidden[layer], ours.hidden[layer], rtol=0.0, atol=1e-5)
    for runner in (plain, other):
        runner.keep(33, (0, 2))
    torch.testing.assert_close(plain.forward([1]).logits, other.forward([1]).logits, rtol=0.0, atol=1e-5)


def test_a_layer_of_transformers_own_runs_in_one_width() -> None:
    model = TransformersModel(random_model(gpt2()))
    runner = ModelRunner(model)
    runner.forward(TEXT[:4])
    from sampling.loading.refusals.probe import why_not_fixed

    assert why_not_fixed(model, TEXT[:8]) is None
    one = ModelRunner.with_one_width(model)
    alone = torch.cat([one.forward([token]).logits.clone() for token in TEXT[:40]])
    one.crop(0)
    assert torch.equal(one.forward(TEXT[:40]).logits, alone)


def test_ctrl_c_between_two_parts_leaves_the_text_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    known, runner = (ModelRunner.with_one_width(lean(torch.float32)) for _ in range(2))
    for one in (known, runner):
        feed(one, TEXT[:10])
    parts, step = list[int](), sequence_graphs._step

    def stopped(*given: Any) -> Any:
        parts.append(1)
        if len(parts) == 2:
            raise KeyboardInterrupt
        return step(*given)

    monkeypatch.setattr(sequence_graphs, "_step", stopped)
    with pytest.raises(KeyboardInterrupt):
        runner.forward(TEXT[10:50])
    assert runner.length == 10
    assert torch.equal(runner.forward(TEXT[10:50]).logits, known.forward(TEXT[10:50]).logits)
