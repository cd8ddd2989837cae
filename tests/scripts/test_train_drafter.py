"""scripts/train_drafter.py on a tiny target: from nothing to a head that infer.py runs."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from ablation.plan.prompts.file import read_prompts
from sampling.distill import recipe
from sampling.distill.accuracy import Accuracy
from sampling.distill.make_head import ANSWERS, Corpus, Data, DrafterShape, make_head
from sampling.distill.objective import LOSSES
from sampling.distill.shards import read_shards, writing
from sampling.distill.training import PRODUCTS, Schedule
from sampling.heads.head_files import load_head
from sampling.loading import heads
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from scripts import train_drafter
from scripts.train_drafter import ROOT, main
from tests.refusals import lacking, refused
from tests.tiny import llama, save_checkpoint, tiny_tokenizer
from tests.waiting import PATIENCE_S
from utils.files import CACHE_VARIABLE

app = typer.Typer()
app.command()(main)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    yield


@pytest.fixture(scope="module")
def written_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a target, and of the data that whoever learns from it first lets it write."""
    folder = tmp_path_factory.mktemp("written")
    save_checkpoint(folder / "target", llama())
    return folder


@pytest.fixture
def writer(written_once: Path, own_cache: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target whose own data the tests here share."""
    monkeypatch.setenv(CACHE_VARIABLE, str(written_once / "cache"))
    return written_once / "target"


def train(target: Path, out: Path, *more: str) -> str:
    common = ["--target", str(target), "--out", str(out), "--draft-vocab", "64", "--epochs", "1", "--steps", "2"]
    done = CliRunner().invoke(app, [*common, *more])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(("chances", "gamma"), [((0.1,), 1), ((0.56, 0.57, 0.62), 2), ((0.7, 0.7, 0.7), 3), ((), 1)])
def test_what_seldom_comes_through_is_not_recommended(chances: tuple[float, ...], gamma: int) -> None:
    assert Accuracy(chances, 1.0, (), 1.0).recommended == {"gamma": gamma}


@pytest.mark.parametrize("method", ["model", "medusa", "hydra", "eagle", "mtp", "parallel_eagle", "dspark"])
def test_a_target_writes_its_own_data_and_gets_a_head(method: str, writer: Path, tmp_path: Path) -> None:
    target, out = writer, tmp_path / method
    said = train(target, out, "--method", method, "--tokens", "1500", "--device", "cpu", "--dtype", "float32")
    assert "tokens a round on held-out answers" in said
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "--method " + method in card or method in card
    gamma = load_head(out).config.recommended["gamma"]
    assert gamma in (1, 2) and f"| recommended in a session | gamma {gamma} |" in card
    assert "](training.svg)" in card and (out / "training.svg").stat().st_size > 1000
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md", "config.json", "model.safetensors", "training.svg",
    ]  # fmt: skip
    given = {"drafter": str(out)} if method == "model" else {"heads": str(out)}
    pair = load_pair(LoadOptions(target=str(target), device="cpu", dtype="float32", **given))
    assert pair.has(method)
    values = {**Settings(), "length": 16}
    name = "speculative" if method == "model" else method
    prompt = pair.encode(["hello"], chat=True)
    texts = [
        [token for event in list(PairEngine(pair).stream(run, values, prompt))[1:-1] for token in event.emitted]  # type: ignore[union-attr]
        for run in ("target", name)
    ]
    assert texts[0] == texts[1]
    given = ["--target", str(target), "--out", str(out), "--method", method, "--tokens", "1500", "--device", "cpu"]
    weights = (out / "model.safetensors").read_bytes()
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2 and not lacking(done.output, str(out), "--out", "--further", "--overwrite")
    assert (out / "model.safetensors").read_bytes() == weights, "a finished drafter is not replaced in silence"


@pytest.mark.parametrize("method", ["medusa", "hydra", "eagle", "parallel_eagle", "dspark"])
def test_the_same_command_makes_the_same_head(method: str, tmp_path: Path) -> None:
    """Also what nothing of the target begins, as a confidence head."""
    target, text = save_checkpoint(tmp_path / "target", llama()), tmp_path / "text.txt"
    text.write_text("a text that is read and not written " * 100, encoding="utf-8")
    outs = [tmp_path / "first", tmp_path / "second"]
    for out in outs:
        train(target, out, "--method", method, "--data", str(text), "--device", "cpu", "--dtype", "float32")
    first, second = (load_head(out).weights for out in outs)
    assert first.keys() == second.keys()
    for name, weight in first.items():
        assert torch.equal(weight, second[name]), name


def test_a_distilled_drafter_is_found_by_its_target_and_left_out_for_other_weights_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = save_checkpoint(tmp_path / "a" / "target", llama())
    other = save_checkpoint(tmp_path / "b" / "target", llama(), seed=1)
    text = tmp_path / "text.txt"
    text.write_text("a text that is read and not written " * 100, encoding="utf-8")
    train(mine, tmp_path / "models" / "model", "--method", "model", "--data", str(text), "--device", "cpu")
    monkeypatch.setattr(heads, "MODELS", tmp_path / "models")
    found = load_pair(LoadOptions(target=str(mine), device="cpu", dtype="float32"))
    assert found.drafter_info is not None and found.drafter_info.name == "target, distilled"
    left = load_pair(LoadOptions(target=str(other), device="cpu", dtype="float32"))
    assert left.drafter is None and any("was trained on the weights of target" in note for note in left.notes)
    with refused(tmp_path / "models" / "model", other):
        load_pair(LoadOptions(target=str(other), drafter=str(tmp_path / "models" / "model"), device="cpu"))


def test_a_head_learns_further_and_its_card_tells_both(tmp_path: Path) -> None:
    target, first, second = save_checkpoint(tmp_path / "target", llama()), tmp_path / "first", tmp_path / "second"
    text = tmp_path / "text.txt"
    text.write_text("a text that is read and not written " * 100, encoding="utf-8")
    common = ("--method", "hydra", "--data", str(text), "--device", "cpu")
    train(target, first, *common)
    train(target, second, *common, "--further", str(first), "--rate", "1e-9")
    for name, weight in load_head(first).weights.items():
        torch.testing.assert_close(load_head(second).weights[name], weight, rtol=1e-2, atol=1e-5)
    card = (second / "README.md").read_text(encoding="utf-8")
    assert card.index("held-out") < card.index("## The training that it began with") < card.rindex("held-out")
    for more, quoted in (
        (("--method", "medusa", "--steps", "2"), ("hydra", "medusa")),
        (("--method", "hydra", "--steps", "3"), ("2 steps", "--steps 2")),
    ):
        given = ["--target", str(target), "--data", str(text), "--device", "cpu", "--out", str(tmp_path / "no")]
        done = CliRunner().invoke(app, [*given, "--further", str(first), *more])
        assert done.exit_code == 2 and not lacking(" ".join(done.output.split()), *quoted)


@pytest.mark.parametrize("method", ["mtp", "eagle"])
def test_what_was_chosen_is_recorded_and_drafts(method: str, writer: Path, tmp_path: Path) -> None:
    target, out, further = writer, tmp_path / method, tmp_path / "further"
    chosen = ("--loss", "lk", "--decay", "0.6", "--answers", "drawn", "--feedback", "normed", "--output-rank", "9")
    norms = ("--state-norm", "each") if method == "eagle" else ()
    data = ("--tokens", "1500", "--device", "cpu", "--dtype", "float32")
    given = ["--target", str(target), "--out", str(out), "--epochs", "1", "--steps", "2", "--method", method]
    done = CliRunner().invoke(app, [*given, *data, *chosen, *norms])
    assert done.exit_code == 0, done.output
    config, card = load_head(out).config, (out / "README.md").read_text(encoding="utf-8")
    assert (config.normed_feedback, config.output_rank, config.draft_vocab) == (True, 9, config.vocab_size)
    assert config.state_norm == ("each" if norms else "none")
    for line in (
        "| loss | lk: divergence and total variation to the target, mixed |",
        "| weight of a later draft in the loss | 0.6 of the one before it |",
        "| answers learned from | drawn |",
        "| own states it goes on from | behind the norm |",
        "| output over all tokens | of rank 9 |",
    ):
        assert line in card
    pair = load_pair(LoadOptions(target=str(target), device="cpu", dtype="float32", heads=str(out)))
    prompt, values = pair.encode(["hello"], chat=True), {**Settings(), "length": 16}
    texts = [
        [token for event in list(PairEngine(pair).stream(run, values, prompt))[1:-1] for token in event.emitted]  # type: ignore[union-attr]
        for run in ("target", method)
    ]
    assert texts[0] == texts[1]
    given[3] = str(further)
    again = [*given, *data, "--further", str(out)]
    done = CliRunner().invoke(app, again)
    assert done.exit_code == 0, done.output
    assert replace(load_head(further).config, ranks=()) == replace(config, ranks=())
    for more, quoted in (
        (("--output-rank", "8"), ("--output-rank 8", "--output-rank 9")),
        (("--feedback", "raw"), ("--feedback raw", "--feedback normed")),
        (("--draft-vocab", "70"), ("--draft-vocab 70", "all")),
    ):
        done = CliRunner().invoke(app, [*again, *more])
        assert done.exit_code == 2
        assert not lacking(" ".join(done.output.split()), *quoted), done.output


def test_a_head_with_a_window_and_candidates_is_trained_and_drafts(writer: Path, tmp_path: Path) -> None:
    """EAGLE-4's parts."""
    out, further = tmp_path / "out", tmp_path / "further"
    data = ("--tokens", "1500", "--device", "cpu", "--dtype", "float32", "--epochs", "1", "--steps", "2")
    given = ["--target", str(writer), "--method", "eagle", *data]
    chosen = ("--feedback", "normed", "--attention-window", "8", "--candidate-rank", "9")
    done = CliRunner().invoke(app, [*given, "--out", str(out), *chosen, "--candidates", "5"])
    assert done.exit_code == 0, done.output
    config, card = load_head(out).config, (out / "README.md").read_text(encoding="utf-8")
    assert (config.candidate_rank, config.candidates, config.attention_windows) == (9, 5, (8,))
    assert config.draft_vocab == config.vocab_size
    assert "| output over all tokens | 5 candidates, found by rank 9 |" in card
    assert "| rows that attention sees | 8 |" in card
    pair = load_pair(LoadOptions(target=str(writer), device="cpu", dtype="float32", heads=str(out)))
    prompt, values = pair.encode(["hello"], chat=True), {**Settings(), "length": 16}
    texts = [
        [token for event in list(PairEngine(pair).stream(run, values, prompt))[1:-1] for token in event.emitted]  # type: ignore[union-attr]
        for run in ("target", "eagle")
    ]
    assert texts[0] == texts[1]
    again = [*given, "--out", str(further), "--further", str(out)]
    for more, quoted in (
        (("--attention-window", "4"), ("--attention-window 4", "--attention-window 8")),
        (("--candidate-rank", "8"), ("--candidate-rank 8", "--candidate-rank 9")),
        (("--candidates", "4"), ("--candidates 4", "--candidate-rank")),
        (("--draft-vocab", "70"), ("--draft-vocab 70", "all")),
    ):
        done = CliRunner().invoke(app, [*again, *more])
        assert done.exit_code == 2 and not lacking(" ".join(done.output.split()), *quoted), done.output


def test_options_name_what_there_is() -> None:
    assert [*train_drafter.LossKind] == [*LOSSES] and [*train_drafter.AnswerKind] == [*ANSWERS]
    assert [*train_drafter.ProductKind] == [*PRODUCTS]


@pytest.mark.parametrize(
    ("more", "quoted"),
    [
        (("--method", "medusa", "--state-norm", "each"), ("--state-norm each", "medusa", "eagle", "mtp")),
        (("--method", "mtp", "--decay", "0"), ("--decay 0.0", 0, 1)),
        (("--method", "mtp", "--output-rank", "9"), ("output_rank: 9", 0)),
        (("--method", "mtp", "--answers", "drawn"), ("drawn", "answers")),
    ],
)
def test_a_choice_that_fits_nothing_is_refused(
    more: tuple[str, ...], quoted: tuple[object, ...], tmp_path: Path
) -> None:
    target, text = save_checkpoint(tmp_path / "target", llama()), tmp_path / "text.txt"
    text.write_text("a text that is read and not written " * 100, encoding="utf-8")
    data = ["--data", str(text)] if "--answers" not in more else ["--data", str(prompts_of(tmp_path))]
    given = ["--target", str(target), "--device", "cpu", "--draft-vocab", "64", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*given, *data, *more])
    assert done.exit_code == 2 and not lacking(" ".join(done.output.split()), *quoted), done.output


def prompts_of(folder: Path) -> Path:
    """Two prompts, of whose answers one is held out and the other greedy."""
    path = folder / "two.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": text}) for text in ("say a", "say b")), encoding="utf-8")
    return path


def test_a_draft_vocabulary_is_counted_anew_in_data_of_another_kind(tmp_path: Path) -> None:
    target, first, second = save_checkpoint(tmp_path / "target", llama()), tmp_path / "first", tmp_path / "second"
    texts = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for path, said in zip(texts, ("abcdefgh ", "stuvwxyz "), strict=True):
        path.write_text(said * 300, encoding="utf-8")
    one, two = (("--data", str(path)) for path in texts)
    train(target, first, "--method", "mtp", *one, "--device", "cpu", "--draft-vocab", "64")
    further = ("--method", "mtp", *one, *two, "--device", "cpu", "--further", str(first))
    train(target, second, *further, "--draft-vocab", "70")
    before, after = (set(load_head(folder).draft_ids.tolist()) for folder in (first, second))
    assert len(before) == 64 and len(after) == load_head(second).config.draft_vocab == 70
    said = set(tiny_tokenizer().encode("stuvwxyz"))
    assert said <= after and not said <= before
    card = (second / "README.md").read_text(encoding="utf-8")
    assert "one.txt" in card and "two.txt)" in card


def test_a_whole_training_that_was_killed_goes_on_at_its_checkpoint(tmp_path: Path) -> None:
    target = save_checkpoint(tmp_path / "target", llama())
    pair = load_pair(LoadOptions(target=str(target), device="cpu", dtype="float32"))
    data = Data((Corpus("text", "a text that is read and not written " * 100),), 1000, lambda _: False)
    schedule, shape = Schedule(2, 64, 1e-2, warmup=2, every=2), DrafterShape("mtp", 64, 2, 1, None)
    steps: list[int] = []

    def make(folder: Path, kill_at: int | None = None) -> None:
        def told(done: int, total: int, note: str = "") -> None:
            if note:
                steps.append(done)
                if done == kill_at:
                    raise KeyboardInterrupt

        steps.clear()
        torch.manual_seed(0)
        make_head(pair, shape, data, schedule, folder, lambda _: nullcontext(told))

    make(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "cut", kill_at=3)
    assert not (tmp_path / "cut" / "config.json").exists()
    make(tmp_path / "cut")
    assert steps[0] == 3, "the checkpoint was written behind step 2"
    for name, weight in load_head(tmp_path / "whole").weights.items():
        torch.testing.assert_close(load_head(tmp_path / "cut").weights[name], weight)


def test_prompts_and_texts_are_data_too(tmp_path: Path) -> None:
    target = save_checkpoint(tmp_path / "target", llama())
    prompts, text = tmp_path / "mine.jsonl", tmp_path / "mine.txt"
    prompts.write_text("\n".join(json.dumps({"prompt": f"say {n}"}) for n in range(40)), encoding="utf-8")
    text.write_text("a text that is read and not written " * 100, encoding="utf-8")
    for data in (prompts, text):
        train(target, tmp_path / data.suffix, "--method", "medusa", "--data", str(data), "--device", "cpu")
        card = (tmp_path / data.suffix / "README.md").read_text(encoding="utf-8")
        assert "| held-out tokens in the draft vocabulary | " in card
        assert ("answers of the target that" in card) == (data is prompts)
        assert ("pieces of the text that" in card) == (data is text)


def test_answers_to_prompts_go_on_behind_the_last_shard_of_the_same_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = save_checkpoint(tmp_path / "target", llama())
    pair = load_pair(LoadOptions(target=str(target), device="cpu", dtype="float32"))
    turns = [f"say {number % 70}" for number in range(80)]
    monkeypatch.setattr(recipe, "SHARD", 32)

    def killed(done: int, total: int) -> None:
        raise KeyboardInterrupt

    def answer(told: Callable[[int, int], None] = lambda *_: None) -> list[str]:
        rows = recipe.answer_turns(pair, tmp_path / "data", turns, 1, told)
        return sorted(pair.decode(row.tokens[: row.answer].tolist()) for row in rows)

    with pytest.raises(KeyboardInterrupt):
        answer(killed)
    first = read_shards(tmp_path / "data")
    assert len(first) == 32
    found = answer()
    assert len(found) == 80 and len(set(found)) == 70
    assert [row.tokens.tolist() for row in read_shards(tmp_path / "data")[:32]] == [r.tokens.tolist() for r in first]
    assert answer(killed) == found, "nothing is written any more"


def test_two_that_write_the_same_data_take_turns(tmp_path: Path) -> None:
    pair = load_pair(
        LoadOptions(target=str(save_checkpoint(tmp_path / "target", llama())), device="cpu", dtype="float32")
    )
    notes: list[str] = []

    def told(done: int, total: int, note: str = "") -> None:
        notes.extend([note] * bool(note))
        if note:
            release.set()

    def write() -> None:
        recipe.write_data(pair, tmp_path / "data", 1500, 1, lambda _: False, told)

    release = threading.Event()
    with writing(tmp_path / "data", lambda: None):
        second = threading.Thread(target=write)
        second.start()
        assert release.wait(PATIENCE_S), "it waits, and says so"
        assert not read_shards(tmp_path / "data")
    second.join(PATIENCE_S)
    first = [row.tokens.tolist() for row in read_shards(tmp_path / "data")]
    assert notes == ["waits for another process that writes this data"]
    with writing(tmp_path / "data", lambda: None):
        write()
    assert [row.tokens.tolist() for row in read_shards(tmp_path / "data")] == first, "what is whole needs no lock"


def test_data_alone_is_written_and_read_again(tmp_path: Path) -> None:
    target, prompts = save_checkpoint(tmp_path / "target", llama()), tmp_path / "mine.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": f"say {n}"}) for n in range(9)), encoding="utf-8")
    common = ("--method", "mtp", "--data", "self", "--data", str(prompts), "--tokens", "1500", "--device", "cpu")
    said = [train(target, tmp_path / "out", *common, "--data-only").splitlines()[-1] for _ in range(2)]
    assert said[0] == said[1] and "pieces of data" in said[0]
    assert not (tmp_path / "out").exists()
    assert len(list((tmp_path / "cache" / "distill").rglob("*.safetensors"))) > 1


def test_prompts_that_are_measured_with_are_not_learned_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (measured,) = read_prompts(ROOT / "ablation" / "prompts" / "code.jsonl")[:1]
    path = tmp_path / "mine.jsonl"
    lines = [json.dumps({"prompt": text}) for text in ("say a", f" {measured.turns[0]}\n", "say b")]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert train_drafter._learnable(path) == ["say a", "say b"]
    assert "left out 1 of 3 prompts, used in measurements" in capsys.readouterr().err
    path.write_text(lines[1], encoding="utf-8")
    with refused(path):
        train_drafter._learnable(path)


def test_another_file_of_the_same_size_has_data_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = load_pair(LoadOptions(target=str(save_checkpoint(tmp_path / "target", llama())), device="cpu"))
    path, folders = tmp_path / "mine.jsonl", set()
    monkeypatch.setattr(recipe, "answer_turns", lambda pair, folder, *_: folders.add(folder) or [])
    for said in ("say a", "say b", "say b"):
        path.write_text(json.dumps({"prompt": said}), encoding="utf-8")
        train_drafter.read_data([str(path)], 1000).rows(pair, 1, lambda _: nullcontext(lambda *_: None))
    assert len(folders) == 2


def test_a_tail_too_short_to_teach_anything_is_left_out(tmp_path: Path) -> None:
    pair = load_pair(LoadOptions(target=str(save_checkpoint(tmp_path / "target", llama())), device="cpu"))
    size = min(512, pair.target.model.window)
    for tail, pieces in ((0, 2), (1, 2), (15, 2), (16, 3)):
        assert len(recipe.read_text(pair, "x" * (2 * size + tail), lambda *_: None)) == pieces


def test_a_file_that_cannot_be_learned_from_is_a_wrong_call(tmp_path: Path) -> None:
    target = save_checkpoint(tmp_path / "target", llama())
    (tmp_path / "short.txt").write_text("too short", encoding="utf-8")
    for data, quoted in (
        (tmp_path / "nowhere.txt", ("nowhere.txt", "self")),
        (tmp_path / "short.txt", ("9 tokens", 256)),
    ):
        given = ["--target", str(target), "--data", str(data), "--out", str(tmp_path / "out")]
        done = CliRunner().invoke(app, ["--method", "eagle", *given])
        assert done.exit_code == 2
        assert not lacking(done.output, *quoted), done.output


def test_a_wrong_call_is_told_before_any_data_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(*_: object) -> None:
        raise AssertionError("data is written")

    monkeypatch.setattr(Data, "rows", written)
    target = save_checkpoint(tmp_path / "target", llama())
    (tmp_path / "file").touch()
    out, other = ("--out", str(tmp_path / "out")), str(tmp_path / "nowhere")
    for more, quoted in (
        ((*out, "--rate", "0"), ("--rate 0.0",)),
        ((*out, "--rate", "nan"), ("--rate nan",)),
        ((*out, "--rate", "inf"), ("--rate inf",)),
        ((*out, "--further", other), (other,)),
        (("--out", str(tmp_path / "file")), (tmp_path / "file",)),
        ((*out, "--state-norm", "each"), ("--state-norm each", "hydra", "eagle", "mtp")),
        (("--out", str(tmp_path / "file" / "in")), (tmp_path / "file" / "in",)),
        ((), ("SmolLM2-135M-Instruct", "13545a5574290dc4", "target")),
        (("--out", str(target)), (target, "drafter")),
    ):
        done = CliRunner().invoke(app, ["--method", "hydra", "--target", str(target), "--device", "cpu", *more])
        assert done.exit_code == 2 and not lacking(" ".join(done.output.split()), *quoted), done.output
