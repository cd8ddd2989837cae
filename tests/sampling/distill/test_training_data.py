"""What heads are trained on: dialogues of the target, kept whole, and what is held out of them."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from sampling.distill.batches import batches, frequent_tokens, split
from sampling.distill.shards import TrainingRow, read_shards, save_shard
from sampling.distill.writing import Dialogue, Writer, WritingOptions
from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner, prefill
from tests.refusals import refused
from tests.tiny import llama, tiny_tokenizer


def test_shards_keep_dialogues_whole(tmp_path: Path) -> None:
    dialogues = [
        Dialogue([1, 2, 3], 1, True, {2: torch.ones(2, 4, dtype=torch.bfloat16)}),
        Dialogue([4, 5], 1, False, {2: torch.full((1, 4), 2.0, dtype=torch.bfloat16)}),
    ]
    save_shard(tmp_path, dialogues)
    first, second = read_shards(tmp_path)
    assert (first.tokens.tolist(), first.answer, first.greedy) == ([1, 2, 3], 1, True)
    assert (second.tokens.tolist(), second.greedy) == ([4, 5], False)
    assert second.states[2][0].tolist() == [2.0] * 4
    order = [[len(part) for part in batches([first, second], 3, 0, epoch)] for epoch in (0, 1)]
    assert order == [[1, 1], [1, 1]]
    assert frequent_tokens([first, second, second], 3, [9], 10).tolist() == [4, 5, 9]


@pytest.mark.parametrize("greedy", [True, False])
def test_more_data_never_holds_out_what_was_trained_on(greedy: bool) -> None:
    rows = [TrainingRow(torch.tensor([number, 7, 7]), 2, greedy and number % 2 == 0, {}) for number in range(3000)]

    def parts(rows: list[TrainingRow]) -> tuple[set[int], ...]:
        train, held_out = split(rows, 64)
        return {int(row.tokens[0]) for row in train}, {int(row.tokens[0]) for row in held_out}

    learned, held_out = parts(rows)
    assert len(held_out) == 64 and 2700 < len(learned) < 2900 and not learned & held_out
    assert not greedy or all(number % 2 == 0 for number in held_out)
    for less in (2, 5, 24, 100, 900, 2000):
        assert not parts(rows[:less])[0] & held_out and parts(rows[:less])[1]
        assert not parts(rows[-less:])[0] & held_out, "another source in front changes nothing"
    with refused("1 piece", 2):
        split(rows[:1], 64)


def test_no_other_answer_to_a_held_out_prompt_is_learned_from() -> None:
    rows = [
        TrainingRow(torch.tensor([number, 7, answer]), 2, answer == 3, {})
        for answer in (3, 4, 5, 3)
        for number in range(200)
    ]
    train, held_out = split(rows, 64)
    prompts = {int(row.tokens[0]) for row in held_out}
    assert held_out and all(row.greedy for row in held_out) and len(held_out) == 2 * len(prompts)
    assert not {int(row.tokens[0]) for row in train} & prompts and len(train) == 4 * (200 - len(prompts))
    with refused("2 pieces", "2 different"):
        split(rows[:1] * 2, 64)


def test_a_turn_that_leaves_no_room_for_its_answer_is_cut() -> None:
    how = WritingOptions(batch=1, user_tokens=4, answer_tokens=20)
    target = lean.from_transformers(LlamaForCausalLM(llama()).eval())
    turns = ["a " * 20, "b " * 60]
    writer = Writer(target, tiny_tokenizer(), frozenset(), [target.num_layers], how, turns)
    found = {len(dialogue.tokens): dialogue for dialogue in writer.write()}
    assert max(found) == target.window and len(found) == 2
    assert all(len(dialogue.tokens) == dialogue.answer + 20 for dialogue in found.values())


def test_what_is_written_does_not_depend_on_how_many_are_written_at_a_time() -> None:
    """States too: also where rows of an earlier dialogue were taken over."""
    target = lean.from_transformers(LlamaForCausalLM(llama()).eval())
    written = []
    for batch in (1, 3):
        how = WritingOptions(batch=batch, user_tokens=6, answer_tokens=9, seed=3)
        turns = ["one", "two and three", "four", "one more"]
        writer = Writer(target, tiny_tokenizer(), frozenset({5}), [1, target.num_layers], how, turns)
        written.append(sorted(writer.write(), key=lambda dialogue: dialogue.tokens))
    assert len(written[0]) == 4
    for one, other in zip(*written, strict=True):
        assert (one.tokens, one.answer, one.greedy) == (other.tokens, other.answer, other.greedy)
        states = prefill(ModelRunner(target), one.tokens[:-1], (1, target.num_layers))
        for layer, rows in states.items():
            assert len(one.states[layer]) == len(one.tokens) - 1
            torch.testing.assert_close(one.states[layer].float(), rows, atol=0.05, rtol=0.05)
            torch.testing.assert_close(other.states[layer], one.states[layer], atol=0.05, rtol=0.05)
