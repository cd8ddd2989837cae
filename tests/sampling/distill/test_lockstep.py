"""Texts that are written side by side on a card: each is what it would be alone, with the states of its own tokens."""

import gc
import random
from weakref import ref

import pytest
import torch
from transformers import LlamaForCausalLM, MistralForCausalLM

from sampling.distill.lockstep.texts import Lockstep, Started
from sampling.distill.lockstep.writer import LockstepWriter
from sampling.distill.writing import WritingOptions
from sampling.forward.models import lean
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, prefill
from tests.emulated_graphs import emulate
from tests.tiny import llama, mistral, tiny_tokenizer
from utils.device.captured import failures

LAYERS = (1, 2)


@pytest.fixture(scope="module")
def model() -> LeanModel:
    torch.manual_seed(0)
    return lean.from_transformers(LlamaForCausalLM(llama()).eval())


@pytest.fixture(scope="module")
def windowed() -> LeanModel:
    """Each token sees 16."""
    torch.manual_seed(0)
    return lean.from_transformers(MistralForCausalLM(mistral()).eval())


def alone(model: LeanModel, start: list[int], room: int, stop: frozenset[int]) -> list[int]:
    """What plain decoding says, token by token."""
    runner, text = ModelRunner(model), list(start)
    prefill(runner, start[:-1])
    while len(text) < len(start) + room and (text == start or text[-1] not in stop):
        text.append(int(runner.forward([text[-1]]).logits[-1].argmax()))
    return text


@pytest.mark.parametrize("name", ["model", "windowed"])
def test_greedy_texts_are_those_of_plain_decoding(name: str, request: pytest.FixtureRequest) -> None:
    """With the states of their tokens."""
    model: LeanModel = request.getfixturevalue(name)
    chance = random.Random(0)
    starts = [Started([chance.randrange(5, 50) for _ in range(length)], greedy=True) for length in (3, 70, 11)]
    first = alone(model, starts[0].tokens, 12, frozenset())
    stop = frozenset({first[3 + 4]})
    lockstep = Lockstep(model, 4, 70 + 12, LAYERS, WritingOptions(top_k=8), stop)
    for _ in range(2):
        texts = lockstep.write(starts, 12)
        assert texts == [alone(model, start.tokens, 12, stop) for start in starts]
        assert len(texts[0]) < 3 + 12 and texts[0][-1] in stop
    for row, start, text in zip(lockstep.rows(texts, starts), starts, texts, strict=True):
        assert (row.tokens.tolist(), row.answer, row.greedy) == (text, len(start.tokens), True)
        for layer, states in prefill(ModelRunner(model), text[:-1], LAYERS).items():
            assert len(row.states[layer]) == len(text)
            torch.testing.assert_close(row.states[layer][:-1].float(), states.float(), rtol=0.01, atol=0.01)


def test_a_captured_step_writes_the_same_and_lets_go_of_its_memory(
    model: LeanModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = [Started([5, 6, 7], greedy=True), Started(list(range(5, 70)), greedy=False)]

    def written() -> tuple[list[list[int]], list[torch.Tensor]]:
        torch.manual_seed(2)
        lockstep = Lockstep(model, 2, 65 + 9, LAYERS, WritingOptions(top_k=8), frozenset({2}))
        texts, alive = lockstep.write(starts, 9), ref(lockstep)
        states = [row.states[2][:-1] for row in lockstep.rows(texts, starts)]
        gc.disable()
        del lockstep
        gc.enable()
        assert alive() is None
        return texts, states

    plain, before = written(), len(failures())
    emulate(monkeypatch)
    captured = written()
    assert len(failures()) == before and captured[0] == plain[0]
    for one, other in zip(captured[1], plain[1], strict=True):
        assert torch.equal(one, other)


def test_drawn_texts_follow_the_distribution_over_the_likeliest(model: LeanModel) -> None:
    texts, start = 4000, [7, 8, 9]
    lockstep = Lockstep(model, texts, len(start) + 1, (), WritingOptions(top_k=4, temperature=2.0), frozenset())
    torch.manual_seed(1)
    said = torch.tensor([text[-1] for text in lockstep.write([Started(start, greedy=False)] * texts, 1)])
    runner = ModelRunner(model)
    prefill(runner, start[:-1])
    likely, ids = runner.forward([start[-1]]).logits[-1].topk(4)
    shares = torch.stack([(said == token).float().mean() for token in ids])
    assert shares.sum() == 1
    torch.testing.assert_close(shares, torch.softmax(likely / 2.0, 0), rtol=0, atol=0.03)


def test_the_writer_converses_and_answers(model: LeanModel) -> None:
    how = WritingOptions(batch=8, user_tokens=6, answer_tokens=10, seed=3)
    asked = list[str]()

    def writer() -> LockstepWriter:
        return LockstepWriter(model, tiny_tokenizer(), frozenset({2}), LAYERS, how)

    def refused(turn: str) -> bool:
        asked.append(turn)
        return len(asked) % 3 == 0

    state = torch.get_rng_state()
    rows = writer().converse(200, refused, lambda *_: None)
    assert torch.equal(state, torch.get_rng_state())
    assert sum(len(row.tokens) - row.answer for row in rows) >= 200
    assert len(rows) == len(asked) - len(asked) // 3
    assert {row.greedy for row in rows} == {True, False}
    asked.clear()
    again = writer().converse(200, refused, lambda *_: None)
    assert [row.tokens.tolist() for row in again] == [row.tokens.tolist() for row in rows]
    told = list[tuple[int, int]]()
    answers = writer().answer(["a longer question, this one", "one", "two"], lambda *said: told.append(said))
    assert told[-1] == (3, 3) and [row.answer for row in answers] == sorted(row.answer for row in answers)
    tokens = [tiny_tokenizer().decode(row.tokens.tolist()) for row in answers]
    assert all(any(turn in text for text in tokens) for turn in ("longer question", "one", "two"))
