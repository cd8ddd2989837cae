"""Trained heads on a tiny Llama: what drafts is what was trained, and a training that was killed goes on."""

from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from sampling.distill.batches import Batch, batches, frequent_tokens, split
from sampling.distill.shards import Row, read_shards, save_shard
from sampling.distill.tasks import Task, Trunk, accuracy, feature_layers
from sampling.distill.training import CHECKPOINT, Schedule, Trainer
from sampling.distill.writing import Dialogue, Writer, Writing
from sampling.drafters.draft_tree import TreeShape, grow_tree
from sampling.drafters.eagle_mtp import RecurrentDrafter
from sampling.events import Step
from sampling.forward import lean
from sampling.forward.runner import ModelRunner, catch_up, prefill
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import fingerprint, load_head, save_head
from sampling.heads.inference import RecurrentForward, small_model
from sampling.methods import DRAFTERS, HEADS, METHODS, MODELS
from sampling.pair import ModelInfo, Pair
from sampling.pair_engine import PairEngine
from sampling.settings import Settings
from tests.model.tiny_models import VOCAB, ids, make
from tests.sequences import sequence
from tests.tiny import llama, tiny_tokenizer
from utils.errors import UserError

KINDS = tuple(MODELS)
DRAFT_IDS = torch.tensor([token for token in range(VOCAB) if token % 3])


@pytest.fixture(scope="module")
def target() -> lean.LeanModel:
    return lean.from_transformers(make("llama"))


def rows_of(target: lean.LeanModel, count: int = 24) -> list[Row]:
    """What the target goes on to say after different beginnings, greedily, with its states."""
    found = []
    for seed in range(count):
        runner, tokens = ModelRunner(target), ids(4, seed=seed)
        for _ in range(14 + seed % 3):
            tokens.append(int(catch_up(runner, tokens).logits.argmax()))
        states = prefill(ModelRunner(target), tokens, feature_layers(target.num_layers))
        found.append(Row(torch.tensor(tokens), 4, True, {k: v.to(torch.bfloat16) for k, v in states.items()}))
    return found


def task_of(kind: str, target: lean.LeanModel, draft_ids: torch.Tensor = DRAFT_IDS) -> Task:
    size, shape = target.embedding.shape[1], target.blocks.shape
    config = HeadConfig(
        method=kind,
        base="tiny",
        base_digest=fingerprint(target.landmarks()),
        hidden_size=size,
        vocab_size=VOCAB,
        draft_vocab=len(draft_ids),
        steps=3,
        intermediate_size=2 * size,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        window=target.window,
        **MODELS[kind].load_task().configure(target.num_layers),
    )
    torch.manual_seed(0)
    trunk = Trunk(target.embedding, target.output_rows(draft_ids), draft_ids, target.num_layers)
    task: Task = MODELS[kind].load_task()(config, trunk)
    for weight in task.module.parameters():
        torch.nn.init.normal_(weight, std=0.3)
        weight.data = weight.data.to(torch.bfloat16).float()
    return task


def saved(task: Task, folder: Path) -> Path:
    save_head(folder, task.config, task.module.state_dict(), task.trunk.ids)
    return folder


def pair_of(target: lean.LeanModel, heads: dict[str, Path]) -> Pair:
    info = ModelInfo("tiny", "cpu", "float32")
    return Pair(ModelRunner(target), None, None, frozenset(), info, heads=heads)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_what_drafts_is_what_was_trained(kind: str, target: lean.LeanModel, tmp_path: Path) -> None:
    """The module's passes over a whole text and the drafter, step by step, give the same logits."""
    task, tokens = task_of(kind, target), ids(9, seed=3)
    states = prefill(ModelRunner(target), tokens, feature_layers(target.num_layers))
    batch = Batch.of([Row(torch.tensor(tokens), 0, True, states)], states, torch.device("cpu"))
    known, steps = 5, 3
    with torch.no_grad():
        expected = [(one.rows @ task.trunk.output.T)[0, known - (kind != "model")] for one in task.drafts(batch)]
    folder = saved(task, tmp_path)
    pair = pair_of(target, {kind: folder})
    if kind == "model":
        pair = Pair(
            pair.target, ModelRunner(small_model(load_head(folder), target)), None, frozenset(), pair.target_info
        )  # type: ignore[arg-type]
    drafter = DRAFTERS[kind].build(pair, {**Settings(), "draft_weights": "full"})
    seq = sequence(tokens[: known + 1], pair.target)
    seq.hidden = prefill(pair.target, seq.tokens[:-1], drafter.needs_hidden)
    drafter.begin(seq)
    with torch.inference_mode():
        logits = [drafter.root(seq)]
        for step in range(1, steps):
            logits.append(drafter.step(seq, torch.tensor(tokens[known + step : known + step + 1]), [step - 2]))
    for mine, theirs in zip(logits, expected, strict=True):
        torch.testing.assert_close(mine[0, DRAFT_IDS], theirs, rtol=1e-4, atol=1e-4)
        assert set(mine[0].topk(3).indices.tolist()) <= set(DRAFT_IDS.tolist()), "only the draft vocabulary is drafted"


@pytest.mark.parametrize("kind", ["eagle", "mtp"])
def test_the_prompt_is_read_before_the_first_round(kind: str, target: lean.LeanModel, tmp_path: Path) -> None:
    """In chunks, and timed as prefill: what is left for the first round is one row."""
    pair = pair_of(target, {kind: saved(task_of(kind, target), tmp_path)})
    fed: list[int] = []

    class Counting(RecurrentForward):
        def run(self, tokens: torch.Tensor, *rest: Any) -> torch.Tensor:
            fed.append(len(tokens))
            return super().run(tokens, *rest)

    forward = RecurrentForward.of(pair.head(kind), target)
    drafter = RecurrentDrafter(Counting(**vars(forward)), forward.config.features)
    seq = sequence(ids(9), pair.target)
    seq.hidden = prefill(pair.target, seq.tokens[:-1], drafter.needs_hidden)
    drafter.begin(seq)
    assert fed == [7]
    first = drafter.root(seq)
    assert fed == [7, 1]
    again = RecurrentDrafter(forward, forward.config.features, cached=False)
    again.begin(seq)
    torch.testing.assert_close(again.root(seq), first)


@pytest.mark.parametrize("kind", ["eagle", "mtp"])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_prompt_may_be_as_short_as_it_can(kind: str, length: int, target: lean.LeanModel, tmp_path: Path) -> None:
    engine = PairEngine(pair_of(target, {kind: saved(task_of(kind, target), tmp_path)}))
    settings = Settings()
    settings.assign("length", "6")
    said = [
        [
            token
            for event in engine.stream(name, settings, ids(length))
            if isinstance(event, Step)
            for token in event.emitted
        ]
        for name in ("target", kind)
    ]
    assert said[0] == said[1] and len(said[0]) == 6


@pytest.mark.parametrize("method", [*HEADS, "extended"])
@pytest.mark.parametrize("tree", ["chain", "dynamic"])
@pytest.mark.parametrize("processor", ["greedy", "multinomial 1.0"])
def test_heads_draft_from_the_vocabulary_that_the_pair_has_in_common(
    method: str, tree: str, processor: str, target: lean.LeanModel, tmp_path: Path
) -> None:
    """A drafter model with fewer padded rows cuts the target's; a head is as wide as the target's own matrix."""
    kind = "eagle" if method == "extended" else method
    folder = saved(task_of(kind, target, torch.arange(VOCAB)), tmp_path)
    small = ModelRunner(target, VOCAB - 7)
    pair = replace(pair_of(target, {kind: folder}), target=small, drafter=ModelRunner(target, VOCAB - 7))
    settings = Settings()
    settings.assign_all([("length", "12"), ("draft_tree", tree), ("processor", processor), ("hybrid_model", "eagle")])
    steps = [event for event in PairEngine(pair).stream(method, settings, ids(6)) if isinstance(event, Step)]
    assert any(step.drafts for step in steps)
    assert all(token < VOCAB - 7 for step in steps for token in step.drafts)


@pytest.mark.parametrize("kind", KINDS)
def test_training_learns_what_the_target_says(kind: str, target: lean.LeanModel, tmp_path: Path) -> None:
    rows = rows_of(target)
    task = task_of(kind, target, torch.arange(VOCAB))
    train, held_out = split(rows, 4)
    assert len(train) + len(held_out) == 24 and held_out
    trainer = Trainer(task, train, train[:4], Schedule(30, 64, 1e-2, warmup=2, every=10_000), torch.device("cpu"))
    whole = Batch.of(train, sorted({*task.config.features, task.trunk.last}), torch.device("cpu"))
    before = task.loss(whole).item()
    trainer.run(tmp_path, lambda *_: None, float)
    assert task.loss(whole).item() < 0.85 * before


def test_a_training_that_was_killed_goes_on_exactly(target: lean.LeanModel, tmp_path: Path) -> None:
    rows, schedule = rows_of(target, 8), Schedule(3, 64, 1e-2, warmup=2, every=2)

    class Killed(Exception):
        pass

    def run(folder: Path, kill_at: int | None = None) -> list[float]:
        trainer = Trainer(task_of("eagle", target), rows, rows[:2], schedule, torch.device("cpu"))

        def watch(step: int, total: int, history: object) -> None:
            if step == kill_at:
                raise Killed

        trainer.run(folder, watch, float)
        return [*trainer.history.losses, *task_weights(trainer.task)]

    whole = run(tmp_path / "whole")
    with pytest.raises(Killed):
        run(tmp_path / "cut", kill_at=5)
    assert (tmp_path / "cut" / CHECKPOINT).is_file()
    assert run(tmp_path / "cut") == whole


def test_a_checkpoint_of_another_training_is_refused_with_what_differs(target: lean.LeanModel, tmp_path: Path) -> None:
    rows, schedule = rows_of(target, 6), Schedule(1, 64, 1e-2, warmup=2, every=2)
    cpu = torch.device("cpu")

    def run(task: Task, rows: list[Row] = rows, schedule: Schedule = schedule, began: str = "") -> None:
        Trainer(task, rows, rows[:2], schedule, cpu, began).run(tmp_path, lambda *_: None, float)

    def refused(names: str, *given: Any) -> None:
        with pytest.raises(UserError, match=f"it {names}; allowed: the same command, or another --out"):
            run(*given)

    task = task_of("medusa", target)
    run(task)
    run(task_of("medusa", target))
    config = task.config
    refused("differs in method", with_config(task, replace(config, method="hydra")))
    refused("differs in base_digest, steps", with_config(task, replace(config, base_digest="other", steps=2)))
    refused("differs in draft vocabulary", task_of("medusa", target, DRAFT_IDS - 1))
    refused("differs in training data", task, [replace(rows[0], tokens=rows[0].tokens + 1), *rows[1:]])
    refused("differs in rate", task, rows, replace(schedule, rate=1e-3))
    refused("differs in weights it began with", task, rows, schedule, "others")
    state = torch.load(tmp_path / CHECKPOINT, weights_only=True)
    del state["belongs"]
    torch.save(state, tmp_path / CHECKPOINT)
    refused("does not say which", task)


def with_config(task: Task, config: HeadConfig) -> Task:
    made = copy(task)
    made.config = config
    return made


def test_a_pass_that_no_text_is_long_enough_for_does_not_count(target: lean.LeanModel) -> None:
    task, cpu = task_of("medusa", target), torch.device("cpu")
    row = rows_of(target, 1)[0]
    short = replace(row, tokens=row.tokens[:3], states={layer: part[:3] for layer, part in row.states.items()})
    batch = Batch.of([short], row.states, cpu)
    loss = task.loss(batch)
    assert torch.isfinite(loss)
    torch.testing.assert_close(loss, with_config(task, replace(task.config, steps=1)).loss(batch))


def test_a_loss_that_is_not_finite_ends_the_training(target: lean.LeanModel, tmp_path: Path) -> None:
    task, rows = task_of("medusa", target), rows_of(target, 4)
    next(task.module.parameters()).data.fill_(float("inf"))
    trainer = Trainer(task, rows, rows, Schedule(1, 64), torch.device("cpu"))
    with pytest.raises(UserError, match=r"step 1: the loss is nan; allowed: a finite one\. Try a --rate below 0\.001"):
        trainer.run(tmp_path, lambda *_: None, float)
    assert not list(tmp_path.iterdir())


def test_coverage_counts_the_tokens_of_answers(target: lean.LeanModel) -> None:
    row, cpu = rows_of(target, 1)[0], torch.device("cpu")
    tokens = torch.tensor([0, 0, 0, 0, 1, 2, 3, 4])
    states = {layer: part[:8] for layer, part in row.states.items()}
    longer = rows_of(target, 2)[1]
    batch = Batch.of([replace(row, tokens=tokens, states=states), replace(longer, answer=99)], row.states, cpu)
    assert accuracy(task_of("medusa", target), [batch]).covered == 0.75


def test_a_checkpoint_on_a_full_disk_leaves_nothing_behind(
    target: lean.LeanModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos\nmore")

    monkeypatch.setattr(torch, "save", full)
    rows = rows_of(target, 4)
    trainer = Trainer(task_of("medusa", target), rows, rows, Schedule(1, 64), torch.device("cpu"))
    with pytest.raises(OSError, match=r"cannot be written: .enforce fail.*training\.pt"):
        trainer.run(tmp_path, lambda *_: None, float)
    assert not list(tmp_path.iterdir())


def task_weights(task: Task) -> list[float]:
    return [float(weight.double().sum()) for weight in task.module.state_dict().values()]


def test_held_out_accuracy_counts_what_greedy_decoding_accepts(target: lean.LeanModel, tmp_path: Path) -> None:
    """An EAGLE head drafts on the texts it is counted on: the counted tokens a round are those of the first rounds."""
    rows = rows_of(target, 6)
    task = task_of("eagle", target, torch.arange(VOCAB))
    Trainer(task, rows, rows, Schedule(40, 64, 1e-2, warmup=2, every=10_000), torch.device("cpu")).run(
        tmp_path / "run", lambda *_: None, float
    )
    batch = Batch.of(rows[:1], feature_layers(target.num_layers), torch.device("cpu"))
    counted = accuracy(task, [batch]).tokens_per_round
    engine = PairEngine(pair_of(target, {"eagle": saved(task, tmp_path / "head")}))
    tokens, values = rows[0].tokens.tolist(), {**Settings(), "gamma": 3, "length": 40}
    accepted = []
    for start in range(4, len(tokens) - 2):
        events = list(engine.stream("eagle", values, tokens[:start]))
        accepted.append(1 + len(events[1].path))  # type: ignore[union-attr]
    assert counted == pytest.approx(sum(accepted) / len(accepted))


def test_a_head_for_other_weights_is_refused(target: lean.LeanModel, tmp_path: Path) -> None:
    other = lean.from_transformers(make("llama", seed=7))
    pair = pair_of(other, {"medusa": saved(task_of("medusa", target), tmp_path)})
    with pytest.raises(UserError, match=r"was trained on the weights of tiny, and tiny"):
        pair.head("medusa")
    with pytest.raises(UserError, match="no eagle head for tiny"):
        pair.head("eagle")


def test_a_head_without_its_draft_vocabulary_is_refused(target: lean.LeanModel, tmp_path: Path) -> None:
    file = saved(task_of("mtp", target), tmp_path) / "model.safetensors"
    weights = load_file(file)
    del weights["draft_ids"]
    save_file(weights, file)
    with pytest.raises(UserError, match="has no draft_ids; allowed: the folder of a trained head"):
        load_head(tmp_path)


def test_a_tree_has_the_likeliest_paths() -> None:
    """Chances 0.6, 0.3, 0.1 everywhere: the five best nodes are 0.6, 0.36, 0.3, 0.18 and 0.18."""
    law = torch.log(torch.tensor([[0.6, 0.3, 0.1]]))
    fed: list[tuple[list[int], list[int]]] = []

    def step(tokens: torch.Tensor, parents: list[int]) -> torch.Tensor:
        fed.append((tokens.tolist(), list(parents)))
        return law.expand(len(parents), -1)

    tokens, parents = grow_tree(TreeShape(2, 5), 2, law, step)  # type: ignore[arg-type]
    assert (tokens, parents) == ([0, 1, 0, 1, 0], (-1, -1, 0, 0, 1))
    assert fed == [([0, 1], [-1, -1])]
    tokens, parents = grow_tree(TreeShape(2, 3, ranks=((0.9, 0.1), (0.5, 0.4))), 2, law, step)  # type: ignore[arg-type]
    assert (tokens, parents) == ([0, 0, 1], (-1, 0, 0))


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
    rows = [Row(torch.tensor([number, 7, 7]), 2, greedy and number % 2 == 0, {}) for number in range(3000)]

    def parts(rows: list[Row]) -> tuple[set[int], ...]:
        train, held_out = split(rows, 64)
        return {int(row.tokens[0]) for row in train}, {int(row.tokens[0]) for row in held_out}

    learned, held_out = parts(rows)
    assert len(held_out) == 64 and 2700 < len(learned) < 2900 and not learned & held_out
    assert not greedy or all(number % 2 == 0 for number in held_out)
    for less in (2, 5, 24, 100, 900, 2000):
        assert not parts(rows[:less])[0] & held_out and parts(rows[:less])[1]
        assert not parts(rows[-less:])[0] & held_out, "another source in front changes nothing"
    with pytest.raises(UserError, match="1 pieces of data given; allowed: at least 2"):
        split(rows[:1], 64)


def test_no_other_answer_to_a_held_out_prompt_is_learned_from() -> None:
    rows = [
        Row(torch.tensor([number, 7, answer]), 2, answer == 3, {}) for answer in (3, 4, 5, 3) for number in range(200)
    ]
    train, held_out = split(rows, 64)
    prompts = {int(row.tokens[0]) for row in held_out}
    assert held_out and all(row.greedy for row in held_out) and len(held_out) == 2 * len(prompts)
    assert not {int(row.tokens[0]) for row in train} & prompts and len(train) == 4 * (200 - len(prompts))
    with pytest.raises(UserError, match="2 pieces of data given; allowed: at least 2 different ones"):
        split(rows[:1] * 2, 64)


def test_a_turn_that_leaves_no_room_for_its_answer_is_cut() -> None:
    how = Writing(batch=1, user_tokens=4, answer_tokens=20)
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
        how = Writing(batch=batch, user_tokens=6, answer_tokens=9, seed=3)
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


@pytest.mark.parametrize("method", [*HEADS])
@pytest.mark.parametrize(("name", "value"), [("draft_tree", "dynamic"), ("draft_tree", "static"), ("gamma", "1")])
def test_parameters_of_heads_change_something(
    method: str, name: str, value: str, target: lean.LeanModel, tmp_path: Path
) -> None:
    kind = method
    engine = PairEngine(pair_of(target, {method: saved(task_of(kind, target), tmp_path)}))
    assert METHODS[method].needs(Settings()) == method

    def drafts(**values: str) -> list[object]:
        made = Settings()
        made.assign_all([("length", "20"), *values.items()])
        return [(event.drafts, event.parents) for event in list(engine.stream(method, made, ids(6)))[1:-1]]  # type: ignore[union-attr]

    assert drafts() != drafts(**{name: value})
    if name == "draft_tree":
        wide = {name: value, "tree_width": "2"}
        assert drafts(**{name: value}) != drafts(**wide)
        assert drafts(**wide) != drafts(**wide, tree_tokens="3")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("tree", ["chain", "dynamic"])
def test_a_head_drafts_and_learns_on_a_gpu(kind: str, tree: str, tmp_path: Path) -> None:
    target = lean.from_transformers(make("llama").to("cuda"))
    rows, device = rows_of(target, 4), torch.device("cuda")
    task = task_of(kind, target, DRAFT_IDS.to(device))
    engine = PairEngine(pair_of(target, {kind: saved(task, tmp_path)}))
    values = {**Settings(), "length": 20, "draft_tree": tree}
    texts = [
        [t for e in list(engine.stream(name, values, ids(6)))[1:-1] for t in e.emitted] for name in ("target", kind)
    ]  # type: ignore[union-attr]
    assert texts[0] == texts[1]
    trainer = Trainer(task, rows, rows[:2], Schedule(2, 64, 1e-2, warmup=2, every=10_000), device)
    assert trainer.run(tmp_path / "run", lambda *_: None, float).tokens_per_round >= 1
