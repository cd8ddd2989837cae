"""Log-probabilities of answers: the target's own, whatever drafts, and equal to what a forward of the text says."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from sampling.forward.runner import ModelRunner
from serve.answers.logprobs import token_logprobs
from serve.limits import ServerLimits
from tests.serve.running import Running, running
from tests.serve.test_clients import double_pair
from tests.serve.test_server import SAID

METHODS: list[dict[str, Any]] = [
    {"method": "speculative", "gamma": 3},
    {"method": "recycling"},
    {"method": "suffix"},
    {"method": "ngram"},
]
PROMPT = [5, 6, 7, 8, 5, 6]


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    """In float64, where the order of sums is not seen."""
    with running(double_pair(), ServerLimits(size=4)) as found:
        yield found


def ask(served: Running, method: dict[str, Any], temperature: float = 0, **more: Any) -> Any:
    extra = {"speculative": method, "return_token_ids": True, **more.pop("extra", {})}
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": 24, "temperature": temperature, "seed": 3, "logprobs": 4}
    return served.client().completions.create(**{**asked, **more}, extra_body=extra)


def forward(served: Running, tokens: list[int]) -> torch.Tensor:
    """ln p `[n - 1, V]` of each token behind those before it, by one forward of all of them."""
    runner = ModelRunner(served.server.driver.engine.target.model)
    with torch.inference_mode():
        return torch.log_softmax(runner.forward(tokens).logits, -1)[:-1]


def same(found: list[float], expected: list[float]) -> None:
    assert found == pytest.approx(expected, abs=3e-6)  # rotary angles are float32's


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method["method"])
@pytest.mark.parametrize("temperature", [0, 1.3])
def test_they_are_plain_decodings_under_every_method(
    served: Running, method: dict[str, Any], temperature: float
) -> None:
    answer = ask(served, method, temperature)
    choice = answer.choices[0]
    ids, found = choice.token_ids, choice.logprobs
    assert answer.metrics["workbench"]["drafted"] > 0 and len(found.tokens) == len(ids)
    rows = forward(served, [*PROMPT, *ids])[len(PROMPT) - 1 :]
    same(found.token_logprobs, [row[token].item() for row, token in zip(rows, ids, strict=True)])
    for row, best, token in zip(rows, found.top_logprobs, found.tokens, strict=True):
        top = row.topk(4).values.tolist()
        same(sorted(best.values(), reverse=True)[:4], top)
        assert token in best and len(best) in (4, 5)
    if not temperature:
        plain = ask(served, {"method": "target"}).choices[0]
        assert ids == plain.token_ids and found.tokens == plain.logprobs.tokens
        same(found.token_logprobs, plain.logprobs.token_logprobs)


def test_processors_and_grammars_change_what_is_drawn_and_no_logprob(served: Running) -> None:
    free = ask(served, METHODS[0]).choices[0]
    first = free.token_ids[0]
    extra = {"repetition_penalty": 1.4, "min_p": 0.1}
    banned = ask(served, METHODS[0], 2.0, top_p=0.5, logit_bias={str(first): -100}, extra=extra).choices[0]
    assert first not in banned.token_ids and banned.token_ids != free.token_ids
    rows = forward(served, [*PROMPT, *banned.token_ids])[len(PROMPT) - 1 :]
    drawn = [row[token].item() for row, token in zip(rows, banned.token_ids, strict=True)]
    same(banned.logprobs.token_logprobs, drawn)
    under = ask(served, METHODS[0], extra={"structured_outputs": {"regex": "[0-3]{6}"}}).choices[0]
    rows = forward(served, [*PROMPT, *under.token_ids])[len(PROMPT) - 1 :]
    same(under.logprobs.token_logprobs, [row[token].item() for row, token in zip(rows, under.token_ids, strict=True)])


@pytest.mark.parametrize("method", [{"method": "target"}, METHODS[0]], ids=["target", "speculative"])
def test_a_stream_has_those_of_its_round_in_each_chunk(served: Running, method: dict[str, Any]) -> None:
    whole = ask(served, method).choices[0]
    chunks = [chunk.choices[0] for chunk in ask(served, method, stream=True)]
    assert all(len(chunk.logprobs.tokens) == len(chunk.token_ids) for chunk in chunks[:-1])
    assert chunks[-1].logprobs is None
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        streamed = [value for chunk in chunks[:-1] for value in getattr(chunk.logprobs, name)]
        assert streamed == getattr(whole.logprobs, name)


def test_an_echo_begins_with_the_prompt_and_its_logprobs(served: Running) -> None:
    text = "say ab, again"
    whole = ask(served, METHODS[0], prompt=text, echo=True).choices[0]
    plain = ask(served, METHODS[0], prompt=text).choices[0]
    prompt = plain.prompt_token_ids
    assert whole.text == text + plain.text and whole.token_ids == plain.token_ids
    found = whole.logprobs
    assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
    assert len(found.tokens) == len(prompt) + len(whole.token_ids)
    rows = forward(served, [*prompt, *whole.token_ids])
    chosen = zip(rows, [*prompt, *whole.token_ids][1:], strict=True)
    same(found.token_logprobs[1:], [row[token].item() for row, token in chosen])
    for start, end, token in zip(found.text_offset, found.text_offset[1:], found.tokens, strict=False):
        assert token.startswith(("bytes:", "<|")) or whole.text[start:end].lstrip("\ufffd") == token
    scored = ask(served, METHODS[0], prompt=text, echo=True, max_tokens=0).choices[0]
    assert (scored.text, scored.finish_reason, scored.token_ids) == (text, "length", [])
    assert scored.logprobs.token_logprobs == found.token_logprobs[: len(prompt)]
    streamed = [chunk.choices[0] for chunk in ask(served, METHODS[0], prompt=text, echo=True, stream=True)]
    assert "".join(chunk.text for chunk in streamed) == whole.text
    assert streamed[0].logprobs.tokens[: len(prompt)] == found.tokens[: len(prompt)]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_has_texts_and_bytes(served: Running, stream: bool) -> None:
    answer: Any = served.client().chat.completions.create(
        model="tiny",
        messages=SAID,
        max_tokens=20,
        temperature=0,
        logprobs=True,
        top_logprobs=3,
        stream=stream,
        extra_body={"return_token_ids": True, "speculative": METHODS[0]},
    )
    choices = [chunk.choices[0] for chunk in answer] if stream else [answer.choices[0]]
    entries = [entry for choice in choices for entry in (choice.logprobs.content if choice.logprobs else ())]
    ids = [token for choice in choices for token in (getattr(choice, "token_ids", None) or ())]
    said = [choice.delta.content or "" for choice in choices] if stream else [choices[0].message.content]
    assert len(entries) == len(ids) == 20
    raw = b"".join(bytes(entry.bytes) for entry in entries)
    assert raw.decode("utf-8", errors="replace") == "".join(said)
    for entry in entries:
        assert [best.logprob for best in entry.top_logprobs] == sorted(
            (best.logprob for best in entry.top_logprobs), reverse=True
        )
        assert entry.top_logprobs[0].token == entry.token and len(entry.top_logprobs) == 3
        assert entry.token.startswith("bytes:\\x") or entry.token.encode() == bytes(entry.bytes)
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0


def test_tokens_may_be_shown_by_their_ids(served: Running) -> None:
    choice = ask(served, METHODS[0], extra={"return_tokens_as_token_ids": True}).choices[0]
    assert choice.logprobs.tokens == [f"token_id:{token}" for token in choice.token_ids]
    assert all(len(best) in (4, 5) for best in choice.logprobs.top_logprobs)


def test_a_stop_string_ends_the_logprobs_with_the_tokens(served: Running) -> None:
    free = ask(served, METHODS[0]).choices[0]
    stop = free.text[8:10]
    cut = ask(served, METHODS[0], stop=stop).choices[0]
    assert len(cut.logprobs.tokens) == len(cut.token_ids) < 24
    assert cut.logprobs.token_logprobs == free.logprobs.token_logprobs[: len(cut.token_ids)]


def test_what_cannot_be_is_a_number_that_json_has() -> None:
    logits = torch.tensor([[0.0, -math.inf, 1.0]])
    (found,) = token_logprobs(logits, [1], 3)
    assert found.logprob == -9999.0 and [token for token, _ in found.top] == [2, 0, 1]
    assert token_logprobs(torch.zeros(1, 4), [2], 2)[0].logprob == pytest.approx(-math.log(4))
