"""One bad text harms nobody: every kind of failure at every door ends that text alone, which is told by its name."""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from openai import APIStatusError
from rich.console import Console
from typer.testing import CliRunner

from ablation.commands.cli import run
from ablation.plan.grid import Configuration, Plan
from ablation.plan.prompts.file import Prompt
from ablation.results.record import Record
from ablation.results.traces.trace import Tracer
from ablation.run.job import JobOutcome, PlanJob
from ngram_assisted.prompt_lookup import PromptLookupDrafter
from repl.measuring.slots import BatchSlots
from sampling.forward.caches.rows import RowsCache
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.models.lean import LeanModel, from_transformers
from sampling.forward.runner import CachedRunner, ModelRunner
from sampling.grammar.constraint import TextConstraint
from sampling.grammar.spelling import OFF_WORD
from sampling.methods.settings import Settings
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.ablation.conftest import write_lines
from tests.ablation.mock_engine import GREEDY
from tests.ablation.playing import play, records_of, rows
from tests.serve.running import Running, running
from tests.tiny import llama, random_model, tiny_tokenizer
from utils.errors import CannotContinue, NoDistribution

TOKENIZER = tiny_tokenizer()
(BAD,) = TOKENIZER.encode("!")
PROMPTS = {"first": "ab ab ab", "bad": "x!y", "second": "say abab b", "third": "b"}
HEALTHY = [name for name in PROMPTS if name != "bad"]
LENGTH = 8
PLANTED = "ZeroDivisionError: planted"


@cache
def model(seed: int, sick: bool) -> LeanModel:
    """Float64, where nobody's rows change another's; the state of one token is NaN, and nobody ever says it."""
    made = random_model(llama(num_hidden_layers=2, max_position_embeddings=256), seed).double()
    with torch.no_grad():
        made.lm_head.weight[BAD] = 0.0
        if sick:
            made.model.embed_tokens.weight[BAD] = torch.nan
    return from_transformers(made).with_kernel(DenseLinear)


def pair(sick: str = "") -> Pair:
    info = ModelInfo("tiny", "cpu", "float64")
    target, drafter = (ModelRunner(model(seed, sick == name)) for seed, name in enumerate(("target", "drafter")))
    return Pair(target, drafter, TOKENIZER, frozenset(), info, info)


def raising(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, prompt_of: Callable[..., Sequence[int]]) -> None:
    """A method that fails on the bad text."""
    honest = getattr(kind, name)

    def failing(*arguments: Any) -> Any:
        if BAD in prompt_of(*arguments):
            raise ZeroDivisionError("planted")
        return honest(*arguments)

    monkeypatch.setattr(kind, name, failing)


def of_drafter(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """One of the things that a drafter does for a sequence."""
    return lambda patch: raising(
        patch, PromptLookupDrafter, name, lambda self, seq, *rest: seq.tokens[: seq.prompt_length]
    )


def unknown_id(patch: pytest.MonkeyPatch) -> None:
    """A draft that is no id of the target: the forward over all rows fails."""
    honest = PromptLookupDrafter._copied

    def copied(self: Any, seq: Any, *rest: Any) -> Sequence[int]:
        return [10**6] if BAD in seq.tokens[: seq.prompt_length] else honest(self, seq, *rest)

    patch.setattr(PromptLookupDrafter, "_copied", copied)


def dead_end(patch: pytest.MonkeyPatch) -> None:
    """A grammar that leaves nothing; the bad text alone has one."""

    def check(self: TextConstraint, path: Sequence[int]) -> None:
        raise CannotContinue("no token is left")

    patch.setattr(TextConstraint, "check", check)


def unreadable(patch: pytest.MonkeyPatch) -> None:
    """What reads a prompt fails: an encoder's forward, where there is one."""
    raising(patch, CachedRunner, "read", lambda self, prompt: prompt)


# What is planted, the model that is sick, the method that meets it, and what is told.
KINDS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str, str, str]] = {
    "NaN": (lambda patch: None, "target", "target", str(NoDistribution("model"))),
    "NaN under drafts": (lambda patch: None, "target", "speculative", str(NoDistribution("model"))),
    "a drafter's NaN": (lambda patch: None, "drafter", "speculative", str(NoDistribution("drafter"))),
    "begin": (of_drafter("begin"), "", "prompt_lookup", PLANTED),
    "propose": (of_drafter("_copied"), "", "prompt_lookup", PLANTED),
    "observe": (of_drafter("observe"), "", "prompt_lookup", PLANTED),
    "finish": (of_drafter("finish"), "", "prompt_lookup", PLANTED),
    "an unknown id": (unknown_id, "", "prompt_lookup", "IndexError"),
    "a grammar": (dead_end, "", "speculative", "no token is left"),
    "an encoder": (unreadable, "", "target", PLANTED),
}


def plan(method: str, kind: str, names: Sequence[str] = tuple(PROMPTS), **more: Any) -> Plan:
    """All texts by one method; the bad one has a grammar where that is what fails."""
    grammar = '{"type": "integer"}' if kind == "a grammar" else OFF_WORD
    prompts = tuple(Prompt(name, (PROMPTS[name],), grammar=grammar if name == "bad" else None) for name in names)
    return Plan(
        prompts, (Configuration(method),), {**Settings(), "length": LENGTH, "chat": False}, (GREEDY,), (1,), **more
    )


def finite(*caches: RowsCache) -> bool:
    return all(bool(rows.isfinite().all()) for cache in caches for rows in (cache.keys, cache.values))


@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_in_plans(kind: str, batch: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant, sick, method, told = KINDS[kind]
    loads = {"batches": (batch,)} if batch else {}
    expected = {
        record.id: record.output_ids for record in records_of(PairEngine(pair()), plan(method, "", HEALTHY, **loads))
    }
    engine, cut = PairEngine(pair(sick)), tmp_path / "r.csv"
    with monkeypatch.context() as patch:
        plant(patch)
        records = {record.id: record for record in records_of(engine, plan(method, kind, **loads))}
        outcome = play(cut, plan(method, kind, **loads), PairEngine(pair(sick)))
    assert told in (records["bad"].error or "") and records["bad"].output_ids is None
    assert {name: records[name].output_ids for name in HEALTHY} == expected
    assert outcome.failed == 1 and [row["id"] for row in rows(cut) if row["error"]] == ["bad"]
    again = play(cut, plan(method, kind, **loads), PairEngine(pair()), resume=True, retry_failed=True)
    assert not again.failed and len(rows(cut)) == len(PROMPTS)
    later = {record.id: record.output_ids for record in records_of(engine, plan(method, "", HEALTHY, **loads))}
    assert later == expected and finite(*caches_of(engine))


def caches_of(engine: PairEngine) -> list[RowsCache]:
    """Where an engine's own two runners keep their rows."""
    return [
        runner.cache.storage for runner in (engine.pair.target, engine.pair.drafter) if hasattr(runner.cache, "storage")
    ]


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], Running]]:
    """A server for each sick model, started when it is asked for."""
    with ExitStack() as stack:
        yield cache(lambda sick: stack.enter_context(running(pair(sick))))


def asked(found: Running, kind: str, method: str, name: str) -> list[int]:
    extra: dict[str, Any] = {"speculative": {"method": method}, "return_token_ids": True}
    if kind == "a grammar" and name == "bad":
        extra["structured_outputs"] = {"json": {"type": "integer"}}
    answer = found.client().completions.create(
        model="tiny", prompt=PROMPTS[name], max_tokens=LENGTH, temperature=0, extra_body=extra
    )
    return list(answer.choices[0].token_ids)


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_server(kind: str, servers: Callable[[str], Running], monkeypatch: pytest.MonkeyPatch) -> None:
    plant, sick, method, told = KINDS[kind]
    found = servers(sick)
    client = found.client()
    expected = [asked(found, "", method, name) for name in HEALTHY]
    with monkeypatch.context() as patch:
        plant(patch)
        if kind == "finish":  # the answer is whole by then
            assert asked(found, kind, method, "bad")
        else:
            with pytest.raises(APIStatusError) as refusal:
                asked(found, kind, method, "bad")
            assert refusal.value.status_code == 500 and told.split(":")[0] in refusal.value.message
        fields: dict[str, Any] = {"model": "tiny", "max_tokens": LENGTH, "temperature": 0}
        extra = {"speculative": {"method": method}, "return_token_ids": True}
        if kind not in ("a grammar", "finish"):
            prompts = list(PROMPTS.values())
            choices = client.completions.create(prompt=prompts, extra_body=extra, **fields).choices
            assert [choice.finish_reason for choice in choices] == ["length", "error", "length", "length"]
            assert told.split(":")[0] in choices[1].error["message"]
            assert [list(choice.token_ids) for choice in choices if choice.finish_reason == "length"] == expected
            ids: dict[int, list[int]] = {number: [] for number in range(len(prompts))}
            reasons: dict[int, str] = {}
            for chunk in client.completions.create(prompt=prompts, stream=True, extra_body=extra, **fields):
                for choice in chunk.choices:
                    ids[choice.index] += choice.token_ids
                    reasons[choice.index] = choice.finish_reason or ""
            assert [ids[0], ids[2], ids[3]] == expected and reasons[1] == "error"
    assert [asked(found, "", method, name) for name in HEALTHY] == expected
    driver = found.server.driver
    assert not driver.running and not driver.waiting
    assert all(not batch.live and not batch.full for batch in driver._groups.values())
    assert all(finite(batch.target.cache) for batch in driver._groups.values())


def test_a_command_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablation.commands.run.load_chosen", lambda *options: pair("target"))
    app = typer.Typer()
    app.command()(run)
    path = write_lines(tmp_path / "p.jsonl", *({"id": name, "prompt": said} for name, said in PROMPTS.items()))
    given = ["--prompts", str(path), "--methods", "target,prompt_lookup", "--length", "6", "--set", "chat=off"]
    for more in ([], ["--batch", "3"]):
        result = CliRunner().invoke(app, [*given, *more, "--json"])
        assert result.exit_code == 1, result.output
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        assert [line["id"] for line in lines if line["error"]] == ["bad", "bad"] and len(lines) == 8
        drafted = [line for line in lines if line["method"] == "prompt_lookup" and line["error"] is None]
        assert [line["divergence_verdict"] for line in drafted] == ["exact"] * 3
    table = CliRunner().invoke(app, [*given, "--batch", "3"])
    assert table.exit_code == 1 and "2 texts failed, of bad:" in table.stdout and "1 failed: bad" in table.stderr


class Kept:
    """Records go nowhere: see `Sink`."""

    done: Mapping[Any, Any] = {}

    def writing(self, outcome: JobOutcome) -> AbstractContextManager[Tracer]:
        return nullcontext(Tracer(None))

    def add(self, record: Record) -> None:
        """Nothing."""


def test_the_session_names_it_and_frees_its_place() -> None:
    out = Console(file=io.StringIO(), width=100)
    slots = BatchSlots(out, TOKENIZER.decode, {}, len(PROMPTS))
    outcome = PlanJob(PairEngine(pair("target")), plan("target", "", batches=(3,)), Kept()).play(slots)
    assert outcome.failed == 1 and not slots._slots and (slots._over, slots._failed) == (3, 1)
    assert "bad target failed:" in out.file.getvalue()  # type: ignore[attr-defined]
