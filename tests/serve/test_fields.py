"""What single fields of OpenAI's and vLLM's APIs do to an answer, through the official client."""

import json
from typing import Any

import pytest
from openai import NotFoundError
from prometheus_client.parser import text_string_to_metric_families

from sampling.methods.settings import PARAMETERS
from serve.requests.body import sample_seed
from tests.serve.running import Running, running
from tests.serve.test_refusals import post
from tests.serve.test_server import GREEDY, SAID, alone
from tests.tiny import tiny_pair

IDS = {"return_token_ids": True}


def completion(served: Running, **asked: Any) -> Any:
    extra = {**IDS, **asked.pop("extra", {})}
    return served.client().completions.create(**{"model": "tiny", "prompt": "say ab", **asked}, extra_body=extra)


@pytest.mark.parametrize("method", ["target", "speculative", "ngram"])
@pytest.mark.parametrize("stream", [False, True])
def test_samples_are_those_of_their_seeds_alone(served: Running, method: str, stream: bool) -> None:
    extra = {"speculative": {"method": method}}
    asked: dict[str, Any] = {"prompt": [[5, 6, 7], [8, 9]], "n": 3, "seed": 7, "max_tokens": 12, "temperature": 1.2}
    answer = completion(served, **asked, extra=extra, stream=stream)
    ids, seeds = {index: list[int]() for index in range(6)}, dict[int, int]()
    for choice in (chunk.choices[0] for chunk in answer) if stream else answer.choices:
        ids[choice.index] += choice.token_ids
        seeds |= {choice.index: choice.seed} if choice.finish_reason else {}
    assert seeds == {index: sample_seed(7, index % 3) for index in range(6)}
    processor = PARAMETERS["processor"].parse("multinomial 1.2")
    for index, found in ids.items():
        prompt = [[5, 6, 7], [8, 9]][index // 3]
        assert found == alone(served, prompt, 12, method, seed=seeds[index], processor=processor).output_ids
    assert len(set(map(tuple, ids.values()))) == 6
    if not stream:
        assert answer.usage.prompt_tokens == 5 and answer.usage.completion_tokens == sum(map(len, ids.values()))
        assert answer.metrics is None
    one = completion(served, **{**asked, "prompt": [5, 6, 7], "n": 1}, extra=extra).choices[0]
    assert one.token_ids == ids[0] and not hasattr(one, "seed")
    again = completion(served, **{**asked, "prompt": [8, 9], "n": 1, "seed": seeds[5]}, extra=extra).choices[0]
    assert again.token_ids == ids[5]


def test_samples_of_a_chat_are_choices(served: Running) -> None:
    answer = served.client().chat.completions.create(messages=SAID, n=2, max_tokens=8, seed=3, model="tiny")
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].message.content != answer.choices[1].message.content
    chunks = served.client().chat.completions.create(
        messages=SAID, n=2, max_tokens=8, seed=3, model="tiny", stream=True
    )
    texts = ["", ""]
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [choice.message.content for choice in answer.choices]


@pytest.mark.parametrize("method", ["target", "speculative", "recycling"])
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_a_stop_token_ends_the_text_and_is_no_part_of_it(served: Running, method: str, ignore_eos: bool) -> None:
    extra = {"speculative": {"method": method}, "ignore_eos": ignore_eos}
    free = completion(served, max_tokens=30, extra=extra, **GREEDY).choices[0]
    stop = next(
        token for place, token in enumerate(free.token_ids) if place > 4 and token not in free.token_ids[:place]
    )
    answer = completion(served, max_tokens=30, extra={**extra, "stop_token_ids": [3, stop]}, **GREEDY)
    choice, place = answer.choices[0], free.token_ids.index(stop)
    assert choice.token_ids == free.token_ids[: place + 1] and choice.finish_reason == "stop"
    assert answer.usage.completion_tokens == place + 1
    assert choice.text == served.server.driver.tokens.decode(free.token_ids[:place])
    least = {**extra, "stop_token_ids": [stop], "min_tokens": place + 3}
    later = completion(served, max_tokens=30, extra=least, **GREEDY).choices[0]
    assert stop not in later.token_ids[: place + 3] and len(later.token_ids) >= place + 3


def test_a_bias_holds_under_every_method(served: Running) -> None:
    plain = completion(served, max_tokens=12, **GREEDY).choices[0]
    for method in ("target", "speculative", "ngram"):
        extra = {"speculative": {"method": method}}
        bias = {str(plain.token_ids[0]): -100, "70": 4.5}
        found = completion(served, max_tokens=12, logit_bias=bias, extra=extra, **GREEDY).choices[0]
        processor = PARAMETERS["processor"].parse(f"greedy logit_bias={plain.token_ids[0]}:-100/70:4.5")
        prompt = served.server.driver.tokens.encode(["say ab"], False)
        assert found.token_ids == alone(served, prompt, 12, processor=processor).output_ids != plain.token_ids


CHANGES: list[dict[str, Any]] = [
    {"presence_penalty": 1.5},
    {"frequency_penalty": 1.5},
    {"repetition_penalty": 1.8},
    {"logit_bias": {"20": 100, "30": -100}},
    {"min_tokens": 9, "ignore_eos": False},
    {"ignore_eos": True},
    {"presence_penalty": 1.0, "repetition_penalty": 1.3, "logit_bias": {"25": 3}, "min_tokens": 4},
]


@pytest.mark.parametrize("chat", [False, True], ids=["completion", "chat"])
@pytest.mark.parametrize("fields", CHANGES, ids=lambda fields: ", ".join(fields))
def test_what_changes_logits_changes_drafts_alike(served: Running, fields: dict[str, Any], chat: bool) -> None:
    """Ids and log-probabilities are plain decoding's, through the official client."""
    own = {name: fields[name] for name in ("presence_penalty", "frequency_penalty", "logit_bias") if name in fields}
    client, found = served.client(), []
    for method in ("target", "speculative", "suffix"):
        extra = {name: value for name, value in fields.items() if name not in own}
        extra |= {"speculative": {"method": method}, "return_token_ids": True}
        more: dict[str, Any] = {"max_tokens": 12, **GREEDY, **own, "extra_body": extra}
        if chat:
            answer: Any = client.chat.completions.create(messages=SAID, logprobs=True, top_logprobs=3, **more)
            logprobs = [
                [each.logprob, *(best.logprob for best in each.top_logprobs)]
                for each in answer.choices[0].logprobs.content
            ]
        else:
            answer = client.completions.create(prompt="abab ab", logprobs=3, **more)
            logprobs = [sorted(best.values()) for best in answer.choices[0].logprobs.top_logprobs]
        found.append((answer.choices[0].token_ids, logprobs))
    plain, *others = found
    for ids, logprobs in others:
        assert ids == plain[0]
        assert all(each == pytest.approx(told, abs=1e-4) for each, told in zip(logprobs, plain[1], strict=True))


def test_a_least_probability_of_one_leaves_the_best_token(served: Running) -> None:
    client, extra = served.client(), {"return_token_ids": True, "speculative": {"method": "speculative"}}
    asked: dict[str, Any] = {"model": "tiny", "prompt": "abab", "max_tokens": 12}
    best: Any = client.completions.create(**asked, temperature=0, extra_body=extra)
    drawn: Any = client.completions.create(**asked, temperature=1, seed=3, extra_body={**extra, "min_p": 1.0})
    free: Any = client.completions.create(**asked, temperature=1, seed=3, extra_body=extra)
    assert drawn.choices[0].token_ids == best.choices[0].token_ids != free.choices[0].token_ids


def test_a_token_has_its_bytes(served: Running) -> None:
    bytes_of, names = served.server.driver.tokens.bytes_of, served.server.driver.tokens.names(range(261))
    alphabet = {bytes_of(token): token for token in range(4, 260)}
    assert alphabet.keys() == {bytes([byte]) for byte in range(256)} and bytes_of(260) == b"ab"
    assert [bytes_of(token).decode() for token in range(4)] == names[:4]


def test_an_echo_of_ids_is_their_text(served: Running) -> None:
    choice = completion(served, prompt=[[70, 71], [72]], echo=True, max_tokens=3, **GREEDY).choices
    for each, ids in zip(choice, ([70, 71], [72]), strict=True):
        assert each.text == served.server.driver.tokens.decode([*ids, *each.token_ids]) and each.logprobs is None


def test_counts_may_come_with_every_chunk(served: Running) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(completion(served, max_tokens=12, stream=True, stream_options=options, **GREEDY))
    told = [chunk.usage.completion_tokens for chunk in chunks]
    assert told == sorted(told) and told[-1] == told[-2] == sum(len(c.choices[0].token_ids) for c in chunks[:-1])
    assert all(
        chunk.usage.total_tokens == chunk.usage.prompt_tokens + chunk.usage.completion_tokens for chunk in chunks
    )


@pytest.mark.parametrize(
    ("name", "value", "ours"),
    [
        ("speculative", {"method": "ngram", "prompt_lookup_max": 2}, "prompt_lookup"),
        ("speculative_config", {"method": "ngram", "num_speculative_tokens": 3}, "prompt_lookup"),
        ("speculative_config", {"method": "draft_model", "num_speculative_tokens": 2}, "speculative"),
        ("speculative", {"method": "ngram"}, "ngram"),
    ],
)
def test_vllms_words_name_a_method(served: Running, name: str, value: dict[str, Any], ours: str) -> None:
    plain = completion(served, prompt="ab ab ab", max_tokens=16, **GREEDY)
    found = completion(served, prompt="ab ab ab", max_tokens=16, extra={name: value}, **GREEDY)
    about = found.metrics["workbench"]
    assert about["method"] == ours and about["drafted"] > 0
    assert found.choices[0].token_ids == plain.choices[0].token_ids
    for key in ("gamma", "num_speculative_tokens"):
        if key in about["settings"] and "num_speculative_tokens" in value:
            assert about["settings"][key] == value["num_speculative_tokens"]


def asked(served: Running, path: str, **body: Any) -> Any:
    return post(served.url, path, json.dumps(body).encode())


def test_texts_and_chats_become_the_ids_that_are_asked(served: Running) -> None:
    status, answer = asked(served, "/tokenize", model="tiny", prompt="say é", return_token_strs=True)
    ids = served.server.driver.tokens.encode(["say é"], False)
    assert (status, answer["tokens"], answer["count"], answer["max_model_len"]) == (200, ids, len(ids), 512)
    assert answer["token_strs"] == served.server.driver.tokens.names(ids)
    status, text = asked(served, "/detokenize", tokens=ids)
    assert (status, text) == (200, {"prompt": "say é"})
    chat = asked(served, "/tokenize", messages=SAID)[1]
    sent: Any = served.client().chat.completions.create(messages=SAID, max_tokens=1, extra_body=IDS, **GREEDY)
    assert chat["tokens"] == sent.prompt_token_ids and chat["token_strs"] is None
    closed = asked(served, "/tokenize", messages=SAID, add_generation_prompt=False)[1]["tokens"]
    assert chat["tokens"][: len(closed)] == closed != chat["tokens"]
    assert asked(served, "/detokenize", tokens=closed)[1]["prompt"].endswith("<|im_end|>\n")
    tools = [{"type": "function", "function": {"name": "clock"}}]
    told = asked(served, "/tokenize", messages=SAID, tools=tools)[1]["tokens"]
    assert "clock" in asked(served, "/detokenize", tokens=told)[1]["prompt"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": SAID}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/tokenize", {"prompt": "a", "add_generation_prompt": True}, "add_generation_prompt"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"),
        ("/tokenize", {"messages": SAID, "continue_final_message": True}, "continue_final_message"),
        ("/tokenize", {"messages": SAID, "x": 1}, "x"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [261]}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
    ],
    ids=str,
)
def test_what_cannot_be_tokens_is_refused(served: Running, path: str, body: dict[str, Any], param: str) -> None:
    status, answer = asked(served, path, **body)
    assert (status, answer["error"]["param"]) == (400, param), answer


def test_a_model_is_found_by_its_name_alone(served: Running) -> None:
    assert served.client().models.retrieve("tiny").id == "tiny"
    with pytest.raises(NotFoundError) as caught:
        served.client().models.retrieve("gpt-9")
    assert caught.value.code == "model_not_found"


def test_the_metrics_page_has_vllms_histograms() -> None:
    """Read by Prometheus' own parser."""
    import urllib.request

    with running(tiny_pair()) as found:
        answers = [
            completion(found, prompt="ab ab", max_tokens=count, extra={"ignore_eos": True}, **GREEDY)
            for count in (1, 9)
        ]
        page = urllib.request.urlopen(f"{found.url}/metrics").read().decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert families["vllm:generation_tokens"].samples[0].value == 10
    for name, count, total in (
        ("time_to_first_token_seconds", 2, None),
        ("inter_token_latency_seconds", 8, None),
        ("request_time_per_output_token_seconds", 1, None),
        ("e2e_request_latency_seconds", 2, None),
        ("request_queue_time_seconds", 2, None),
        ("request_prefill_time_seconds", 2, None),
        ("request_decode_time_seconds", 2, None),
        ("request_prompt_tokens", 2, sum(answer.usage.prompt_tokens for answer in answers)),
        ("request_generation_tokens", 2, 10),
    ):
        family = families[f"vllm:{name}"]
        assert family.type == "histogram"
        values = {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}
        assert values[f"vllm:{name}_count", None] == values[f"vllm:{name}_bucket", "+Inf"] == count
        buckets = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
        assert buckets == sorted(buckets)
        whole = values[f"vllm:{name}_sum", None]
        assert whole > 0 or name == "request_decode_time_seconds"
        assert total is None or whole == total
    assert {
        sample.labels["le"]: sample.value
        for sample in families["vllm:request_generation_tokens"].samples
        if "le" in sample.labels
    }["5.0"] == 1
