"""What a request may not be: an error object each, and the server goes on."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from openai import NotFoundError

from serve.limits import ServerLimits
from tests.refusals import lacking
from tests.serve.running import Running, running
from tests.tiny import tiny_pair

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
SAID = [{"role": "user", "content": "a"}]


def post(url: str, path: str, body: bytes, method: str = "POST", **headers: str) -> tuple[int, Any]:
    """Status and object of a raw request."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request(method, path, body, {"Content-Type": "application/json", **headers})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def _tool(name: str, **about: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **about}}


def _called(arguments: str) -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _told(id: str) -> dict[str, Any]:
    return {"role": "tool", "content": "3", "tool_call_id": id}


BODIES: list[tuple[str, str, tuple[object, ...]]] = [
    (TEXT, "", ("JSON",)),
    (TEXT, "{", ("JSON",)),
    (TEXT, "[]", ("list", "JSON object")),
    (TEXT, "null", ("null", "JSON object")),
    (TEXT, "3", ("number", "JSON object")),
    (TEXT, '"a"', ("text", "JSON object")),
    (TEXT, "[" * 100_000, ("nested",)),
    (TEXT, '{"prompt": "a", "prompt": "b"}', ("'prompt'", "twice")),
    (TEXT, '{"prompt": "a", "temperature": NaN}', ("NaN",)),
    (TEXT, '{"prompt": "a", "max_tokens": 1' + "0" * 5000 + "}", ("digits",)),
    (TEXT, '{"prompt": "a", "temperature": 1' + "0" * 400 + "}", ("number",)),
    (TEXT, '{"prompt": "a", "top_p": 1' + "0" * 400 + "}", ("number",)),
    (TEXT, '{"prompt": "a", "\\ud800": 1}', ("'\\ud800'",)),
    (CHAT, '{"messages": [{"role": "user", "content": "a", "\\ud800": 1}]}', ("role", "content")),
    (TEXT, '{"prompt": "a", "speculative": {"method": "suffix", "max_spec_factor": 1e308}}', ("max_spec_factor",)),
    (TEXT, json.dumps({"prompt": ["a"] * 190_000}), ("190000 prompts", 68)),
    (TEXT, "{}", ("prompt: None",)),
    (TEXT, '{"prompt": null}', ("prompt: None",)),
    (TEXT, '{"prompt": ""}', ("prompt",)),
    (TEXT, '{"prompt": []}', ("prompt",)),
    (TEXT, '{"prompt": [[]]}', ("prompt",)),
    (TEXT, '{"prompt": [""]}', ("prompt",)),
    (TEXT, '{"prompt": 3}', ("prompt: 3",)),
    (TEXT, '{"prompt": [1, "a"]}', ("prompt",)),
    (TEXT, '{"prompt": [1, true]}', ("prompt",)),
    (TEXT, '{"prompt": [-1]}', ("prompt", 0, 260)),
    (TEXT, '{"prompt": [1000000]}', ("prompt", 0, 260)),
    (TEXT, '{"prompt": {"text": "a"}}', ("prompt",)),
    (TEXT, json.dumps({"prompt": [5] * 600}), (512,)),
    (TEXT, json.dumps({"prompt": "a" * 60_000}), ("characters",)),
    (TEXT, '{"prompt": "\\ud800"}', ("prompt",)),
    (TEXT, '{"prompt": "a", "max_tokens": 0}', ("max_tokens", 1)),
    (TEXT, '{"prompt": "a", "max_tokens": -1}', ("max_tokens", 1)),
    (TEXT, '{"prompt": "a", "max_tokens": 1.5}', ("max_tokens", "integer")),
    (TEXT, '{"prompt": "a", "max_tokens": "7"}', ("max_tokens", "integer")),
    (TEXT, '{"prompt": "a", "max_tokens": true}', ("max_tokens", "integer")),
    (TEXT, '{"prompt": "a", "max_tokens": 9999999}', ("max_tokens", 1, 1024)),
    (TEXT, '{"prompt": "a", "temperature": -1}', ("temperature",)),
    (TEXT, '{"prompt": "a", "temperature": "hot"}', ("temperature: 'hot'",)),
    (TEXT, '{"prompt": "a", "temperature": 1e300}', ("temperature",)),
    (TEXT, '{"prompt": "a", "top_p": 0}', ("top_p",)),
    (TEXT, '{"prompt": "a", "top_p": 1.1}', ("top_p",)),
    (TEXT, '{"prompt": "a", "top_k": -7}', ("top_k",)),
    (TEXT, '{"prompt": "a", "top_k": 2.0}', ("top_k: 2.0",)),
    (TEXT, '{"prompt": "a", "seed": "x"}', ("seed",)),
    (TEXT, '{"prompt": "a", "seed": -1}', ("seed", 0)),
    (TEXT, json.dumps({"prompt": "a", "seed": 10**30}), ("seed", 2**63 - 1)),
    (TEXT, '{"prompt": "a", "temperature": 0, "top_p": -5}', ("top_p",)),
    (TEXT, '{"prompt": "a", "temperature": 0, "top_k": -7}', ("top_k",)),
    (TEXT, '{"prompt": "a", "stop": "\\ud800"}', ("stop",)),
    (TEXT, '{"prompt": "a", "stop": ["x", "\\udc00y"]}', ("stop",)),
    (TEXT, '{"prompt": "a", "user": {"x": 1}}', ("user",)),
    (TEXT, '{"prompt": "a", "metadata": "x"}', ("metadata",)),
    (CHAT, '{"messages": [{"role": "user", "content": "a", "name": {"x": 1}}]}', ("name", "text")),
    (TEXT, '{"prompt": "a", "stop": 3}', ("stop: 3",)),
    (TEXT, '{"prompt": "a", "stop": [""]}', ("stop",)),
    (TEXT, json.dumps({"prompt": "a", "stop": ["x"] * 17}), ("stop", 16)),
    (TEXT, '{"prompt": "a", "stream": "yes"}', ("stream", "true", "false")),
    (TEXT, '{"prompt": "a", "stream_options": {"include_usage": true}}', ("stream_options", "stream")),
    (TEXT, '{"prompt": "a", "stream": true, "stream_options": {"x": 1}}', ("stream_options",)),
    (TEXT, '{"prompt": "a", "n": 69}', ("n: 69", 1, 68)),
    (TEXT, '{"prompt": ["a", "b"], "n": 35}', ("n: 35", 1, 34)),
    (TEXT, '{"prompt": "a", "best_of": 3}', ("best_of: 3", 1)),
    (TEXT, '{"prompt": "a", "logprobs": 21}', ("logprobs: 21", 0, 20)),
    (TEXT, '{"prompt": "a", "logprobs": true}', ("logprobs", "integer")),
    (CHAT, json.dumps({"messages": SAID, "logprobs": 1}), ("logprobs: 1", "true or false")),
    (CHAT, json.dumps({"messages": SAID, "top_logprobs": 2}), ("top_logprobs: 2", "logprobs true")),
    (CHAT, json.dumps({"messages": SAID, "logprobs": True, "top_logprobs": 21}), ("top_logprobs: 21", 0, 20)),
    (TEXT, '{"prompt": "a", "echo": "yes"}', ("echo: 'yes'", "true or false")),
    (CHAT, json.dumps({"messages": SAID, "echo": True}), ("echo", True)),
    (TEXT, '{"prompt": "a", "stop_token_ids": 5}', ("stop_token_ids: 5", "list")),
    (TEXT, '{"prompt": "a", "stop_token_ids": [261]}', ("stop_token_ids: 261", 0, 260)),
    (TEXT, '{"prompt": "a", "speculative_config": {"method": "magic"}}', ("magic", "speculative_config")),
    (TEXT, '{"prompt": "a", "speculative_config": {"method": "ngram", "x": 1}}', ("'x'", "prompt_lookup_max")),
    (
        TEXT,
        '{"prompt": "a", "speculative_config": {"method": "draft_model", "model": "x"}}',
        ("model", "'x'", "loaded"),
    ),
    (
        TEXT,
        '{"prompt": "a", "speculative_config": {"method": "ngram", "prompt_lookup_max": 2, "max_ngram_size": 2}}',
        ("prompt_lookup_max", "max_ngram_size"),
    ),
    (
        TEXT,
        '{"prompt": "a", "speculative": {"method": "ngram", "num_speculative_tokens": -1}}',
        ("num_speculative_tokens", -1),
    ),
    (TEXT, '{"prompt": "a", "presence_penalty": "much"}', ("presence_penalty", "a number")),
    (TEXT, '{"prompt": "a", "min_p": 2}', ("min_p", "0 < NUMBER <= 1")),
    (TEXT, '{"prompt": "a", "repetition_penalty": 0}', ("repetition", "NUMBER")),
    (TEXT, '{"prompt": "a", "min_tokens": -1}', ("min_tokens", "0 or more")),
    (TEXT, '{"prompt": "a", "logit_bias": {"5": "x"}}', ("logit_bias", "ID:NUMBER")),
    (TEXT, '{"prompt": "a", "logit_bias": {"999999999": 1}}', ("logit_bias", "ids from 0 to")),
    (TEXT, '{"prompt": "a", "temprature": 1}', ("'temprature'", "'temperature'")),
    (TEXT, '{"prompt": "a", "model": "gpt-9"}', ("model", "tiny")),
    (TEXT, '{"prompt": "a", "speculative": "mtp"}', ("speculative", "object")),
    (TEXT, '{"prompt": "a", "speculative": {"method": "magic"}}', ("magic",)),
    (
        TEXT,
        '{"prompt": "a", "speculative": {"method": "suffix", "hybrid_model": "mtp"}}',
        ("hybrid_model", "suffix"),
    ),
    (TEXT, '{"prompt": "a", "speculative": {"method": "speculative", "gamma": -1}}', ("gamma",)),
    (TEXT, '{"prompt": "a", "speculative": {"method": "speculative", "gamma": {}}}', ("gamma",)),
    (TEXT, '{"prompt": "a", "speculative": {"method": "mtp"}}', ("mtp",)),
    (TEXT, '{"prompt": "a", "speculative": {"method": "beam"}}', ("beam",)),
    (CHAT, "{}", ("messages",)),
    (CHAT, '{"messages": []}', ("messages",)),
    (CHAT, '{"messages": "hello"}', ("messages",)),
    (CHAT, '{"messages": [1]}', ("messages",)),
    (CHAT, '{"messages": [{"role": "user"}]}', ("messages[0].content",)),
    (CHAT, '{"messages": [{"role": "robot", "content": "a"}]}', ("messages[0].role",)),
    (CHAT, '{"messages": [{"role": "assistant", "content": "a"}]}', ("user",)),
    (CHAT, json.dumps({"messages": SAID * 2}), ("messages",)),
    (CHAT, '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}', ("text",)),
    (CHAT, '{"messages": [{"role": "user", "content": "a", "tool_calls": [1]}]}', ("tool_calls",)),
    (CHAT, json.dumps({"messages": [{"role": "tool", "content": "a"}]}), ("messages[0].tool_call_id", None)),
    (CHAT, json.dumps({"messages": [*SAID, _called("{}"), _told("call_2")]}), ("'call_2'", "call_1")),
    (CHAT, json.dumps({"messages": [*SAID, _called("[1]"), _told("call_1")]}), ("'[1]'", "object")),
    (CHAT, json.dumps({"messages": [*SAID, _called("{")]}), ("messages[1].tool_calls[0].function.arguments", "JSON")),
    (CHAT, json.dumps({"messages": [*SAID, _called("{}")]}), ("user, assistant", "tool")),
    (CHAT, json.dumps({"messages": [*SAID, {"role": "assistant", "tool_calls": [{}]}, *SAID]}), ("tool_calls[0]",)),
    (
        CHAT,
        json.dumps({"messages": SAID, "max_tokens": 3, "max_completion_tokens": 3}),
        ("max_tokens", "max_completion_tokens"),
    ),
    (CHAT, json.dumps({"messages": SAID, "tools": [{"type": "function"}]}), ("tools[0]", "parameters")),
    (CHAT, json.dumps({"messages": SAID, "tools": {"a": 1}}), ("tools", "a list")),
    (CHAT, json.dumps({"messages": SAID, "tools": [_tool("a b")]}), ("tools[0].function.name: 'a b'", "ASCII")),
    (CHAT, json.dumps({"messages": SAID, "tools": [_tool("f"), _tool("f")]}), ("tools: 'f'", "once")),
    (
        CHAT,
        json.dumps({"messages": SAID, "tools": [_tool("f", parameters=3)]}),
        ("tools[0].function.parameters: 3", "JSON Schema"),
    ),
    (CHAT, json.dumps({"messages": SAID, "tools": [_tool("f", about=3)]}), ("tools[0].function.about",)),
    (CHAT, json.dumps({"messages": SAID, "tools": [_tool(f"f{n}") for n in range(129)]}), ("129", 128)),
    (CHAT, json.dumps({"messages": SAID, "tool_choice": "required"}), ("tool_choice", "required", "tools")),
    (CHAT, json.dumps({"messages": SAID, "tools": [_tool("f")], "tool_choice": "any"}), ("tool_choice: 'any'", "auto")),
    (
        CHAT,
        json.dumps({"messages": SAID, "tools": [_tool("f")], "tool_choice": _tool("g")}),
        ("tool_choice: 'g'", "one of f"),
    ),
    (
        CHAT,
        json.dumps(
            {
                "messages": SAID,
                "tools": [_tool("f", parameters={"type": "object", "properties": {"x": {"type": "strange"}}})],
                "tool_choice": "required",
            }
        ),
        ("json_schema", "strange"),
    ),
    (
        CHAT,
        json.dumps(
            {
                "messages": SAID,
                "tools": [_tool("f")],
                "tool_choice": "required",
                "response_format": {"type": "json_object"},
            }
        ),
        ("tool_choice: 'required'", "response_format"),
    ),
    (CHAT, json.dumps({"messages": SAID, "response_format": {"type": "xml"}}), ("response_format", "json_schema")),
    (CHAT, json.dumps({"messages": SAID, "response_format": {"type": "json_schema"}}), ("response_format", "schema")),
    (CHAT, json.dumps({"messages": SAID, "structured_outputs": {"regex": "a(b"}}), ("regex", "unclosed")),
    (CHAT, json.dumps({"messages": SAID, "structured_outputs": {"regex": 3}}), ("structured_outputs", 3)),
    (CHAT, json.dumps({"messages": SAID, "structured_outputs": {"choice": []}}), ("choice",)),
    (CHAT, json.dumps({"messages": SAID, "structured_outputs": {"file": "a.json"}}), ("structured_outputs", "json")),
    (
        CHAT,
        json.dumps({"messages": SAID, "structured_outputs": {"json": "schema.json"}}),
        ("json_schema", "schema.json"),
    ),
    (
        CHAT,
        json.dumps(
            {"messages": SAID, "response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}
        ),
        ("response_format", "structured_outputs"),
    ),
    (CHAT, json.dumps({"messages": SAID, "prompt": "a"}), ("'prompt'",)),
]


@pytest.mark.parametrize(("path", "body", "quoted"), BODIES, ids=[f"{n}" for n in range(len(BODIES))])
def test_a_wrong_body_is_an_error_object_that_says_what_is_wrong(
    served: Running, path: str, body: str, quoted: tuple[object, ...]
) -> None:
    status, answer = post(served.url, path, body.encode())
    assert status in (400, 404, 413), answer
    assert not lacking(answer["error"]["message"], *quoted) and "Traceback" not in json.dumps(answer)
    assert answer["error"]["type"] in ("invalid_request_error", "not_found_error")
    assert set(answer["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", -1), ("top_p", 2), ("top_p", 0), ("top_k", -2), ("seed", -1), ("stop", "\ud800"), ("user", 3)],
)
def test_the_field_at_fault_is_named(served: Running, field: str, value: object) -> None:
    for temperature in ({}, {"temperature": 0}):
        body = json.dumps({"prompt": "a", **temperature, field: value}).encode()
        status, answer = post(served.url, TEXT, body)
        assert status == 400 and answer["error"]["param"] == field, answer


def test_bytes_that_are_no_text_are_refused(served: Running) -> None:
    status, answer = post(served.url, TEXT, b'{"prompt": "\xff"}')
    assert status == 400 and "not UTF-8 at byte 12" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/v1/none", 404), ("GET", TEXT, 405), ("PUT", "/", 405)]
)
def test_a_route_that_is_none_is_an_error_object(served: Running, method: str, path: str, status: int) -> None:
    found, answer = post(served.url, path, b"", method)
    assert found == status and path in answer["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings", "/v1/files"])
def test_what_openai_has_and_this_server_does_not_is_refused_in_its_own_words(served: Running, path: str) -> None:
    status, answer = post(served.url, path, b'{"model": "tiny", "input": "a"}')
    error = answer["error"]
    assert status == 404 and error["code"] == "unknown_url" and error["type"] == "not_found_error"
    assert path in error["message"] and CHAT in error["message"] and TEXT in error["message"]
    with pytest.raises(NotFoundError):
        served.client().responses.create(model="tiny", input="a")


def test_a_body_that_is_too_long_is_refused_before_it_is_read(served: Running) -> None:
    status, answer = post(served.url, TEXT, json.dumps({"prompt": "a" * 1_100_000}).encode())
    assert status == 413 and "1,000,000" in answer["error"]["message"]


def test_after_all_of_it_the_server_answers(served: Running) -> None:
    status, answer = post(served.url, TEXT, b'{"prompt": "a", "max_tokens": 3, "temperature": 0}')
    assert status == 200 and answer["usage"]["completion_tokens"] <= 3
    assert served.server.driver.running == 0 and served.server.driver.waiting == 0


def test_who_lacks_the_key_gets_nothing_but_health_and_the_empty_page() -> None:
    with running(tiny_pair(), ServerLimits(key="secret")) as found:
        for path in ("/v1/models", "/metrics", "/live"):
            assert post(found.url, path, b"", "GET")[0] == 401
        for wrong in ("secre", "secreT", "tercse", "secrets", "ſecret", "000000"):
            about = {"Authorization": f"Bearer {wrong}".encode().decode("latin-1")}
            assert post(found.url, TEXT, b'{"prompt": "a"}', **about)[0] == 401, wrong
        assert post(found.url, TEXT, b'{"prompt": "a"}', Authorization="Bearer secret")[0] == 200
        status, answer = post(found.url, "/health", b"", "GET")
        assert status == 200 and answer["status"] == "ok"


@pytest.mark.parametrize(
    ("given", "status"),
    [("Bearer k", 200), ("bearer k", 200), ("k", 401), ("Basic k", 401), ("Bearer  k", 401), ("Bearer", 401)],
)
def test_a_key_comes_behind_its_scheme(given: str, status: int) -> None:
    with running(tiny_pair(), ServerLimits(key="k")) as found:
        connection = http.client.HTTPConnection(urlsplit(found.url).netloc, timeout=60)
        connection.request("GET", "/v1/models", headers={"Authorization": given})
        assert connection.getresponse().status == status
