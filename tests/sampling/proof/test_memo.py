from typing import Any

import pytest
import torch

from sampling.forward.causal_model import Output
from sampling.forward.runner import ModelRunner, prefill
from sampling.proof.memo import MemoProcessor, MemoRunner
from tests.refusals import refused
from tests.tiny import tiny_llama
from utils.logits_processor import MultinomialProcessor

PROMPT, ROOT, TREE, PARENTS = [5, 6, 7, 8], 9, [10, 11, 12, 13], (-1, -1, 0, 2)


@pytest.mark.parametrize("parents", [None, PARENTS])
@torch.inference_mode()
def test_rows_hidden_states_and_what_is_kept_equal_the_runner(parents: tuple[int, ...] | None) -> None:
    model = tiny_llama()
    memo, runner = MemoRunner(ModelRunner(model)), ModelRunner(model)
    for one in (memo, runner):
        prefill(one, PROMPT)
    outputs = [one.forward([ROOT, *TREE], parents, hidden=(1, 3)) for one in (memo, runner)]
    torch.testing.assert_close(outputs[0].logits, outputs[1].logits)
    for layer in (1, 3):
        torch.testing.assert_close(outputs[0].hidden[layer], outputs[1].hidden[layer])
    path = (0, 1) if parents is None else (0, 2, 3)
    for one in (memo, runner):
        one.keep(len(PROMPT), path)
        assert one.length == len(PROMPT) + 1 + len(path)
    torch.testing.assert_close(memo.forward([3]).logits, runner.forward([3]).logits)


def test_a_row_is_computed_once() -> None:
    model, forwards = tiny_llama(), []

    class Counted(ModelRunner):
        def another(self) -> ModelRunner:
            return Counted(self.model)

        def forward(self, tokens: Any, *args: Any, **how: Any) -> Output:
            forwards.append(tokens)
            return super().forward(tokens, *args, **how)

    memo = MemoRunner(Counted(model))
    first = memo.forward([1, 2, 3]).logits
    fed = len(forwards)
    memo.crop(1)
    assert torch.equal(memo.forward([2, 3]).logits, first[1:]) and len(forwards) == fed
    other = memo.another()
    assert torch.equal(other.forward([1, 2, 3]).logits, first) and len(forwards) == fed
    memo.crop(1)
    memo.forward([2, 4])
    assert len(forwards) == fed + 1


def test_logits_are_those_of_the_first_time_whatever_states_are_asked_for_later() -> None:
    """As on a model in bfloat16, whose row is another one beside other rows."""

    class Rounding(ModelRunner):
        def another(self) -> ModelRunner:
            return Rounding(self.model)

        def forward(self, tokens: Any, *args: Any, **how: Any) -> Output:
            output = super().forward(tokens, *args, **how)
            return Output(output.logits + torch.rand(()), output.hidden)

    memo = MemoRunner(Rounding(tiny_llama()))
    first = memo.forward([1, 2, 3]).logits
    for hidden in ((1,), (1, 3), ()):
        memo.crop(0)
        again = memo.forward([1, 2, 3], hidden=hidden)
        assert torch.equal(again.logits, first) and set(again.hidden) == set(hidden)


def test_cannot_crop_to_more() -> None:
    with refused(0, 1, error=ValueError):
        MemoRunner(ModelRunner(tiny_llama())).crop(1)


def test_a_distribution_is_computed_once_and_never_taken_from_a_row_that_begins_alike() -> None:
    """Rows that agree in their first 16 logits and differ behind them."""
    computed: list[torch.Tensor] = []

    class Counting(MultinomialProcessor):
        def __call__(self, logits: torch.Tensor) -> torch.Tensor:
            computed.append(logits)
            return super().__call__(logits)

    logits = torch.zeros(3, 20)
    logits[1, 19] = 2.0
    memo = MemoProcessor(Counting(1.0))
    for _ in range(2):
        torch.testing.assert_close(memo(logits), MultinomialProcessor(1.0)(logits))
    assert len(computed) == 2
