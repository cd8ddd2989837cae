"""Many clients at once, a third of which leave in the middle: nothing is lost, and nobody's answer changes."""

import asyncio
import gc
import random
import time
from dataclasses import replace
from functools import cache
from typing import Any

import psutil
import pytest
from openai import AsyncOpenAI

from sampling.forward.models.lean import from_transformers
from sampling.forward.runner import ModelRunner
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import PARAMETERS, Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from serve.limits import ServerLimits
from tests.serve.running import Running, running
from tests.tiny import llama, random_model, tiny_pair
from tests.waiting import PATIENCE_S, until

CLIENTS, PLACES = 32, 8
METHODS: list[dict[str, Any]] = [
    {"method": "target"},
    {"method": "speculative", "gamma": 3},
    {"method": "suffix", "max_cached_requests": 0},
    {"method": "prompt_lookup"},
]
PROMPTS = [[5 + (number * place) % 200 for place in range(1, 4 + 7 * (number % 5))] for number in range(12)]


def double_pair() -> Pair:
    """The tiny pair in float64, where the order of sums is not seen in what is drawn."""
    model = from_transformers(random_model(llama(max_position_embeddings=512)).double())
    small = replace(model, blocks=replace(model.blocks, layers=model.layers[:2]))
    return replace(tiny_pair(), target=ModelRunner(model), drafter=ModelRunner(small))


@cache
def expected(number: int, method: int, sampled: bool) -> list[int]:
    """The ids of an answer that is written alone."""
    given = METHODS[method]
    values = {**Settings(), "length": 40, "seed": number}
    values |= {name: value for name, value in given.items() if name != "method"}
    values["processor"] = PARAMETERS["processor"].parse("multinomial 1" if sampled else "greedy")
    metrics, engine = RunMetrics(), PairEngine(double_pair())
    for event in engine.stream(given["method"], values, PROMPTS[number]):
        metrics.add(event)
    return metrics.output_ids


async def client(found: Running, number: int, end: float, told: dict[str, int]) -> None:
    """Ask until the time is over; every third client leaves its streams in the middle."""
    rng = random.Random(number)
    async with AsyncOpenAI(base_url=f"{found.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S) as api:
        while time.monotonic() < end:
            prompt, method, sampled = rng.randrange(len(PROMPTS)), rng.randrange(len(METHODS)), rng.random() < 0.5
            stream: Any = await api.completions.create(
                model="tiny",
                prompt=PROMPTS[prompt],
                max_tokens=40,
                temperature=1 if sampled else 0,
                seed=prompt,
                stream=True,
                extra_body={"return_token_ids": True, "speculative": METHODS[method]},
            )
            ids: list[int] = []
            leaving = rng.randrange(1, 20) if number % 3 == 0 else None
            async for chunk in stream:
                ids += chunk.choices[0].token_ids
                if leaving is not None and len(ids) >= leaving:
                    break
            await stream.close()
            whole = expected(prompt, method, sampled)
            assert ids == (whole if leaving is None else whole[: len(ids)])
            told["left" if leaving is not None else "whole"] += 1


def crowd(found: Running, seconds: float) -> dict[str, int]:
    """How many answers were whole, and how many were left."""
    told = {"whole": 0, "left": 0}

    async def all_clients() -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(*(client(found, number, end, told) for number in range(CLIENTS)))

    asyncio.run(all_clients())
    return told


def settled(found: Running) -> bool:
    """Whether every place is free again."""
    driver = found.server.driver
    until(lambda: not (driver.running or driver.waiting))
    return all(len(batch._free) == PLACES for batch in driver._groups.values())


@pytest.mark.parametrize("seconds", [4.0, pytest.param(120.0, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_a_crowd_of_which_a_third_leaves(seconds: float) -> None:
    for prompt in range(len(PROMPTS)):
        for method in range(len(METHODS)):
            for sampled in (False, True):
                expected(prompt, method, sampled)
    with running(double_pair(), ServerLimits(size=PLACES)) as found:
        warm = crowd(found, seconds / 4)
        assert settled(found)
        gc.collect()
        before = psutil.Process().memory_info().rss
        told = crowd(found, seconds)
        assert settled(found)
        gc.collect()
        grown = (psutil.Process().memory_info().rss - before) / 1e6
        print(f"{told} in {seconds:g} s, {warm} before; memory grew by {grown:.1f} MB")
        assert told["whole"] > 10 and told["left"] > 5
        assert grown < 60
        finished = found.server.driver.counters.finished
        assert finished["error"] == 0 and finished["stop"] + finished["length"] >= told["whole"] + warm["whole"]
