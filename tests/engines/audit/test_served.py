"""Servers that keep the law, and servers with faults that engines have shipped: over HTTP, on a tiny pair."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from engines.audit.audit import Asked, Audit
from engines.audit.verdicts import Line, lines
from engines.server.api import Api
from engines.server.served import ServedEngine
from engines.spec import EngineSpec
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.verifiers import make_verifier
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.verify.lossy import UnadjustedVerifier
from serve.jobs import TextOrder
from serve.limits import ServerLimits
from serve.requests import body
from tests.serve.running import running
from tests.tiny import tiny_pair
from utils.parameter import ChosenPart

PROMPT = [97, 98, 97, 98, 97, 98, 97]
LONG = [*range(60, 180), *PROMPT]
"""Half of the vocabulary: a penalty on what was said changes much."""
DRAWS = 200


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


def processor(text: str) -> ChosenPart:
    found: ChosenPart = PARAMETERS["processor"].parse(text)
    return found


def audited(pair: Pair, *processors: str, draws: int = DRAWS, prompt: Sequence[int] = PROMPT) -> Audit:
    """An audit over HTTP of a server of the pair, as it is by now."""
    methods = {name: (name, dict(Settings())) for name in ("target", "speculative")}
    asked = Asked([processor(text) for text in processors], [prompt], methods, draws, length=16, at_once=8)
    with running(pair, ServerLimits(size=8)) as served:
        api, spec = Api(served.url), EngineSpec("s", "openai", "workbench", model="tiny")
        audit = Audit(ServedEngine(PairEngine(pair), spec, lambda config: api), asked)
        for _ in audit.play():
            pass
    return audit


def found(audit: Audit) -> dict[tuple[str, str], Line]:
    return {(line.processor, line.method): line for line in lines(audit, audit.tests(0.01))}


def forgetting(monkeypatch: pytest.MonkeyPatch, option: str, plain: bool = False) -> None:
    """The server forgets an option of the processor: where it speculates, or always."""
    make = body._order

    def order(fields: Any, model: Any) -> TextOrder:
        made = make(fields, model)
        if made.configuration.method == "target" and not plain:
            return made
        kept = tuple(pair for pair in made.processor.options if pair[0] != option)
        return replace(made, processor=replace(made.processor, options=kept))

    monkeypatch.setattr(body, "_order", order)


ALL = ("topk 0.5 4", "nucleus 0.5 0.7", "multinomial 0.5 min_p=0.3")


def test_a_server_that_keeps_the_law_agrees(pair: Pair) -> None:
    audit = audited(pair, *ALL)
    told = found(audit)
    assert len(told) == 2 * (1 + len(ALL)) and not audit.refused
    assert {told[text, name].verdict for text in ALL for name in ("target", "speculative")} == {"agrees"}
    assert all(line.draws == DRAWS for line in told.values() if line.processor != "greedy")
    drafted = [there for key, there in audit.draws.items() if key[1] == "speculative"]
    assert all(there.drafted and there.accepted for there in drafted)
    assert audit.logprobs and not any(check.apart for check in audit.logprobs)
    assert {check.place for check in audit.greedy} == {None}


def test_a_wrong_q_is_found_and_is_speculations(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(method: Any, values: Any) -> Any:
        return make_verifier(method, values) if method.name == "target" else UnadjustedVerifier()

    monkeypatch.setattr("sampling.pair.pair_engine.make_verifier", wrong)
    told = found(audited(pair, "topk 0.5 16", draws=3 * DRAWS))
    assert told["topk 0.5 16", "target"].verdict == "agrees"
    line = told["topk 0.5 16", "speculative"]
    assert (
        line.verdict == "DIFFERS" and "speculation changes it" in line.reason and line.p is not None and line.p < 1e-4
    )


@pytest.mark.parametrize("text", ["multinomial 0.5 min_p=0.3", "multinomial 0.5 repetition=3"])
def test_an_option_that_speculation_forgets_is_found(pair: Pair, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    forgetting(monkeypatch, processor(text).options[0][0])
    told = found(audited(pair, text, draws=300, prompt=LONG))
    assert told[text, "target"].verdict == "agrees"
    line = told[text, "speculative"]
    assert line.verdict == "DIFFERS" and line.sees is not None and line.sees > 0.95
    assert "plain" in line.reason or "speculation changes it" in line.reason
    assert "as if it were forgotten" in line.reason


def test_an_option_that_the_engine_never_had_is_no_fault_of_speculation(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "multinomial 0.5 min_p=0.3"
    forgetting(monkeypatch, "min_p", plain=True)
    told = found(audited(pair, text))
    assert [told[text, name].verdict for name in ("target", "speculative")] == ["DIFFERS"] * 2
    assert "not by speculation" in told[text, "speculative"].reason
    assert "as if it were forgotten" in told[text, "target"].reason


def test_a_seed_that_is_not_read_is_named(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_seed", lambda fields: 7)
    told = found(audited(pair, "multinomial 0.5", draws=60))
    assert "may not read the seed" in told["multinomial 0.5", "target"].reason


def test_other_weights_are_found_by_the_referee_and_by_logprobs(pair: Pair) -> None:
    asked = Asked([], [PROMPT], {"target": ("target", dict(Settings()))}, DRAWS, length=16)
    with running(tiny_pair(seed=1), ServerLimits(size=8)) as served:
        api, spec = Api(served.url), EngineSpec("s", "openai", "workbench", model="tiny")
        other = Audit(ServedEngine(PairEngine(pair), spec, lambda config: api), asked)
        for _ in other.play():
            pass
    told = found(other)
    assert told["greedy", "target"].verdict == "DIFFERS" and "logits" in told["greedy", "target"].reason
    assert other.logprobs[0].apart


def test_what_an_engine_lacks_is_told_and_the_rest_goes_on(pair: Pair) -> None:
    audit = audited(pair, "multinomial 2 typical_p=0.9", "topk 0.5 4", draws=60)
    assert set(audit.refused) == {("multinomial 2 typical_p=0.9", name) for name in ("target", "speculative")}
    assert "typical_p" in audit.refused["multinomial 2 typical_p=0.9", "target"]
    assert found(audit)["topk 0.5 4", "target"].tests > 0


def test_it_may_be_left_and_keeps_what_was_drawn(pair: Pair) -> None:
    values = dict(Settings())
    methods = {"target": ("target", values), "speculative": ("speculative", values)}
    asked = Asked([processor("topk 0.5 4")], [PROMPT], methods, DRAWS, length=8, at_once=4)
    with running(pair, ServerLimits(size=4)) as served:
        api, spec = Api(served.url), EngineSpec("s", "openai", "workbench", model="tiny")
        audit = Audit(ServedEngine(PairEngine(pair), spec, lambda config: api), asked)
        steps: Iterator[tuple[str, int]] = audit.play()
        assert next(done for _, done in steps if done == 120) == 120
        steps.close()  # type: ignore[attr-defined]
    told = found(audit)
    assert told["topk 0.5 4", "target"].draws == 120 and ("topk 0.5 4", "speculative") not in told
