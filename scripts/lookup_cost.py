"""What prompt lookup and suffix decoding cost a round: processor time of reading and drafting, no model.

uv run scripts/lookup_cost.py [--context 32000] [--responses 1000]

Three made-up texts: words of natural frequencies, a text that quotes its own passages, and one token only.
"""

import random
from collections.abc import Callable
from functools import partial
from time import thread_time
from typing import Annotated

import typer

from ngram_assisted.prompt_lookup import GramIndex
from ngram_assisted.suffix_memory import Recollection, ResponseTree
from ngram_assisted.suffix_text import TextTree
from ngram_assisted.suffix_tree import Limits, best_draft

RESPONSE = 256
ROUNDS = 1000
NEW = 2


def words(rng: random.Random, size: int) -> list[int]:
    return rng.choices(range(8000), [1 / (rank + 3) for rank in range(8000)], k=size)


def quotes(rng: random.Random, size: int) -> list[int]:
    base, text = words(rng, size // 8), []
    while len(text) < size:
        start = rng.randrange(len(base) - 1)
        text += base[start : start + rng.randrange(20, 300)]
    return text[:size]


def one_token(rng: random.Random, size: int) -> list[int]:
    return [1] * size


def timed(work: Callable[[], object]) -> float:
    """Processor milliseconds, which other processes on the machine do not change much."""
    start = thread_time()
    work()
    return (thread_time() - start) * 1e3


def summary(times: list[float]) -> str:
    ordered = sorted(times)
    return f"median {ordered[len(ordered) // 2]:.3f} ms, p99 {ordered[len(ordered) * 99 // 100]:.3f} ms"


def read(new: list[int], here: TextTree, earlier: Recollection) -> None:
    here.extend(new)
    earlier.extend(new)


def turn(new: list[int], here: TextTree, earlier: Recollection, limits: Limits) -> None:
    read(new, here, earlier)
    best_draft(earlier, limits, best_draft(here, limits).score)


def measure(name: str, text: list[int], context: int, responses: list[list[int]]) -> None:
    rounds = [text[at : at + NEW] for at in range(context, len(text), NEW)]
    memory = ResponseTree()
    added = summary([timed(partial(memory.add, response)) for response in responses])
    print(f"{name}: a response into the memory: {added}; {memory.memory_bytes / 1e6:.0f} MB, {memory.nodes} nodes")
    for tree in (False, True):
        limits, here, earlier = Limits(10, 10, tree=tree), TextTree(), Recollection(memory)
        prefill = timed(partial(read, text[:context], here, earlier))
        cost = summary([timed(partial(turn, new, here, earlier, limits)) for new in rounds])
        size = f"{here.memory_bytes / 1e6:.0f} MB"
        print(f"{name}: suffix {'tree' if tree else 'path'}: a round {cost}; the prompt {prefill:.0f} ms, {size}")
    index, tokens = GramIndex((3, 2, 1)), text[:context]

    def look_up(new: list[int]) -> None:
        tokens.extend(new)
        index.read(tokens)
        index.find(tokens)

    prefill = timed(lambda: index.read(tokens))
    costs = [timed(partial(look_up, new)) for new in rounds]
    print(f"{name}: prompt lookup: a round {summary(costs)}; the prompt {prefill:.0f} ms")


def main(
    context: Annotated[int, typer.Option(help="tokens of the text before the first round")] = 32_000,
    responses: Annotated[int, typer.Option(help="earlier responses that are remembered")] = 1000,
) -> None:
    """What prompt lookup and suffix decoding cost a round: processor time, no model."""
    for make in (words, quotes, one_token):
        rng = random.Random(0)
        text = make(rng, context + ROUNDS * NEW)
        starts = [rng.randrange(len(text) - RESPONSE) for _ in range(responses)]
        said = (
            words(rng, RESPONSE * len(starts))
            if make is words
            else [t for at in starts for t in text[at : at + RESPONSE]]
        )
        earlier = [said[at : at + RESPONSE] for at in range(0, len(said), RESPONSE)]
        measure(make.__name__, text, context, earlier)


if __name__ == "__main__":
    typer.run(main)
