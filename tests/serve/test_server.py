"""The official client against the server: texts, chats, streams, methods by request, what each brought."""

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, RateLimitError
from starlette.requests import Request

from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import PARAMETERS, Settings
from serve.errors import broken
from serve.limits import ServerLimits
from tests.refusals import refused
from tests.serve.running import Running, running
from tests.tiny import tiny_pair

GREEDY = {"temperature": 0, "model": "tiny"}
SAID: list[Any] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "say ab"}]


def alone(served: Running, prompt: list[int], length: int, method: str = "target", **values: Any) -> RunMetrics:
    """What the loop of one text makes of it, on models of its own."""
    from sampling.pair.pair_engine import PairEngine

    engine, metrics = PairEngine(tiny_pair()), RunMetrics()
    for event in engine.stream(method, {**Settings(), "length": length, **values}, prompt):
        metrics.add(event)
    return metrics


def test_the_list_of_models_has_one(served: Running) -> None:
    (model,) = served.client().models.list().data
    assert model.id == "tiny" and model.model_extra == {"max_model_len": 512}


def test_a_text_is_what_the_loop_writes_alone(served: Running) -> None:
    answer = served.client().completions.create(
        prompt="say ab", max_tokens=12, extra_body={"return_token_ids": True}, **GREEDY
    )
    (choice,) = answer.choices
    prompt = served.server.driver.tokens.encode(["say ab"], False)
    expected = alone(served, prompt, 12)
    assert choice.model_extra == {"token_ids": expected.output_ids, "prompt_token_ids": prompt}
    assert choice.text == served.server.driver.tokens.decode(expected.output_ids)
    assert choice.finish_reason == expected.finish_reason
    assert answer.usage and answer.usage.prompt_tokens == len(prompt)
    assert answer.usage.completion_tokens == len(expected.output_ids)


@pytest.mark.parametrize("method", ["speculative", "ngram", "suffix", "prompt_lookup", "egag"])
def test_a_method_by_request_writes_the_same_and_says_what_it_brought(served: Running, method: str) -> None:
    def ask(**speculative: Any) -> Any:
        return served.client().completions.create(
            prompt="ab ab ab", max_tokens=24, extra_body={"return_token_ids": True, **speculative}, **GREEDY
        )

    plain, drafted = ask(), ask(speculative={"method": method})
    assert drafted.choices[0].token_ids == plain.choices[0].token_ids
    assert plain.metrics["speculative_decoding"] is None and not plain.metrics["workbench"]["settings"]["chat"]
    told, ours = drafted.metrics["speculative_decoding"], drafted.metrics["workbench"]
    assert ours["lossless"] is True and plain.metrics["workbench"]["lossless"] is True
    assert ours["method"] == method and sum(ours["tokens_by_round"]) == drafted.usage.completion_tokens
    assert told["num_draft_tokens"] == ours["drafted"] and told["num_accepted_draft_tokens"] == ours["accepted"]
    assert sum(told["acceptance_histogram"]) == told["num_spec_steps"] == len(told["per_step_drafted"])
    assert sum(told["per_step_accepted"]) == ours["accepted"]


def test_a_lossy_answer_says_so(served: Running) -> None:
    answer: Any = served.client().completions.create(
        prompt="ab ab",
        max_tokens=6,
        extra_body={"speculative": {"method": "speculative", "verify_strategy": "typical"}},
        model="tiny",
    )
    assert answer.metrics["workbench"]["lossless"] is False


def test_a_seed_draws_what_the_loop_draws_alone(served: Running) -> None:
    processor = PARAMETERS["processor"].parse("topknucleus 1.5 20 0.9")
    answer: Any = served.client().completions.create(
        prompt=[5, 6, 7],
        max_tokens=16,
        temperature=1.5,
        top_p=0.9,
        seed=7,
        model="tiny",
        extra_body={"top_k": 20, "return_token_ids": True, "speculative": {"method": "speculative", "gamma": 3}},
    )
    expected = alone(served, [5, 6, 7], 16, "speculative", gamma=3, seed=7, processor=processor)
    assert answer.choices[0].token_ids == expected.output_ids
    assert answer.metrics["workbench"]["settings"]["processor"] == "topknucleus 1.5 20 0.9"
    assert answer.metrics["workbench"]["tokens_by_round"] == expected.tokens_by_round


def test_a_stream_has_a_chunk_a_round_and_ends_with_the_counts(served: Running) -> None:
    asked: dict[str, Any] = {"prompt": "ab ab ab", "max_tokens": 20, **GREEDY}
    extra = {"return_token_ids": True, "speculative": {"method": "suffix"}}
    whole: Any = served.client().completions.create(**asked, extra_body=extra)
    chunks: list[Any] = list(
        served.client().completions.create(
            **asked, extra_body=extra, stream=True, stream_options={"include_usage": True}
        )
    )
    *rounds, end, usage = chunks
    assert [len(chunk.choices[0].token_ids) for chunk in rounds] == usage.metrics["workbench"]["tokens_by_round"]
    assert "".join(chunk.choices[0].text for chunk in (*rounds, end)) == whole.choices[0].text
    assert [token for chunk in rounds for token in chunk.choices[0].token_ids] == whole.choices[0].token_ids
    assert end.choices[0].finish_reason == whole.choices[0].finish_reason
    assert usage.choices == [] and usage.usage == whole.usage
    assert all(chunk.usage is None for chunk in (*rounds, end))


def test_a_chat_goes_through_the_template_and_streams_the_same(served: Running) -> None:
    client = served.client()
    whole: Any = client.chat.completions.create(
        messages=SAID, max_completion_tokens=16, extra_body={"return_token_ids": True}, **GREEDY
    )
    assert whole.prompt_token_ids == served.server.driver.tokens.encode(["say ab"], True, "be brief")
    assert whole.choices[0].token_ids == alone(served, whole.prompt_token_ids, 16).output_ids
    chunks = list(client.chat.completions.create(messages=SAID, max_tokens=16, stream=True, **GREEDY))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_several_prompts_of_one_request_are_several_choices(served: Running) -> None:
    answer = served.client().completions.create(prompt=["a", "b", "ab"], max_tokens=6, **GREEDY)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    singles = [
        served.client().completions.create(prompt=text, max_tokens=6, **GREEDY).choices[0].text
        for text in ("a", "b", "ab")
    ]
    assert [choice.text for choice in answer.choices] == singles
    streamed = ["", "", ""]
    for chunk in served.client().completions.create(prompt=["a", "b", "ab"], max_tokens=6, stream=True, **GREEDY):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == singles


def test_a_stop_string_ends_the_text_before_it_and_counts_its_tokens(served: Running) -> None:
    free = served.client().completions.create(prompt="say ab", max_tokens=40, **GREEDY)
    stop = free.choices[0].text[5:7]
    for method in ("target", "speculative"):
        answer: Any = served.client().completions.create(
            prompt="say ab",
            max_tokens=40,
            stop=stop,
            extra_body={"speculative": {"method": method}, "return_token_ids": True},
            **GREEDY,
        )
        assert answer.choices[0].text == free.choices[0].text[: free.choices[0].text.find(stop)]
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.completion_tokens == len(answer.choices[0].token_ids) < 40
        assert sum(answer.metrics["workbench"]["tokens_by_round"]) == answer.usage.completion_tokens


def test_clients_that_ask_at_once_get_what_they_get_alone(served: Running) -> None:
    prompts = [f"{'ab ' * count}{letter}" for count in (1, 2, 3) for letter in "abc"]
    methods = ["target", "speculative", "suffix"]

    async def ask(client: AsyncOpenAI, number: int, prompt: str) -> str:
        extra = {"speculative": {"method": methods[number % 3]}}
        answer = await client.completions.create(prompt=prompt, max_tokens=15, extra_body=extra, **GREEDY)
        return answer.choices[0].text

    async def ask_all() -> list[str]:
        async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(ask(client, *one) for one in enumerate(prompts)))

    tokens = served.server.driver.tokens
    expected = [tokens.decode(alone(served, tokens.encode([one], False), 15).output_ids) for one in prompts]
    assert asyncio.run(ask_all()) == expected


def test_what_the_window_cannot_hold_ends_the_text(served: Running) -> None:
    answer = served.client().completions.create(
        prompt=[5] * 500, max_tokens=100, extra_body={"ignore_eos": True}, **GREEDY
    )
    assert answer.choices[0].finish_reason == "length" and answer.usage
    assert answer.usage.completion_tokens in (12, 13)


def test_more_than_may_wait_are_refused_and_the_others_answered() -> None:
    with running(tiny_pair(), ServerLimits(size=1, waiting=1)) as found:
        long: Any = found.client().completions.create(
            prompt="a", max_tokens=450, stream=True, extra_body={"ignore_eos": True}, **GREEDY
        )
        with refused(0, 1, 2, error=RateLimitError) as caught:
            found.client().completions.create(prompt=["a", "b"], max_tokens=3, **GREEDY)
        assert caught.value.status_code == 429
        assert sum(1 for _ in long) > 400
        assert len(found.client().completions.create(prompt=["a", "b"], max_tokens=3, **GREEDY).choices) == 2


def test_the_metrics_page_counts_in_the_names_of_vllm() -> None:
    import urllib.request

    with running(tiny_pair()) as found:
        answer: Any = found.client().completions.create(
            prompt="ab ab ab", max_tokens=20, extra_body={"speculative": {"method": "suffix"}}, **GREEDY
        )
        page = urllib.request.urlopen(f"{found.url}/metrics").read().decode()
    told = answer.metrics["speculative_decoding"]
    labels = '{model_name="tiny",engine="0"}'
    assert f"vllm:generation_tokens_total{labels} {answer.usage.completion_tokens}\n" in page
    assert f"vllm:spec_decode_num_drafts_total{labels} {told['num_spec_steps']}\n" in page
    assert f"vllm:spec_decode_num_accepted_tokens_total{labels} {told['num_accepted_draft_tokens']}\n" in page
    assert 'finished_reason="length"} 1\n' in page or 'finished_reason="stop"} 1\n' in page


def test_a_refusal_is_the_clients_own_exception(served: Running) -> None:
    with refused(400, "'ngramm'", "'ngram'", error=BadRequestError):
        served.client().completions.create(prompt="a", model="tiny", extra_body={"speculative": {"method": "ngramm"}})


def test_an_error_of_ours_is_the_servers_and_says_only_its_kind() -> None:
    request = Request({"type": "http", "method": "GET", "path": "/metrics", "headers": [], "query_string": b""})
    answer = asyncio.run(broken(request, ValueError("a secret")))
    assert answer.status_code == 500 and b"ValueError" in answer.body and b"secret" not in answer.body
