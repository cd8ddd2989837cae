"""What is played, and with which settings: prompts, duels, requests that come again."""

from pathlib import Path

from ablation.plan.prompt_file import read_prompts
from ablation.run.bar import told
from sampling.methods import REFERENCE
from sampling.pair import Pair
from sampling.pair_engine import PairEngine
from sampling.settings import Settings
from scripts.benchmarks.record import Again
from scripts.duels import NGRAM_ORDER, Duel, of_method
from utils.intervals import bootstrap_median

Prompts = list[tuple[str | None, list[int]]]


def first_prompts(pair: Pair, path: Path, limit: int) -> Prompts:
    """(task, ids) of so many prompts of each task."""
    tasks: dict[str | None, list[list[int]]] = {}
    for prompt in read_prompts(path):
        tasks.setdefault(prompt.task, []).append(pair.encode(prompt.opening, chat=True, system=prompt.system))
    return [(task, ids) for task, of_task in tasks.items() for ids in of_task[:limit]]


def warm_prompt(pair: Pair) -> list[int]:
    """A prompt that is not measured."""
    return pair.encode(["Count from one to ten."], chat=True)


def settings_of(length: int, drafts: int) -> Settings:
    """What both sides run with: greedy, so many drafts a round, no memory, weights of one format."""
    settings = Settings()
    wanted = {
        **{"length": length, "gamma": drafts, "num_speculative_tokens": drafts, "max_cached_requests": 0},
        **{"set_ngramstorage": f"basic {NGRAM_ORDER}", "max_ngram_size": NGRAM_ORDER, "draft_weights": "full"},
    }
    for name, value in wanted.items():
        settings.assign(name, str(value))
    return settings


def play(played: list[Duel], prompts: Prompts, repeats: int, warm: list[int]) -> None:
    """Every duel on each of its prompts, so many times, after one on a prompt that is not measured."""
    for duel in played:
        duel.play(warm, True)
        duel.forget()
    rounds = [(ids, duel) for task, ids in prompts for duel in played if not duel.tasks or task in duel.tasks]
    with told("measuring") as tell:
        for repeat in range(repeats):
            for number, (ids, duel) in enumerate(rounds):
                tell(repeat * len(rounds) + number, repeats * len(rounds), duel.name)
                duel.play(ids, (repeat + number) % 2 == 0)


def repeated_requests(engine: PairEngine, settings: Settings, prompts: list[list[int]]) -> Again:
    """Prompts that come a second time: suffix decoding with its memory kept, against our own AR, interleaved.

    Both sides are our loop, so their decode times are compared, without the prompt.
    """
    suffix, plain = (of_method(engine, name, settings) for name in ("suffix", REFERENCE))
    for prompt in prompts:
        suffix(prompt)
    ratios, tokens, rounds = [], 0, 0
    for number, prompt in enumerate(prompts):
        runs = {}
        for name, run in (("suffix", suffix), ("plain", plain))[:: 1 if number % 2 else -1]:
            runs[name] = run(prompt)
        tokens += runs["suffix"].new_tokens
        rounds += runs["suffix"].rounds
        ratios.append((runs["suffix"].tokens_per_s or 0.0) / (runs["plain"].tokens_per_s or 1.0))
    return Again(*bootstrap_median(ratios), tokens / rounds, len(prompts))
