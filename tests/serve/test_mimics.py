"""The server in another engine's dialect, read by the engine of that dialect: its counts are the loop's."""

from typing import Any

import pytest

from engines.server.api import Api
from engines.server.served import ServedEngine
from engines.spec import EngineSpec
from engines.tables import DIALECTS
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from serve.answers.mimics import MIMICS
from serve.command import DIALECTS as SPOKEN
from serve.limits import ServerLimits
from tests.refusals import refused
from tests.serve.running import running
from tests.tiny import tiny_pair
from utils.events import WholeAnswer

PROMPT = [97, 98, 97, 98, 97, 98, 97]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


def written(pair: Pair, method: str, **values: Any) -> RunMetrics:
    metrics = RunMetrics()
    for event in PairEngine(pair).stream(method, {**Settings(), "length": 40, **values}, PROMPT):
        metrics.add(event)
    return metrics


def test_the_command_names_what_there_is() -> None:
    assert tuple(MIMICS) == SPOKEN and set(MIMICS) < set(DIALECTS)


@pytest.mark.parametrize("name", MIMICS)
@pytest.mark.parametrize("method", ["target", "speculative", "prompt_lookup"])
def test_what_the_engine_reads_is_what_the_loop_did(pair: Pair, name: str, method: str) -> None:
    with running(pair, ServerLimits(size=2, dialect=name), default=method) as served:
        api = Api(served.url)
        engine = ServedEngine(PairEngine(pair), EngineSpec(name, "openai", name, model="tiny"), lambda config: api)
        asked = "target" if method == "target" or name == "trtllm" else "prompt_lookup"  # whatever it drafts with
        (answer,) = engine.stream(asked, {**Settings(), "length": 40}, PROMPT)
    expected = written(pair, method)
    assert isinstance(answer, WholeAnswer) and answer.reason == expected.finish_reason
    told = answer.acceptance
    if name == "vllm":  # whose first token is the prefill's, and counts as a round more
        assert list(answer.output_ids) == expected.output_ids and told.drafted == expected.drafted
        assert told.rounds is not None and abs(told.rounds - expected.rounds) <= 1
    elif name != "trtllm":  # text alone, which other ids may stand for
        assert list(answer.output_ids) == expected.output_ids
        assert (told.rounds, told.accepted) == (expected.rounds, expected.accepted)
        assert told.drafted == expected.drafted
        assert told.hist is None or list(told.hist) == expected.accept_hist
    else:
        assert served.server.driver.tokens.decode(answer.output_ids) == engine.text(expected.output_ids)
        assert told.drafted is None and told.hist is None


@pytest.mark.parametrize(
    ("name", "body", "quoted"),
    [
        ("sglang", {"text": "a", "sampling_params": {"temprature": 0}, "stream": True}, "temprature"),
        ("sglang", {"text": "a"}, "true"),
        ("sglang", {"text": "a", "input_ids": [5], "stream": True}, "input_ids"),
        ("sglang", {"text": "a", "sampling_params": [], "stream": True, "x": 1}, "x"),
        ("llamacpp", {"prompt": "a", "mirostat": 2, "stream": True}, "mirostat"),
    ],
)
def test_what_a_shape_does_not_know_is_refused_by_name(
    pair: Pair, name: str, body: dict[str, Any], quoted: str
) -> None:
    with running(pair, ServerLimits(size=1, dialect=name)) as served, refused(quoted):
        list(Api(served.url).events(MIMICS[name].path, body))


def test_what_drafts_is_no_plain_decoding(pair: Pair) -> None:
    with running(pair, ServerLimits(size=1, dialect="sglang"), default="prompt_lookup") as served:
        api = Api(served.url)
        engine = ServedEngine(PairEngine(pair), EngineSpec("s", "openai", "sglang", model="tiny"), lambda config: api)
        with refused("s", "plain", served.url):
            list(engine.stream("target", {**Settings(), "length": 40}, PROMPT))
