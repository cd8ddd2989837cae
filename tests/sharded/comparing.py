"""A program of several processes: models cut over them beside the same models whole, in float64.

The first process writes what it found to a file as JSON; the others follow it. A folder whose name begins with
`planted` is loaded with a fault.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from sampling.forward.runner import ModelRunner
from sampling.forward.sharded import lean
from sampling.forward.sharded.cut import TensorCut
from sampling.forward.sharded.model import ShardedModel
from sampling.heads.head_files import fingerprint
from sampling.loading.checkpoint import LoadedModel, Placement, load_model
from sampling.loading.origin import resolve
from sampling.loading.sharded import together
from sampling.loading.stages import silent
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.heads import random_heads
from tests.tiny import TOKENS, WIDE
from utils.device.torchrun import one_voice, speaks
from utils.errors import UserError
from utils.events import Finished, Round
from utils.parameter import ChosenPart

PLACE = Placement(torch.device("cpu"), torch.float64)
PROMPT = [40, 41, 42, 43, 44, 40, 41, 42, 43, 44, 40, 41]
GREEDY, NUCLEUS = ChosenPart("greedy", (1.0,)), ChosenPart("nucleus", (1.0, 0.9))
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "target": ("target", {}),
    "speculative": ("speculative", {}),
    "prompt_lookup": ("prompt_lookup", {}),
    "recycling": ("recycling", {}),
    "eagle tree": ("eagle", {"draft_tree": "dynamic"}),
    "beam": ("beam", {}),
}
FEW = ("target", "speculative", "recycling")
RUNS = [
    *(
        ("llama", name, processor, cache)
        for name in METHODS
        for processor in (GREEDY, NUCLEUS)
        for cache in (True, False)
    ),
    *(
        (model, name, processor, True)
        for model in ("qwen2", "qwen3", "biased", "mistral")
        for name in FEW
        for processor in (GREEDY, NUCLEUS)
    ),
]
PLANTED = ("planted-bias", "planted-sum")


class Forgetful(lean.SummedLinear):
    """Takes this process's part for the sum."""

    def product(self, x: Tensor) -> Tensor:
        part = self._part.product(x)
        self._group.summed(part.clone())
        return part


def planted(name: str) -> AbstractContextManager[Any]:
    """The fault that a folder is loaded with."""
    if name == "planted-bias":
        return mock.patch.object(TensorCut, "lacks", lambda self, name: False)
    return mock.patch.object(lean, "SummedLinear", Forgetful) if name == "planted-sum" else nullcontext()


def load_part(origin: Any, *given: Any, real: Any = together.load_part) -> Any:
    with planted(origin.name):
        return real(origin, *given)


def cut(folder: Path) -> LoadedModel:
    return together.load_together(str(folder), replace(PLACE, processes=2), False, silent)


def whole(folder: Path) -> LoadedModel:
    return load_model(resolve(str(folder), silent), PLACE)


def pair(target: LoadedModel, drafter: LoadedModel) -> Pair:
    heads = random_heads(WIDE["hidden_size"], 3, 128, (*range(40, 50), 7), TOKENS)
    runners = ModelRunner(target.model), ModelRunner(drafter.model)
    return Pair(*runners, target.tokenizer, frozenset(), target.info, drafter.info, heads=heads)


def answer(made: Pair, name: str, processor: ChosenPart, cache: bool) -> list[Any]:
    """The ids of each round with the drafts that were judged and those that passed; of a beam search what it found."""
    method, values = METHODS[name]
    given = {**Settings(), "length": 12, "processor": processor, "cache": cache, **values}
    events = list(PairEngine(made).stream(method, given, PROMPT))
    beams = [list(found.tokens) for event in events if isinstance(event, Finished) for found in event.hypotheses]
    rounds = [event for event in events if isinstance(event, Round)]
    return [beams, [[list(one.emitted), list(one.drafts), list(one.path)] for one in rounds]]


def difference(one: Any, other: Any) -> float:
    """The largest of logits and states of a prompt, a tree, its kept branch, a fork, and a wide tree."""
    found = []
    for run in (ModelRunner(one), ModelRunner(other)):
        first = run.forward(PROMPT, hidden=(0, 2, 3))
        tree = run.forward([50, 51, 52, 53], parents=(-1, -1, 0))
        run.keep(len(PROMPT), (1,))
        fork = run.fork([60, 61], run.length - 2, torch.tensor([[run.length - 1], [run.length - 2]]))
        last = run.forward([62], rows=1)
        wide = run.forward(range(91), parents=[row // 2 - 1 for row in range(90)])  # a command in two messages
        found.append([first.logits, *first.hidden.values(), tree.logits, fork.logits, last.logits, wide.logits])
    return max(float((a - b).abs().max()) for a, b in zip(*found, strict=True))


def forward_costs(model: ShardedModel) -> dict[str, list[int]]:
    """(collectives, bytes) of forwards, by what they feed."""
    wire, found = together.leader().group.wire, {}
    run = ModelRunner(model)
    for name, tokens, parents in (("prompt", PROMPT, None), ("one", [5], None), ("tree", [6, 7, 8], (-1, -1))):
        before = wire.collectives, wire.bytes
        run.forward(tokens, parents, rows=0 if name == "prompt" else None)
        found[name] = [wire.collectives - before[0], wire.bytes - before[1]]
    return found


def refusal(folder: Path) -> str:
    try:
        cut(folder)
    except UserError as error:
        return str(error)
    return ""


def findings(root: Path) -> Iterator[tuple[str, Any]]:
    """Everything that is compared, by name."""
    drafters = whole(root / "drafter"), cut(root / "drafter")
    models = {name: (whole(root / name), cut(root / name)) for name in dict.fromkeys(run[0] for run in RUNS)}
    for name, (one, other) in models.items():
        ids = torch.tensor([3, 1, 200])
        yield f"logits {name}", difference(one.model, other.model)
        rows = [each.model.output_rows(ids).detach() for each in (one, other)]
        yield f"rows {name}", float((rows[0] - rows[1]).abs().max())
        yield f"digest {name}", [fingerprint(each.model.landmarks()) for each in (one, other)]
        yield f"info {name}", [other.info.processes, other.info.detail]
    for name, method, processor, cache in RUNS:
        made = [pair(each, drafters[0]) for each in models[name]]
        yield f"run {name} {method} {processor.name} {cache}", [answer(each, method, processor, cache) for each in made]
    one, other = models["llama"]
    yield (
        "drafter cut",
        [answer(pair(*each), "speculative", NUCLEUS, True) for each in ((one, drafters[0]), (other, drafters[1]))],
    )
    for name in PLANTED:
        yield name, difference(models["biased"][0].model, cut(root / name).model)
    for name in ("gpt2", "uneven"):
        yield f"refused {name}", refusal(root / name)
    yield "after refusals", difference(one.model, other.model)
    yield "costs", forward_costs(other.model)


def main(root: Path, out: Path) -> None:
    torch.backends.mkldnn.enabled = False  # else products in float64 of many rows are computed in float32
    together.load_part = load_part
    if not speaks():
        together.follow_first()
    out.write_text(json.dumps(dict(findings(root))))


if __name__ == "__main__":
    with one_voice():
        main(Path(sys.argv[1]), Path(sys.argv[2]))
