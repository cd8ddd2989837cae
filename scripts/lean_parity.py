"""Whether the lean forward says what transformers' own says, on a real checkpoint: `uv run scripts/lean_parity.py DIR`.

DIR: a folder with config.json, weights and tokenizer. A second argument is a text file (default: the README). Both run
in float32, ours in chunks and the last 100 tokens in chains of five. It also prints how many rows each layer keeps.
"""

import utils.device.threads  # noqa: F401

import sys
from collections import Counter
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sampling.forward.models import lean
from sampling.forward.runner import PREFILL_CHUNK, ModelRunner
from utils.provenance import ROOT

TOKENS, CHAINED, CHAIN = 1700, 100, 5


@torch.inference_mode()
def main(folder: str, text: str = str(ROOT / "README.md")) -> None:
    """Print the largest difference of a logit, beside the largest logit, and how many rows have the same best token."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(Path(text).read_text(encoding="utf-8"))["input_ids"][:TOKENS]
    expected = model(torch.tensor([ids])).logits[0]
    if not lean.fits(model):
        sys.exit(f"{type(model).__name__} has no lean forward; docs/models.md lists those that have")
    runner, cut = ModelRunner(lean.from_transformers(model)), len(ids) - CHAINED
    starts = range(0, cut, PREFILL_CHUNK)
    parts = [
        *(ids[place : min(place + PREFILL_CHUNK, cut)] for place in starts),
        *(ids[place : place + CHAIN] for place in range(cut, len(ids), CHAIN)),
    ]
    ours = torch.cat([runner.forward(part).logits for part in parts])
    same = (ours.argmax(-1) == expected.argmax(-1)).sum()
    print(
        f"{len(ids)} tokens: largest difference {(ours - expected).abs().max():.1e} of logits up to "
        f"{expected.abs().max():.0f}; the same best token in {same} rows"
    )
    kept = Counter(keys.shape[1] for keys, _ in runner.kept.rows().values())
    print("; ".join(f"{layers} layers keep {rows} rows" for rows, layers in sorted(kept.items())))


if __name__ == "__main__":
    main(*sys.argv[1:])
