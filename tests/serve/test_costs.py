"""What a request may cost: drafts of a round, memories, and nobody else's answer."""

from typing import Any

import pytest
from openai import APIError, BadRequestError, OpenAI

from ablation.plan.grid import Configuration
from sampling.methods.settings import Settings
from sampling.methods.tables import METHODS
from sampling.pair.pair_engine import PairEngine
from serve.app import Server
from serve.limits import DEEPEST, MOST_DRAFTS, REMEMBERED, ServerLimits, served_values
from tests.refusals import lacking, refused
from tests.serve.running import Running, running
from tests.tiny import tiny_pair
from utils.errors import UserError
from utils.parameter import MOST_DRAFTS as MOST_ANYWHERE


def ask(client: OpenAI, **speculative: Any) -> str:
    completions = client.completions
    answer = completions.create(
        model="tiny", prompt="ab", max_tokens=8, temperature=0, extra_body={"speculative": speculative}
    )
    return answer.choices[0].text


@pytest.mark.parametrize(
    ("method", "parameter", "value", "most"),
    [
        ("recycling", "num_speculative_tokens", 10**9, MOST_ANYWHERE),
        ("recycling", "num_speculative_tokens", 65, MOST_DRAFTS),
        ("speculative", "gamma", 65, MOST_DRAFTS),
        ("ngram", "set_ngramstorage", "basic 99999999", 16),
        ("suffix", "max_cached_requests", 500, REMEMBERED),
        ("suffix", "max_tree_depth", 65, DEEPEST),
        ("ngram", "reset_in_between", False, "on"),
    ],
)
def test_what_costs_others_their_answers_is_refused(
    served: Running, method: str, parameter: str, value: Any, most: object
) -> None:
    with pytest.raises(BadRequestError) as caught:
        ask(served.client(), method=method, **{parameter: value})
    name = "n" if parameter == "set_ngramstorage" else parameter
    assert caught.value.param == "speculative" and not lacking(str(caught.value), name, most)
    assert ask(served.client(), method="target")


def test_every_method_answers_with_what_a_server_allows(served: Running) -> None:
    expected = ask(served.client(), method="target")
    for method, most in (("speculative", {"gamma": 64}), ("suffix", {"num_speculative_tokens": 64})):
        assert ask(served.client(), method=method, **most) == expected


@pytest.mark.parametrize(("size", "rows", "drafts"), [(8, 4096, 64), (100, 4096, 39), (1000, 4096, 3), (8, 8, 0)])
def test_more_texts_have_fewer_drafts(size: int, rows: int, drafts: int) -> None:
    limits = ServerLimits(size=size, rows=rows)
    assert limits.drafts == drafts
    limits.check(Configuration("speculative", (("gamma", drafts),)))
    with refused("gamma", drafts + 1, drafts, "--batch", "--max-rows"):
        limits.check(Configuration("speculative", (("gamma", drafts + 1),)))


def test_the_default_of_a_server_is_within_its_own_limits() -> None:
    with pytest.raises(UserError):
        Server(PairEngine(tiny_pair()), Configuration("speculative"), ServerLimits(size=8, rows=16))
    for method in METHODS.values():
        if not method.search:
            ServerLimits().check(Configuration(method.name))
    assert served_values(Configuration("suffix"))["max_cached_requests"] == REMEMBERED
    assert Settings()["max_cached_requests"] == -1
    assert (ServerLimits().rows, ServerLimits().drafts, ServerLimits(size=64).drafts) == (4096, 64, 63), (
        "docs/server.md"
    )


def test_a_rule_that_grows_stays_within_it() -> None:
    """Two drafts more after each round that was accepted whole, on a text that repeats itself."""
    with running(tiny_pair(), ServerLimits(size=4, rows=12)) as found:
        driver, client = found.server.driver, found.client()
        most = []
        honest = driver._add

        def noted(batch: Any, live: Any, job: Any, round: Any) -> None:
            most.append(len(round.drafts))
            honest(batch, live, job, round)

        driver._add = noted  # type: ignore[method-assign]
        client.completions.create(
            model="tiny",
            prompt=[5] * 40,
            max_tokens=60,
            temperature=0,
            extra_body={"speculative": {"method": "ngram", "draft_rule": "heuristic", "heuristic_gamma": 2}},
        )
        assert max(most) == 2


def test_another_value_shares_what_is_remembered() -> None:
    """No text is copied: the tree is one and the same, and it knows the answers to both."""
    with running(tiny_pair(), ServerLimits(size=4)) as found:
        client, driver = found.client(), found.server.driver
        for more in ({}, {"max_spec_factor": 2.0}, {"max_tree_depth": 32}, {"min_token_prob": 0.2}):
            ask(client, method="suffix", **more)
        trees: list[Any] = [batch.drafter.memory_tree for batch in driver._groups.values()]  # type: ignore[attr-defined]
        assert len(trees) == 4 and len(set(map(id, trees))) == 1 and trees[0].responses == 4


def test_one_clients_text_that_fails_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt whose logits are none shares its rounds with one that is well."""
    import torch

    pair = tiny_pair()
    with running(pair, ServerLimits(size=4)) as found:
        client = found.client()
        expected = client.completions.create(model="tiny", prompt=[5, 6, 8], max_tokens=40, temperature=0).choices[0]
        with torch.no_grad():
            pair.target.model.embedding[7] = torch.nan  # type: ignore[attr-defined]
        with client.completions.create(
            model="tiny", prompt=[5, 6, 8], max_tokens=40, temperature=0, stream=True
        ) as stream:
            pieces = [next(iter(stream)).choices[0].text]
            with pytest.raises(APIError) as caught:
                client.completions.create(model="tiny", prompt=[5, 7, 8], max_tokens=40, temperature=0)
            assert not lacking(str(caught.value), "NaN")
            pieces += [chunk.choices[0].text for chunk in stream if chunk.choices]
        assert "".join(pieces) == expected.text
        again = client.completions.create(model="tiny", prompt=[5, 6, 8], max_tokens=40, temperature=0).choices[0]
        assert again.text == expected.text
