"""Requests that begin alike share rows: samples of a prompt, later requests, and other methods."""

import re
from typing import Any

from openai import OpenAI
from openai.types import Completion

from serve.limits import ServerLimits
from tests.serve.running import Running, running
from tests.serve.test_clients import double_pair

PROMPT = [*range(5, 60)]


def ask(client: OpenAI, prompt: list[int] = PROMPT, method: str = "target", **more: Any) -> Completion:
    extra = {"speculative": {"method": method}, "return_token_ids": True}
    return client.completions.create(
        model="tiny", prompt=prompt, max_tokens=6, temperature=1, seed=3, extra_body=extra, **more
    )


def counted(found: Running) -> tuple[int, int]:
    """Tokens that were looked up, and those that were found."""
    page = found.server.driver.counters.page("tiny", 0, 0)
    values = [re.search(rf"^vllm:prefix_cache_{name}_total{{.*}} (\d+)", page, re.M) for name in ("queries", "hits")]
    queries, hits = (int(value[1]) for value in values if value)
    return queries, hits


def cached(answer: Completion) -> int | None:
    """What the answer says of its prompt."""
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    return answer.usage.prompt_tokens_details.cached_tokens


def ids_of(answer: Completion) -> list[list[int]]:
    return [choice.model_extra["token_ids"] for choice in answer.choices if choice.model_extra]


def test_samples_read_their_prompt_once_and_others_take_it_over() -> None:
    rows = len(PROMPT) - 1
    with running(double_pair(), ServerLimits(size=4, prefixes=0)) as found:
        alone = [ids_of(ask(found.client(), method=method, n=3)) for method in ("target", "speculative")]
        assert counted(found) == (0, 0)
    with running(double_pair(), ServerLimits(size=4)) as found:
        client = found.client()
        samples = ask(client, n=3)
        assert counted(found) == (3 * len(PROMPT), 2 * rows) and cached(samples) == 0
        drafted = ask(client, method="speculative", n=3)
        assert counted(found) == (6 * len(PROMPT), 5 * rows) and cached(drafted) == rows
        assert [ids_of(samples), ids_of(drafted)] == alone
        other = ask(client, [*PROMPT[:20], 3, 4])
        assert cached(other) == 20 and other.model_extra is not None
        assert other.model_extra["metrics"]["workbench"]["prefix_hits"] == 20


def test_an_answer_is_part_of_the_next_prompt() -> None:
    with running(double_pair(), ServerLimits(size=4)) as found:
        client = found.client()
        first = ask(client, method="suffix")
        spoken = [*PROMPT, *ids_of(first)[0]]
        again = ask(client, [*spoken, 9, 9], method="suffix")
        assert cached(again) == len(spoken) - 1, "its last token was never fed"
