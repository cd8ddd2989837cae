"""T5, BART and Marian against transformers: forwards, generate, loading, and the model that comes with the project."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, PreTrainedModel

from sampling.forward.models.encoder_decoder.model import AnswerOpening, EncoderDecoderModel
from sampling.forward.recomputing import RecomputingRunner
from sampling.forward.runner import ModelRunner, catch_up, prefill
from sampling.loading.heads import MODELS
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.measure.comparison import Comparison
from sampling.methods.settings import Settings
from sampling.methods.tables import HEADS, METHODS
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.pair_messages import no_head
from sampling.proof import selftest
from tests import tiny
from tests.refusals import refused
from tests.tiny_seq2seq import CONFIGS, WINDOW, adapted, make, seq2seq_pair

VOCAB, LENGTH = 53, 14
CLOSE = {"rtol": 1e-4, "atol": 2e-4}
ON_TARGET = [
    n for n, m in METHODS.items() if m.runs == "target" and m.needs(Settings()) in (None, "model") and not m.search
]


def ids(count: int, seed: int = 0) -> list[int]:
    return torch.randint(3, VOCAB - 1, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@torch.no_grad()
def truth(model: PreTrainedModel, source: list[int], text: list[int]) -> Any:
    """transformers' own output, with hidden states, without a cache."""
    return model(
        input_ids=torch.tensor([source]),
        decoder_input_ids=torch.tensor([text]),
        use_cache=False,
        output_hidden_states=True,
    )


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("cls", [ModelRunner, RecomputingRunner])
def test_chains_trees_and_rollbacks_equal_an_uncached_forward(name: str, cls: type[ModelRunner]) -> None:
    """The tree: root 5, below it 6 and a wrong 6, below them 7 and a wrong 7; the right branch is kept."""
    model, source, text = make(name, VOCAB), ids(9, seed=1), ids(14)
    expected = truth(model, source, text)
    logits = expected.logits[0]
    run = cls(adapted(model))
    run.read(ids(5, seed=2))
    run.forward(ids(3))
    run.read(source)
    prefill(run, text[:5])
    run.forward(ids(3, seed=3))
    run.crop(5)
    output = run.forward(text[5:], hidden=(0, 1, 2))
    torch.testing.assert_close(output.logits, logits[5:], **CLOSE)
    for layer in (0, 1, 2):
        torch.testing.assert_close(output.hidden[layer], expected.decoder_hidden_states[layer][0, 5:], **CLOSE)
    run.crop(5)
    rows = run.forward([text[5], 7, text[6], 8, text[7]], parents=(-1, -1, 0, 1)).logits
    torch.testing.assert_close(rows[[0, 2, 4]], logits[5:8], **CLOSE)
    run.keep(5, (1, 3))
    assert run.length == 8
    torch.testing.assert_close(run.forward(text[8:9]).logits, logits[8:9], **CLOSE)
    torch.testing.assert_close(catch_up(run, text).logits, logits[-1:], **CLOSE)


@pytest.mark.parametrize("name", CONFIGS)
def test_no_forward_and_no_rollback_changes_what_the_decoder_has_of_the_source(name: str) -> None:
    """Logits would not tell: source keys that stand there twice give the same attention, at twice the cost."""
    run = ModelRunner(adapted(make(name, VOCAB)))
    memory = run.read(ids(9, seed=1)).memory
    layers = memory.cross.layers
    before = [(layer.keys.clone(), layer.values.clone()) for layer in layers]
    prefill(run, ids(5))
    run.forward(ids(3), parents=(-1, -1))
    run.keep(5, (1,))
    run.crop(2)
    assert len(layers) == run.model.num_layers
    for layer, (keys, values) in zip(layers, before, strict=True):
        assert keys.shape[2] == 9
        assert torch.equal(layer.keys, keys) and torch.equal(layer.values, values)


def settings(**values: str) -> Settings:
    made = Settings()
    made.assign_all((("length", str(LENGTH)), *values.items()))
    return made


def output(pair: Pair, method: str, prompt: list[int], **values: str) -> list[int]:
    comparison = Comparison(PairEngine(pair), settings(**values), prompt)
    for _ in comparison.run(method):
        pass
    return comparison.metrics[method].output_ids


def generate(model: PreTrainedModel, source: list[int], **more: Any) -> list[int]:
    """Greedy ids of transformers, without what the text begins with."""
    start = model.generation_config.decoder_start_token_id
    plain = GenerationConfig(pad_token_id=0, decoder_start_token_id=start, eos_token_id=None, **more)
    model.generation_config = plain
    made = model.generate(torch.tensor([source]), max_new_tokens=LENGTH, do_sample=False)
    return made[0, 1:].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("cache", ["on", "off"])
def test_greedy_equals_transformers_generate(name: str, cache: str) -> None:
    source = ids(11, seed=4)
    expected = generate(make(name, VOCAB), source)
    pair = seq2seq_pair(name, VOCAB)
    for method in ON_TARGET if name == "t5" else ("target", "speculative"):
        assert output(pair, method, source, cache=cache) == expected, method


@pytest.mark.parametrize("method", ["target", "drafter", "speculative", "suffix"])
def test_cached_and_recomputed_runs_agree_when_sampling(method: str) -> None:
    runs = [
        output(seq2seq_pair("t5", VOCAB), method, ids(9, seed=5), cache=cache, processor="nucleus 0.8 0.9")
        for cache in ("on", "off")
    ]
    assert runs[0] == runs[1]


def test_a_forced_first_token_stands_in_the_text_and_is_no_output() -> None:
    model, source = make("bart", VOCAB), ids(7)
    model.generation_config.forced_bos_token_id = 9
    assert adapted(model).read(source).tokens == [2, 9]
    pair = seq2seq_pair("bart", VOCAB)
    pair = Pair(ModelRunner(adapted(model)), pair.drafter, pair.tokenizer, pair.stop, pair.target_info)
    made = output(pair, "speculative", source)
    assert len(made) == LENGTH
    assert generate(model, source, forced_bos_token_id=9) == [9, *made[: LENGTH - 1]]


def test_a_banned_token_is_never_said() -> None:
    source = ids(11, seed=4)
    first = generate(make("marian", VOCAB), source)[0]
    model = make("marian", VOCAB)
    model.generation_config.bad_words_ids = [[first]]
    run = ModelRunner(EncoderDecoderModel(model, AnswerOpening.of("it", model)))
    logits = run.forward(run.read(source).tokens).logits
    assert int(logits.argmax()) != first
    assert torch.softmax(logits, -1)[0, first] == 0.0


@pytest.mark.parametrize("rule", [{"min_length": 9}, {"min_new_tokens": 8}])
def test_an_answer_does_not_end_before_its_shortest_length(rule: dict[str, int]) -> None:
    """As a checkpoint for summaries asks, and as transformers' generate counts it; without, the end comes at once."""
    source, model = ids(11, seed=4), make("bart", VOCAB)
    end = generate(model, source)[0]
    model.generation_config.update(**rule, eos_token_id=end)
    expected = model.generate(torch.tensor([source]), max_new_tokens=LENGTH, do_sample=False)[0, 1:].tolist()
    shorter = seq2seq_pair("bart", VOCAB, stop=frozenset({end}))
    longer = Pair(ModelRunner(adapted(model)), shorter.drafter, shorter.tokenizer, shorter.stop, shorter.target_info)
    for method in ("target", "speculative", "suffix"):
        assert output(shorter, method, source) == [end] and output(longer, method, source) == expected
    assert len(expected) > 7


def test_a_source_that_the_encoder_cannot_read() -> None:
    pair = seq2seq_pair("bart", VOCAB)
    with refused("prompt", WINDOW + 1, WINDOW):
        output(pair, "speculative", ids(WINDOW + 1))
    assert len(output(pair, "speculative", ids(WINDOW))) == LENGTH


def test_a_decoder_without_a_source_says_so() -> None:
    with refused("decoder", "prompt", error=ValueError):
        ModelRunner(adapted(make("t5", VOCAB))).forward([1])


def test_beam_search_is_refused() -> None:
    with refused("beam search", "encoder-decoder"):
        output(seq2seq_pair("t5", VOCAB), "beam", ids(4))


def test_a_checkpoint_that_does_not_say_how_answers_begin() -> None:
    model = make("t5", VOCAB)
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = None
    with refused("decoder_start_token_id"):
        AnswerOpening.of("it", model)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    tiny.save_checkpoint(folder / "llama", tiny.llama())
    for name in CONFIGS:
        model = make(name, tiny.TOKENS)
        model.generation_config.bad_words_ids = [[5]]
        model.generation_config.no_repeat_ngram_size = 3
        model.save_pretrained(folder / name)
        tiny.tiny_tokenizer().save_pretrained(folder / name)
    return folder


def load(target: Path, drafter: Path | None = None, **options: Any) -> Pair:
    given = None if drafter is None else str(drafter)
    return load_pair(LoadOptions(str(target), given, device="cpu", dtype="float32", **options))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_checkpoint_is_known_by_its_configuration(hub: Path, name: str) -> None:
    pair = load(hub / name, hub / name)
    assert pair.encoder
    assert isinstance(pair.target.model, EncoderDecoderModel)
    assert pair.encode(["a", "b", "c"], chat=True) == pair.tokenizer.encode("a\nb\nc")
    (note,) = pair.notes
    assert "no_repeat_ngram_size=3" in note and "bad_words_ids" not in note
    assert pair.target.model.opening.banned == (5,)
    assert output(pair, "speculative", ids(6)) == output(pair, "target", ids(6))


def test_pairs_of_two_kinds_are_refused_with_both_names(hub: Path) -> None:
    with refused("t5", "llama", "encoder-decoder", "decoder-only"):
        load(hub / "t5", hub / "llama")
    with refused("t5", "llama", "encoder-decoder", "decoder-only"):
        load(hub / "llama", hub / "t5")


def test_heads_are_for_decoder_only_models(hub: Path) -> None:
    with refused("--heads some", "t5", "encoder-decoder"):
        load(hub / "t5", heads="some")
    pair = load(hub / "t5")
    assert pair.heads == {}
    with refused(no_head("eagle", "t5", "", encoder=True)):
        output(pair, "eagle", ids(4))
    checked = selftest.testable(pair)
    assert "ngram" in checked and not set(HEADS) & set(checked)


def test_the_model_that_comes_with_the_project_writes_dates() -> None:
    pair = load(MODELS / "dates", MODELS / "dates-drafter")
    for text, date in (
        ("the 3rd of March, 2021", "2021-03-03"),
        ("Tuesday, 12 May 1987", "1987-05-12"),
        ("FEB 29TH, 2024", "2024-02-29"),
        ("7.11.1999", "1999-11-07"),
    ):
        comparison = Comparison(PairEngine(pair), settings(), pair.encode([text], chat=True))
        for method in ("target", "speculative", "egag", "ngram"):
            for _ in comparison.run(method):
                pass
            assert pair.decode(comparison.metrics[method].output_ids) == date
            assert comparison.metrics[method].finish_reason == "stop"
        assert comparison.metrics["speculative"].rounds < comparison.metrics["target"].rounds
