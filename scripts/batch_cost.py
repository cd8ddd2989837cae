"""What a round of many texts costs the host: processor time outside the models' forwards, with tiny random models.

uv run scripts/batch_cost.py [--texts 64] [--rounds 40] [--processor "multinomial 1.0"]
    [--methods "target, mtp gamma=4"]

A round's forwards are taken out, so what is left does not depend on the size of the models. It is what a GPU waits for.
"""

import utils.device.threads  # noqa: F401

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from ablation.gpu_check.heads import save_random_heads
from ablation.plan.choice import choose_runs
from ablation.plan.grid import Configuration
from sampling.engine import Text
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner
from sampling.heads.inference import RecurrentForward
from sampling.loading.checkpoint import Placement
from sampling.loading.random_weights import random_model
from sampling.methods.settings import Settings
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from utils.errors import UserError
from utils.events import Round
from utils.parameter import Values

HIDDEN, VOCAB, LAYERS, WINDOW = 32, 256, 2, 512
METHODS = "target, prompt_lookup, speculative gamma=4, mtp gamma=4, eagle gamma=4"
_FORWARDS = (LeanModel, "forward"), (RecurrentForward, "run"), (RecurrentForward, "logits")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Forwards:
    """Processor seconds inside the models' forwards."""

    def __init__(self) -> None:
        self.seconds = 0.0
        for kind, name in _FORWARDS:
            setattr(kind, name, self._timed(getattr(kind, name)))

    def _timed(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            begun = thread_time()
            try:
                return forward(*arguments, **named)
            finally:
                self.seconds += thread_time() - begun

        return timed


def tiny_pair(folder: Path) -> Pair:
    """A target, a drafter of the same shape, and heads: two layers of 32, random."""
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=HIDDEN, intermediate_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=2,
        num_key_value_heads=1, vocab_size=VOCAB, max_position_embeddings=WINDOW, tie_word_embeddings=False,
    )  # fmt: skip
    place = Placement(torch.device("cpu"), torch.float32)
    target, drafter = (ModelRunner(random_model("a tiny model", config, place)) for _ in range(2))
    block = {"intermediate_size": HIDDEN, "heads": 2, "kv_heads": 1, "head_dim": 16, "steps": 3}
    sizes = {"hidden_size": HIDDEN, "vocab_size": VOCAB, "window": WINDOW, **block}
    heads = save_random_heads(folder, sizes, LAYERS, torch.arange(VOCAB), ("mtp", "eagle"))
    info = ModelInfo("tiny", "cpu", "float32")
    return Pair(target, drafter, None, frozenset(), info, info, heads=heads)  # type: ignore[arg-type]


def host_ms(pair: Pair, forwards: Forwards, run: Configuration, settings: Values, texts: int, rounds: int) -> float:
    """Milliseconds of a round outside the forwards, the least of so many rounds of all texts."""
    engine, values = PairEngine(pair), {**settings, **dict(run.parameters)}
    batch = engine.batch(run.method, values, texts)
    for number in range(texts):
        prompt = tuple((7 * place + number) % VOCAB for place in range(20 + number % 9))
        batch.admit(engine.request(run.method, values, Text(None, prompt, WINDOW - 64)))
    times = list[float]()
    for _ in range(rounds):
        begun, inside = thread_time(), forwards.seconds
        played = batch.play()
        times.append(thread_time() - begun - (forwards.seconds - inside))
        if len(played) < texts or not all(isinstance(round, Round) for _, round in played):
            break
    return min(times) * 1e3


@app.command(help=__doc__)
def main(
    texts: Annotated[int, typer.Option(min=1, help="texts of a round")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="rounds that are measured, the least counts")] = 40,
    methods: Annotated[str, typer.Option(help="methods between commas, each with values of its own")] = METHODS,
    processor: Annotated[str, typer.Option(help='such as "multinomial 1.0"')] = "greedy",
) -> None:
    """Print a row for each method: milliseconds of a round, and microseconds of a text."""
    torch.set_num_threads(1)
    settings = Settings()
    try:
        settings.assign_all({"length": str(WINDOW - 64), "prefill_chunk": "0", "processor": processor}.items())
        runs = choose_runs(methods, settings)
    except UserError as error:
        raise typer.BadParameter(str(error)) from None
    table = Table("method", "ms a round", "us a text")
    with TemporaryDirectory() as folder:
        pair, forwards = tiny_pair(Path(folder)), Forwards()
        for run in runs:
            ms = host_ms(pair, forwards, run, settings, texts, rounds)
            table.add_row(run.name, f"{ms:.2f}", f"{ms * 1e3 / texts:.0f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    app()
