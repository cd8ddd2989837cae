"""Every method of the table on tiny real architectures: greedy equals transformers' own generate."""

from functools import cache

import pytest
import torch
from transformers import GenerationConfig, PreTrainedModel

from sampling.forward.runner import ModelRunner
from sampling.measure.comparison import Comparison
from sampling.methods.settings import Settings
from sampling.methods.tables import METHODS
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.heads import CachingPair, random_heads
from tests.tiny_models import LEAN, VOCAB, ids, make, runner

PAIRS = ["llama", "qwen2", "qwen3", "gpt2"]
ON_TARGET = [name for name, method in METHODS.items() if method.other is None]
# A method meets a model by what it feeds: chains, trees, and layers whose states it reads. Each form of a forward, lean
# and transformers' own, and a recomputing one run all methods; of the others, one that feeds each is enough.
EVERY_METHOD = [("llama", "on"), ("llama", "off"), ("gpt2", "on")]
FEW = ["target", "speculative", "recycling", "eagle"]
LENGTH = 24
DRAFT_IDS = tuple(token for token in range(VOCAB) if token % 5)

# How much these draft depends on what rounds took, and with it which number each draw gets.
BY_THE_CLOCK = ("ucb", "survival")


def pair_of(target: ModelRunner, drafter: ModelRunner) -> Pair:
    info = ModelInfo("tiny", "cpu", "float32")
    heads = random_heads(target.model.embedding.shape[1], target.model.num_layers, target.window, DRAFT_IDS, VOCAB)
    return CachingPair(target, drafter, None, frozenset(), info, info, heads=heads, drafter_heads=heads)  # type: ignore[arg-type]


def engine(name: str) -> tuple[PairEngine, PreTrainedModel]:
    form = "lean" if name in LEAN else "adapter"
    target, drafter = make(name), make(name, seed=1)
    return PairEngine(pair_of(runner(target, form), runner(drafter, form))), target


def generate(model: PreTrainedModel, prompt: list[int]) -> list[int]:
    model.generation_config = GenerationConfig(pad_token_id=0)
    given = torch.tensor([prompt])
    out = model.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=LENGTH, do_sample=False)
    return out[0, len(prompt) :].tolist()


def settings(**values: str) -> Settings:
    made = Settings()
    made.assign("length", str(LENGTH))
    for name, text in values.items():
        made.assign(name, text)
    return made


def output(comparison: Comparison, name: str) -> list[int]:
    for _ in comparison.run(name):
        pass
    return comparison.metrics[name].output_ids


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("cache", ["on", "off"])
def test_greedy_equals_transformers_generate(name: str, cache: str) -> None:
    built, target = engine(name)
    prompt = ids(11, seed=4) * 2
    expected = generate(target, prompt)
    comparison = Comparison(built, settings(cache=cache), prompt)
    for method in ON_TARGET if (name, cache) in EVERY_METHOD else FEW:
        assert output(comparison, method) == expected, method
        if method != "target":
            verdict = comparison.divergence(method)
            assert verdict is not None
            assert verdict.verdict == "exact"


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].controller not in BY_THE_CLOCK])
def test_cached_and_recomputed_runs_agree_when_sampling(method: str) -> None:
    """Same seed, same draws: the cache must not change a token. A processor has its logits, and no cache."""
    prompt = ids(9, seed=5)
    runs = [
        output(Comparison(engine("llama")[0], settings(cache=cache, processor="nucleus 0.8 0.9"), prompt), method)
        for cache in ("on", "off")
    ]
    assert runs[0] == runs[1]


def test_vocabularies_padded_differently_share_what_is_common() -> None:
    """A drafter with padding rows that would win every argmax: cut, they cannot."""
    target, drafter = make("llama"), make("llama", seed=1)
    drafter.resize_token_embeddings(VOCAB + 13)
    with torch.no_grad():
        drafter.lm_head.weight[VOCAB:] = 50.0
    common = VOCAB
    from sampling.forward.models import lean

    pair = pair_of(
        ModelRunner(lean.from_transformers(target), common), ModelRunner(lean.from_transformers(drafter), common)
    )
    for processor in ("greedy", "nucleus 0.9 0.9"):
        # The heads are the target's: they do not fit a drafter model of other rows.
        chosen = settings(processor=processor, staged_drafter="suffix")
        comparison = Comparison(PairEngine(pair), chosen, ids(9))
        for method in METHODS:
            made = output(comparison, method)
            assert len(made) == LENGTH
            assert max(made) < VOCAB
    assert output(Comparison(PairEngine(pair), settings(), ids(9)), "speculative") == generate(target, ids(9))


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("speculative", "gamma", "1"), ("egag", "egag_gamma_min", "6"), ("egag", "egag_gamma_max", "2"),
        ("egag", "egag_ema", "0"), ("ngram", "gamma", "1"), ("ngram", "set_ngramstorage", "onelevel 4"),
        ("ngram", "set_ngramstorage", "basic 5"), ("ngram", "top_k_filler", "1"), ("speculative", "seed", "1"),
        ("speculative", "processor", "nucleus 0.5 0.5"), ("target", "length", "3"),
        ("prompt_lookup", "max_ngram_size", "1"), ("prompt_lookup", "min_ngram_size", "3"),
        ("prompt_lookup", "lookup_occurrence", "first"), ("prompt_lookup", "num_speculative_tokens", "2"),
        ("suffix", "max_tree_depth", "3"), ("suffix", "max_spec_factor", "2"), ("suffix", "min_token_prob", "0.7"),
        ("suffix", "use_tree_spec", "on"), ("suffix", "num_speculative_tokens", "1"),
        ("extended", "hybrid_model", "eagle"), ("extended", "num_model_steps", "1"),
        ("extended", "hybrid_copy", "ngram"), ("extended", "min_ngram_size", "3"),
        ("extended", "num_speculative_tokens", "3"),
        ("suffix_or_model", "hybrid_model", "medusa"), ("suffix_or_model", "num_model_steps", "1"),
        ("suffix_or_model", "min_token_prob", "0.9"), ("suffix_or_model", "suffix_score", "0.3"),
        ("suffix", "verify_strategy", "target_match"),
        ("suffix", "verify_strategy", "typical"), ("suffix", "verify_strategy", "topp"),
        ("suffix", "accept_policy", "accept_all"), ("suffix", "accept_policy", "reject_all"),
        ("suffix", "accept_policy", "synthetic"), ("suffix", "accept_rates", "0.2"), ("suffix", "accept_length", "1"),
    ],
)  # fmt: skip
def test_every_parameter_changes_something(method: str, name: str, value: str) -> None:
    base = {"length": "100", "processor": "multinomial 1.5" if method in ("speculative", "egag") else "topk 0.2 3"}
    base |= {"max_spec_factor": "4"} if method == "suffix" else {}
    base |= {"accept_policy": "synthetic"} if name in ("accept_rates", "accept_length") else {}
    assert rounds_with(method, tuple(base.items())) != rounds_with(method, tuple({**base, name: value}.items()))


@cache
def rounds_with(method: str, values: tuple[tuple[str, str], ...]) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Gamma, drafts and tokens of each round."""
    events = list(engine("llama")[0].stream(method, settings(**dict(values)), ids(7, seed=10) * 3))[1:-1]
    return [(event.gamma, event.drafts, event.emitted) for event in events]  # type: ignore[union-attr]


def test_ngrams_outlive_the_prompt_only_when_asked() -> None:
    built, _ = engine("llama")
    first, second = ids(12, seed=7), ids(5, seed=8)

    def drafted_after(reset: str) -> int:
        built.forget()
        made = settings(reset_in_between=reset)
        output(Comparison(built, made, first), "ngram")
        comparison = Comparison(built, made, first)
        output(comparison, "ngram")
        output(Comparison(built, made, second), "ngram")
        return comparison.metrics["ngram"].accepted

    assert drafted_after("off") > drafted_after("on")


def test_suffix_decoding_remembers_as_many_responses_as_asked_until_it_is_told_to_forget() -> None:
    built, _ = engine("llama")
    texts = [ids(12, seed=seed) for seed in (7, 8, 9)]

    def accepted(prompt: list[int], requests: str) -> int:
        comparison = Comparison(built, settings(max_cached_requests=requests), prompt)
        output(comparison, "suffix")
        return comparison.metrics["suffix"].accepted

    for requests, remembered in (("-1", True), ("2", False), ("3", True), ("0", False)):
        built.forget()
        fresh = accepted(texts[0], requests)
        for text in texts[1:]:
            accepted(text, requests)
        assert (accepted(texts[0], requests) > fresh) == remembered, requests
    built.forget()
    assert accepted(texts[0], "3") == fresh


def test_a_divergence_that_rounding_cannot_explain_is_a_bug() -> None:
    built, _ = engine("llama")
    comparison = Comparison(built, settings(), ids(9))
    for method in ("target", "speculative"):
        output(comparison, method)
    told = comparison.metrics["speculative"].output_ids
    told[5] = (told[5] + 1) % VOCAB
    verdict = comparison.divergence("speculative")
    assert verdict is not None
    assert (verdict.verdict, verdict.index) == ("BUG", 5)


def test_a_divergence_within_rounding_is_a_tie() -> None:
    """Two tokens with the same output row have the same logit: either is the argmax."""
    target = make("llama")
    prompt = ids(9)
    winner = generate(target, prompt)[0]
    twin = (winner + 1) % VOCAB
    with torch.no_grad():
        target.lm_head.weight[twin] = target.lm_head.weight[winner]
    built = PairEngine(pair_of(runner(target, "lean"), runner(make("llama", seed=1), "lean")))
    comparison = Comparison(built, settings(), prompt)
    for method in ("target", "speculative"):
        output(comparison, method)
    reference = comparison.metrics["target"].output_ids
    comparison.metrics["speculative"].output_ids[0] = winner + twin - reference[0]
    verdict = comparison.divergence("speculative")
    assert verdict is not None
    assert (verdict.verdict, verdict.index) == ("tie", 0)
