"""What each engine's server says of its rounds, read from recorded responses; and how each is told to speculate."""

import json
from pathlib import Path
from typing import Any

import pytest

from engines.dialect import TextRequest
from engines.speculation import config_for
from engines.tables import DIALECTS as SERVERS
from engines.tables import PROCESSES
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import Settings
from utils.errors import UserError
from utils.events import Acceptance, WholeAnswer

DIALECTS = {name: table[name] for table in (SERVERS, PROCESSES) for name in table}
RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return found


def values(**changes: Any) -> dict[str, Any]:
    return {**Settings(), **changes}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_recorded_answer_is_read(name: str) -> None:
    told, dialect = recorded(name), DIALECTS[name]
    pieces = [dialect.piece(event) for event in told["events"]]
    ids = None if any(piece.ids is None for piece in pieces) else [one for piece in pieces for one in piece.ids or ()]
    assert ids == told["ids"]
    assert "".join(piece.text for piece in pieces).startswith(told.get("text", ""))
    assert next(piece.reason for piece in reversed(pieces) if piece.reason) == told["reason"]
    expected = {key: told["acceptance"][key] for key in ("rounds", "drafted", "accepted", "hist", "by_round")}
    found = dialect.acceptance(told["events"], told.get("new_tokens") or len(told["ids"]))
    shown = json.loads(json.dumps({key: getattr(found, key) for key in expected}))
    assert shown == expected


@pytest.mark.parametrize("name", DIALECTS)
def test_the_counts_add_up_to_the_tokens(name: str) -> None:
    told = recorded(name)
    tokens = told.get("new_tokens") or len(told["ids"])
    found = DIALECTS[name].acceptance(told["events"], tokens)
    assert found.rounds is not None and found.accepted is not None
    ended_by_a_draft = name == "workbench"
    assert found.rounds + found.accepted - ended_by_a_draft == tokens
    if found.hist is not None:
        assert sum(found.hist) == found.rounds
        assert sum(place * count for place, count in enumerate(found.hist)) == found.accepted


@pytest.mark.parametrize("name", [name for name in DIALECTS if name not in ("workbench", "trtllm")])
def test_of_an_answer_without_counts_nothing_is_known(name: str) -> None:
    events: list[dict[str, Any]] = [{"choices": [{"text": " a"}], "meta_info": {}, "timings": {"predicted_n": 4}}]
    told = DIALECTS[name].acceptance(events, 4)
    assert told == (Acceptance.none(4) if name == "llamacpp" else Acceptance()), (
        "only llama.cpp tells drafts wherever any are"
    )


def test_what_an_engine_does_not_say_is_null_and_not_zero() -> None:
    metrics = RunMetrics()
    metrics.add(WholeAnswer(5, (1, 2, 3, 4), "length", 0.5, 1.5, 1, Acceptance(3, None, 1)))
    assert metrics.tokens_per_s == pytest.approx(3.0) and metrics.e2e_tokens_per_s == pytest.approx(4 / 1.5)
    assert metrics.ttft_s == 0.5 and metrics.tpot_ms == pytest.approx(1000 / 3)
    assert {"drafted", "acceptance_rate", "accept_hist", "alpha", "tokens_by_round", "prefill_s"} <= metrics.unknown
    assert not {"rounds", "tokens_per_round", "accepted", "ttft_s"} & metrics.unknown
    assert metrics.verify_ms is None and metrics.tokens_per_round == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("name", "method", "changes", "words"),
    [
        ("vllm", "target", {}, []),
        ("sglang", "target", {}, []),
        (
            "sglang",
            "speculative",
            {"gamma": 3},
            ["--speculative-algorithm", "STANDALONE", "--speculative-eagle-topk", "1", "--speculative-num-steps", "3"],
        ),
        ("llamacpp", "speculative", {"gamma": 6}, ["--spec-type", "draft-simple", "--spec-draft-n-max", "6"]),
        (
            "llamacpp",
            "prompt_lookup",
            {"num_speculative_tokens": 7},
            ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", "7", "--spec-ngram-simple-size-n", "3"],
        ),
        (
            "openvino",
            "prompt_lookup",
            {"num_speculative_tokens": 5},
            ["--prompt-lookup", "--num-assistant-tokens", "5", "--max-ngram-size", "3"],
        ),
        ("openvino", "speculative", {"gamma": 6}, ["--num-assistant-tokens", "6"]),
        ("trtllm", "target", {}, []),
        ("workbench", "suffix", {}, []),
    ],
)
def test_a_method_becomes_the_options_of_a_server(
    name: str, method: str, changes: dict[str, Any], words: list[str]
) -> None:
    dialect = DIALECTS[name]
    assert dialect.options(config_for(dialect, method, values(**changes))) == words


def test_vllm_and_fastdeploy_take_json() -> None:
    vllm, fastdeploy = DIALECTS["vllm"], DIALECTS["fastdeploy"]
    asked = values(num_speculative_tokens=5, max_ngram_size=4)
    flag, spoken, *rest = vllm.options(config_for(vllm, "prompt_lookup", asked))
    assert (flag, rest) == ("--speculative-config", ["--per-request-spec-decode-metrics", "detailed"])
    assert json.loads(spoken) == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": asked["min_ngram_size"],
    }
    _, spoken = fastdeploy.options(config_for(fastdeploy, "suffix", values(max_tree_depth=12)))
    told = json.loads(spoken)
    assert told["method"] == "suffix" and told["suffix_decoding_max_tree_depth"] == 12
    assert told["verify_strategy"] == "rejection" or told["verify_strategy"] == "target_match"


@pytest.mark.parametrize(
    ("name", "method", "changes", "expected"),
    [
        ("vllm", "ngram", {}, "vllm: it has no method ngram; expected one of target, prompt_lookup, suffix"),
        ("sglang", "medusa", {}, "sglang: it has no method medusa"),
        ("llamacpp", "prompt_lookup", {"min_ngram_size": 2}, "llamacpp: it cannot be told min_ngram_size 2"),
        ("sglang", "speculative", {"draft_rule": "egag"}, "sglang: it cannot be told draft_rule"),
        ("openvino", "suffix", {}, "openvino: it has no method suffix"),
        ("trtllm", "suffix", {}, "trtllm: it has no method suffix"),
    ],
)
def test_what_an_engine_lacks_is_refused_by_name(
    name: str, method: str, changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UserError) as refused:
        config_for(DIALECTS[name], method, values(**changes))
    assert expected in str(refused.value)


def test_a_request_says_ids_length_and_sampler() -> None:
    asked = TextRequest([5, 6], 9, 3, 0.5, 20, 0.9)
    for name, dialect in DIALECTS.items():
        body = dialect.body(asked, "m", {"method": "naive"})
        given = {**body, **body.get("sampling_params", {})}
        assert [5, 6] in (given.get("prompt"), given.get("input_ids")), name
        assert 9 in (given.get("max_tokens"), given.get("n_predict"), given.get("max_new_tokens")), name
        assert (given["temperature"], given["top_k"], given["top_p"]) == (0.5, 20, 0.9), name
        assert 3 in (given.get("seed"), given.get("sampling_seed")) and given["stream"] is True, name


@pytest.mark.parametrize("sizes", [[1, 2], [0, 4], [5]])
def test_rounds_that_do_not_come_to_the_tokens_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ArithmeticError):
        PROCESSES["openvino"].acceptance([{"choices": [], "metrics": {"tokens_by_round": sizes}}], 4)
