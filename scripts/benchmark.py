"""Our loop against transformers' generate on the same weights, ids and machine state; ratios with intervals.

Every comparison runs both sides one after the other for each prompt and repeat, the order swapped each
time, in one process. A side is timed as a whole call, prompt included, because `generate` cannot be timed
in parts. Reports to the terminal and, with --write, to docs/benchmarks.md.
"""

import sys
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import transformers
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ablation.plan.prompt_file import read_prompts
from sampling.engine import Engine
from sampling.heads.head_files import load_head
from sampling.loading.heads import heads_for
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.loading.sources import EMBEDDED_NAME, resolve
from sampling.loading.stages import silent
from sampling.measure.metrics import RunMetrics
from sampling.pair import MODEL
from sampling.settings import Settings
from utils.intervals import bootstrap_median
from utils.provenance import ROOT, cpu_name

START, END = "<!-- benchmark table -->", "<!-- end of benchmark table -->"
NGRAM_ORDER = 3
COPIED = ("grounded", "code")
DRAFT_WITH_A_MODEL = ("SD",)


@dataclass
class Duel:
    """One of our methods against one call of transformers; `ratios` = their seconds / ours, on equal tokens."""

    name: str
    against: str
    ours: Callable[[list[int]], RunMetrics]
    theirs: Callable[[list[int]], list[int]]
    tasks: tuple[str, ...] = ()
    ratios: list[float] = field(default_factory=list)
    ours_s: list[float] = field(default_factory=list)
    theirs_s: list[float] = field(default_factory=list)
    tokens: int = 0
    different: int = 0
    overhead: list[float] = field(default_factory=list)

    def play(self, prompt: list[int], ours_first: bool) -> None:
        """Both sides once; seconds a token, so that a tie that ends one text earlier does not count as speed."""
        results: dict[str, tuple[float, list[int]]] = {}
        for side in ("ours", "theirs") if ours_first else ("theirs", "ours"):
            start = time.perf_counter()
            if side == "ours":
                account = self.ours(prompt)
                ids = account.output_ids
                outside = 0.0 if self.name in DRAFT_WITH_A_MODEL else account.draft_s
                self.overhead.append((account.other_s + outside) / account.decode_s)
            else:
                ids = self.theirs(prompt)
            results[side] = (time.perf_counter() - start) / len(ids), ids
        self.ours_s.append(results["ours"][0])
        self.theirs_s.append(results["theirs"][0])
        self.ratios.append(results["theirs"][0] / results["ours"][0])
        self.tokens += len(results["ours"][1])
        self.different += results["ours"][1] != results["theirs"][1]


class Transformers:
    """`model.generate` with the same weights: plain, with an assistant of the same blocks, with prompt lookup."""

    def __init__(self, dtype: torch.dtype, length: int, gamma: int, stop: list[int]) -> None:
        folder = resolve(None, silent).place
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        self.model.generation_config = transformers.GenerationConfig(eos_token_id=stop, pad_token_id=stop[0])
        self.assistant = _distilled(self.model)
        assisting = self.assistant.generation_config
        assisting.num_assistant_tokens = gamma
        assisting.num_assistant_tokens_schedule = "constant"
        assisting.assistant_confidence_threshold = 0.0
        self.length, self.gamma = length, gamma

    def generate(self, prompt: list[int], **options: Any) -> list[int]:
        """New ids, greedy."""
        ids = torch.tensor([prompt])
        output = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=self.length, do_sample=False, **options
        )
        return list(output[0, len(prompt) :].tolist())

    def assisted(self, prompt: list[int]) -> list[int]:
        """With the distilled drafter as the assistant model."""
        return self.generate(prompt, assistant_model=self.assistant)

    def lookup(self, size: int) -> Callable[[list[int]], list[int]]:
        """With prompt lookup: contexts of `size` tokens at most, drafts as long as ours."""
        return lambda prompt: self.generate(prompt, prompt_lookup_num_tokens=self.gamma, max_matching_ngram_size=size)


def _distilled(model: Any) -> Any:
    """The distilled drafter as a transformers model; its output is the whole vocabulary's, which `generate` needs."""
    head = load_head(heads_for(EMBEDDED_NAME, None)[MODEL])
    config = deepcopy(model.config)
    config.num_hidden_layers = head.config.layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: head.config.layers]
    small = type(model)(config)
    blocks = {name.replace("blocks.", "layers."): weight for name, weight in head.weights.items()}
    small.model.load_state_dict({**blocks, "embed_tokens.weight": model.model.embed_tokens.weight})
    small.tie_weights()
    return small.to(model.dtype).eval()


def _ours(engine: Engine, name: str, settings: Settings) -> Callable[[list[int]], RunMetrics]:
    def run(prompt: list[int]) -> RunMetrics:
        account = RunMetrics()
        for event in engine.stream(name, settings, prompt):
            account.add(event)
        return account

    return run


def verify_growth(engine: Engine, prompt: list[int], counts: tuple[int, ...] = (1, 2, 3, 5, 9, 17)) -> dict[int, float]:
    """v(n): milliseconds of one target forward over n tokens behind the prompt, medians of interleaved runs."""
    target = engine.pair.target
    times: dict[int, list[float]] = {count: [] for count in counts}
    target.prefill(prompt)
    for _ in range(15):
        for count in counts:
            target.crop(len(prompt))
            start = time.perf_counter()
            target.forward(prompt[:count])
            times[count].append(time.perf_counter() - start)
    return {count: median(values) * 1e3 for count, values in times.items()}


def repeated_requests(engine: Engine, settings: Settings, prompts: list[list[int]], console: Console) -> None:
    """Prompts that come a second time: suffix decoding with its memory kept, against our own AR, interleaved.

    Both sides are our loop, so their decode times are compared, without the prompt.
    """
    suffix, plain = (_ours(engine, name, settings) for name in ("suffix", "target"))
    for prompt in prompts:
        suffix(prompt)
    ratios, first, again = [], 0, 0
    for number, prompt in enumerate(prompts):
        runs = {}
        for name, run in (("suffix", suffix), ("plain", plain))[:: 1 if number % 2 else -1]:
            runs[name] = run(prompt)
        first += runs["suffix"].new_tokens
        again += runs["suffix"].rounds
        ratios.append((runs["suffix"].tokens_per_s or 0.0) / (runs["plain"].tokens_per_s or 1.0))
    middle, low, high = bootstrap_median(ratios)
    console.print(
        f"requests that come again: suffix {middle:.2f} ({low:.2f} to {high:.2f}) times our AR, "
        f"{first / again:.2f} tokens a round, {len(prompts)} prompts"
    )


def main(
    length: Annotated[int, typer.Option(help="new tokens a run")] = 128,
    gamma: Annotated[int, typer.Option(help="drafted tokens a round, on both sides")] = 4,
    lookup_gamma: Annotated[int, typer.Option(help="drafted tokens a round of the n-gram methods")] = 10,
    repeats: Annotated[int, typer.Option(help="runs of each side on each prompt")] = 3,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16")] = "auto",
    prompts: Annotated[Path, typer.Option(help="prompt file")] = ROOT / "scripts/benchmark_prompts.jsonl",
    only: Annotated[
        str, typer.Option(help="comparisons, comma-separated: AR,SD,NASD,Prompt lookup,Suffix,again")
    ] = "AR,SD,NASD,Prompt lookup,Suffix,again",
    limit: Annotated[int, typer.Option(help="prompts of each task")] = 100,
    write: Annotated[bool, typer.Option(help="put the table into docs/benchmarks.md")] = False,
) -> None:
    """Measure the embedded default on the CPU, ours against transformers."""
    console = Console(stderr=True)
    transformers.utils.logging.set_verbosity_error()
    pair = load_pair(LoadOptions(dtype=dtype, device="cpu"))
    engine, settings, lookup = Engine(pair), Settings(), Settings()
    for values, drafts in ((settings, gamma), (lookup, lookup_gamma)):
        values.assign("length", str(length))
        values.assign("gamma", str(drafts))
        values.assign("set_ngramstorage", f"basic {NGRAM_ORDER}")
        values.assign("max_ngram_size", str(NGRAM_ORDER))
        values.assign("num_speculative_tokens", str(drafts))
        values.assign("max_cached_requests", "0")
        values.assign("draft_weights", "full")
    number = pair.target.model.dtype
    plain, searching = (Transformers(number, length, drafts, sorted(pair.stop)) for drafts in (gamma, lookup_gamma))
    duels = [
        Duel("AR", "generate", _ours(engine, "target", settings), plain.generate),
        Duel("SD", "generate(assistant_model)", _ours(engine, "speculative", settings), plain.assisted),
        Duel(
            "NASD",
            "generate(prompt_lookup)",
            _ours(engine, "ngram", lookup),
            searching.lookup(NGRAM_ORDER - 1),
            ("grounded",),
        ),
        Duel(
            "Prompt lookup",
            "generate(prompt_lookup)",
            _ours(engine, "prompt_lookup", lookup),
            searching.lookup(NGRAM_ORDER),
            COPIED,
        ),
        Duel(
            "Suffix, no memory",
            "generate(prompt_lookup)",
            _ours(engine, "suffix", lookup),
            searching.lookup(NGRAM_ORDER),
            COPIED,
        ),
    ]
    duels = [duel for duel in duels if duel.name.partition(",")[0] in only.split(",")]
    chosen = [(p.task, pair.encode(list(p.turns[:1]), chat=True)) for p in read_prompts(prompts)]
    tasks: dict[str | None, list[list[int]]] = {}
    for task, ids in chosen:
        tasks.setdefault(task, []).append(ids)
    chosen = [(task, ids) for task, prompts_of in tasks.items() for ids in prompts_of[:limit]]
    warm = pair.encode(["Count from one to ten."], chat=True)
    for duel in duels:
        duel.play(warm, True)
        for kept in (duel.ratios, duel.ours_s, duel.theirs_s, duel.overhead):
            kept.clear()
        duel.tokens = duel.different = 0
    with Progress(console=console) as progress:
        rounds = [(task, ids, duel) for task, ids in chosen for duel in duels if not duel.tasks or task in duel.tasks]
        bar = progress.add_task("measuring", total=len(rounds) * repeats)
        for repeat in range(repeats):
            for number_of, (_, ids, duel) in enumerate(rounds):
                duel.play(ids, (repeat + number_of) % 2 == 0)
                progress.advance(bar)
    if "again" in only.split(","):
        settings.assign_all([("max_cached_requests", "-1"), ("num_speculative_tokens", str(lookup_gamma))])
        repeated_requests(Engine(pair.fresh()), settings, [ids for task, ids in chosen if task in COPIED], console)
    growth = verify_growth(engine, chosen[0][1])
    report(duels, growth, f"{length} new tokens, {repeats} repeats, {str(number).removeprefix('torch.')}", write)


def report(duels: list[Duel], growth: dict[int, float], what: str, write: bool) -> None:
    """The table on stdout, and in the docs when asked."""
    lines = [
        f"Measured with `uv run {' '.join(['scripts/benchmark.py', *sys.argv[1:]])}`: {what}; "
        f"{cpu_name()}, {torch.get_num_threads()} threads; torch {torch.__version__}, "
        f"transformers {transformers.__version__}.",
        "",
        "| ours | against | ratio, median | 95 % interval | ours, ms/token | theirs, ms/token | runs | other text | "
        "outside forwards |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    table = Table("ours", "against", "ratio", "95 % interval", "ours ms/token", "theirs ms/token", "runs")
    for duel in duels:
        middle, low, high = bootstrap_median(duel.ratios)
        ours, theirs = median(duel.ours_s) * 1e3, median(duel.theirs_s) * 1e3
        row = [duel.name, duel.against, f"{middle:.2f}", f"{low:.2f} to {high:.2f}", f"{ours:.1f}", f"{theirs:.1f}"]
        table.add_row(*row, str(len(duel.ratios)))
        outside = "-" if duel.name in DRAFT_WITH_A_MODEL else f"{100 * median(duel.overhead):.1f} %"
        lines.append("| " + " | ".join([*row, str(len(duel.ratios)), str(duel.different), outside]) + " |")
    shown = ", ".join(f"{count}: {ms:.1f}" for count, ms in growth.items())
    base = growth[1]
    lines += ["", f"One target forward over n tokens, ms: {shown}; v(5) = {growth[5] / base:.2f}."]
    Console().print(table)
    print("\n".join(lines[-1:]))
    if write:
        page = ROOT / "docs/benchmarks.md"
        text = page.read_text(encoding="utf-8")
        before, after = text.split(START)[0], text.split(END)[1]
        page.write_text(f"{before}{START}\n{chr(10).join(lines)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
