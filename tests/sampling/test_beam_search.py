"""Beam search against transformers' `generate(num_beams=...)` where both define the same thing, in fp32.

min_length 0 makes the penalty transformers' `length_penalty`; `early_stopping="never"` makes its search exact;
and the candidates of a round are the same once `top_k` is at least num_beams * (1 + number of stop tokens).
"""

import pytest
import torch
from transformers import GenerationConfig, PreTrainedModel

from sampling.beam import BeamSearch
from sampling.forward.recomputing import RecomputingRunner
from sampling.forward.runner import ModelRunner, prefill
from tests.tiny_models import FORMS, ids, make, runner, truth
from utils.events import Finished

LENGTH = 12
NO_STOP: tuple[int, ...] = ()


def search(run: ModelRunner, prompt: list[int], beams: int, alpha: float, stop: tuple[int, ...]) -> Finished:
    """Ours, with transformers' penalty and at least as many candidates."""
    built = BeamSearch(beams, beams * (1 + max(1, len(stop))), min_length=0, alpha=alpha)
    *_, finished = built.decode(run, prompt, max_new_tokens=LENGTH, stop=stop)
    assert isinstance(finished, Finished)
    return finished


def generate(
    model: PreTrainedModel, prompt: list[int], beams: int, alpha: float, stop: tuple[int, ...]
) -> list[tuple[tuple[int, ...], float]]:
    """transformers' texts without padding, with their scores, best first."""
    model.generation_config = GenerationConfig(pad_token_id=0, eos_token_id=list(stop) or None)
    given = torch.tensor([prompt])
    out = model.generate(
        given,
        attention_mask=torch.ones_like(given),
        max_new_tokens=LENGTH,
        do_sample=False,
        num_beams=beams,
        num_return_sequences=beams,
        length_penalty=alpha,
        early_stopping="never",
        return_dict_in_generate=True,
        output_scores=True,
    )
    texts = []
    for row in out.sequences[:, len(prompt) :].tolist():
        ends = [place for place, token in enumerate(row, start=1) if token in stop]
        texts.append(tuple(row[: min(ends, default=len(row))]))
    return list(zip(texts, out.sequences_scores.tolist(), strict=True))


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize(("beams", "alpha"), [(4, 0.0), (3, 1.0)])
def test_all_texts_and_scores_equal_transformers_without_stop_tokens(
    name: str, form: str, beams: int, alpha: float
) -> None:
    model, prompt = make(name), ids(9, seed=3)
    found = search(runner(model, form), prompt, beams, alpha, NO_STOP).hypotheses
    expected = generate(model, prompt, beams, alpha, NO_STOP)
    assert [text.tokens for text in found] == [tokens for tokens, _ in expected]
    assert [text.score for text in found] == pytest.approx([score for _, score in expected], abs=1e-4)


@pytest.mark.parametrize(("name", "form"), [("llama", "lean"), ("gpt2", "adapter")])
@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("stops", [1, 3])
def test_the_answer_equals_transformers_with_stop_tokens(name: str, form: str, alpha: float, stops: int) -> None:
    """Stop tokens that likely texts contain: what comes second, third... in the plain answers."""
    model, ended = make(name), 0
    run = runner(model, form)
    for seed in range(3):
        prompt = ids(9, seed=seed)
        plain = search(run, prompt, 4, alpha, NO_STOP).hypotheses[0].tokens
        stop = tuple(dict.fromkeys(plain[4:]))[:stops]
        found = search(run, prompt, 4, alpha, stop)
        tokens, score = generate(model, prompt, 4, alpha, stop)[0]
        assert found.hypotheses[0].tokens == tokens
        assert found.hypotheses[0].score == pytest.approx(score, abs=1e-4)
        ended += found.reason == "stop"
    assert ended


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize("cls", [ModelRunner, RecomputingRunner])
def test_texts_side_by_side_equal_each_alone(name: str, form: str, cls: type[ModelRunner]) -> None:
    """Rows 0 to 7 are shared; row 8 leads to rows 9 and 10, and these to the two that are compared."""
    model, text = make(name), ids(12)
    run = runner(model, form, cls)
    prefill(run, text[:8])
    run.fork([text[8]], 8, torch.zeros(1, 0, dtype=torch.long))
    run.fork([text[9], text[10]], 8, torch.tensor([[8], [8]]))
    logits = run.fork([text[11], text[11]], 8, torch.tensor([[8, 10], [8, 9]])).logits
    for row, middle in enumerate((text[10], text[9])):
        alone = truth(model, [*text[:9], middle, text[11]])[-1]
        torch.testing.assert_close(logits[row], alone, rtol=1e-4, atol=2e-4)
    assert run.length == 13
