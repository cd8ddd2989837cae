"""Every parameter at a billion, and at the largest number that it takes: one line each, of what came of it.

Run as a process of its own, whose memory is limited: `python -m tests.hostile.sizes`.
"""

import json
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

FOUR_GB = 4 * 1024**3
BILLION = 10**9
LARGE = (BILLION, 10**7, 10**6, 1024, 1000, 64, 16, 8, 1)


def main() -> None:
    """Try all of them; a line of JSON each, the last one of the memory that was taken at most."""
    resource.setrlimit(resource.RLIMIT_DATA, (FOUR_GB, FOUR_GB))
    from ablation.plan.grid import Configuration
    from ablation.plan.methods_table import check_values
    from sampling.methods.settings import Settings
    from sampling.methods.tables import METHODS
    from sampling.pair.pair_engine import PairEngine
    from serve.limits import ServerLimits
    from tests.heads import random_heads
    from tests.tiny import TOKENS, tiny_pair
    from utils.device.memory import process_peak_mb
    from utils.errors import UserError

    heads = random_heads(32, 3, 512, tuple(range(TOKENS)), TOKENS)
    engine = PairEngine(replace(tiny_pair(), heads=heads, drafter_heads=heads))
    for method, chosen, parameter in cases():
        value = largest(parameter)
        told: dict[str, Any] = {"method": method, "parameter": parameter.name, "value": str(value)}
        begun = time.monotonic()
        if value is not None:
            values = {**Settings(), "length": 440, **chosen, parameter.name: value}
            own = tuple((p.name, values[p.name]) for p in METHODS[method].parameters)
            try:
                check_values(Configuration(method, own), values)
                generate(engine, method, values)
                ServerLimits().check(Configuration(method, own))
            except UserError as error:
                told["refused"] = str(error)
            except (Exception, MemoryError) as error:
                told["failed"] = f"{type(error).__name__}: {error}"
        print(json.dumps({**told, "seconds": time.monotonic() - begun}), flush=True)
    print(json.dumps({"peak_mb": process_peak_mb()}))


def cases() -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Each parameter of the tables once, with a method and the settings under which it is read."""
    from sampling.methods.rules import CONTROLLERS, DRAFT_RULE, PLAIN, UCB_ARMS
    from sampling.methods.settings import GENERAL, PARAMETERS, Settings
    from sampling.methods.tables import HYBRID_COPY, METHODS

    arms = " ".join(part.name for part in PLAIN)
    settings: list[dict[str, Any]] = [{}]
    settings += [{DRAFT_RULE.name: rule, UCB_ARMS.name: arms} for rule in CONTROLLERS]
    settings += [{"draft_tree": tree} for tree in PARAMETERS["draft_tree"].words]
    for name in ("verify_strategy", "accept_policy"):
        settings += [{name: word} for word in PARAMETERS[name].words]
    settings += [{HYBRID_COPY.name: copy} for copy in HYBRID_COPY.words]
    for parameter in PARAMETERS.values():
        if parameter in GENERAL:
            yield "target", {}, parameter
        for method, chosen in ((method, chosen) for method in METHODS.values() for chosen in settings):
            if parameter in method.relevant({**Settings(), **chosen}):
                yield method.name, chosen, parameter
                break


def largest(parameter: Any) -> Any:
    """The largest of some numbers that a parameter takes, with what stands before it; None where it takes none."""
    from utils.errors import UserError

    words = {"set_ngramstorage": "basic {}", "processor": "topk 1 {}", "accept_rates": "{}"}
    for number in LARGE:
        try:
            return parameter.checked(words.get(parameter.name, "{}").format(number))
        except UserError:
            continue
    return None


def generate(engine: Any, method: str, values: Mapping[str, Any]) -> None:
    """Rounds of two texts with room for many drafts, then a third text; a search takes one text, and a few words."""
    from sampling.engine import Text
    from sampling.methods.tables import METHODS

    prompts = [tuple(range(5, 45)), (5, 6, 7, 8) * 10, (9,)]
    if METHODS[method].search or not values["cache"]:
        list(engine.stream(method, {**values, "length": min(values["length"], 8)}, prompts[0]))
        return
    batch = engine.batch(method, values, 2)
    for place, prompt in enumerate(prompts):
        if batch.full:
            batch.drop(batch.texts[0])
        batch.admit(engine.request(method, values, Text(place, prompt, min(values["length"], 440))))
        for live, _ in batch.play():
            if live.error is not None:
                raise live.error


if __name__ == "__main__":
    sys.exit(main())
