"""Choose the layers of the embedded default that draft for all of them, by measurement."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sampling.loading.fast_load import lean_folder
from sampling.loading.gguf_cache import converted
from sampling.loading.layer_choice import Candidate, LayerChoice, greedy_answer
from sampling.loading.sources import embedded_gguf

PROMPTS = (
    "Explain in two sentences why the sky turns red at sunset.",
    "Write a Python function that counts the vowels in a string.",
    "Translate into French: the train leaves at nine tomorrow morning.",
    "List four things to pack for a week of hiking.",
    "My sister forgot my birthday. What should I say to her?",
    "A farmer has 17 sheep and buys 5 more. How many are there now?",
    "Begin a story about a lighthouse keeper who finds a letter.",
    "Summarise what a database index does for a new engineer.",
)


def main(
    fewest: Annotated[int, typer.Option(help="stop at this many layers")] = 14,
    tokens: Annotated[int, typer.Option(help="answer tokens a prompt")] = 32,
    gamma: Annotated[int, typer.Option(help="draft length of the speed estimate")] = 4,
) -> None:
    """Drop layers one at a time, the least missed first, and print agreement and expected speed."""
    console = Console(width=160)
    folder = converted(embedded_gguf(), lambda message, fraction=None: console.log(message))
    choice = _choice(folder, tokens)
    table = Table("layers", "agreement", f"expected speed, gamma {gamma}", "dropped", "kept")
    steps: Iterator[Candidate] = choice.removals(fewest)
    before = set(range(choice.model.num_layers))
    for step in track(steps, total=choice.model.num_layers - fewest, console=console):
        dropped = (before - set(step.keep)).pop()
        before = set(step.keep)
        row = (str(len(step.keep)), f"{step.agreement:.3f}", f"{choice.speedup(step, gamma):.3f}", str(dropped))
        console.log(*row, step.keep)
        table.add_row(*row, str(step.keep))
    console.print(table, "v = {:.2f}, head = {:.2f} of a target forward".format(*choice.costs))


def _choice(folder: Path, tokens: int) -> LayerChoice:
    """The model with its own greedy answers to the prompts."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = lean_folder(folder, torch.device("cpu"), torch.float32)
    assert model is not None, "the embedded default is a Llama"
    answers = []
    for prompt in PROMPTS:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        ids = tokenizer.encode(text, add_special_tokens=False)
        answers.append(greedy_answer(model, ids, tokens, frozenset({tokenizer.eos_token_id})))
    return LayerChoice(model, answers)


if __name__ == "__main__":
    typer.run(main)
