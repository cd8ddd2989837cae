"""Train the small encoder-decoder models of models/dates and models/dates-drafter: dates in any writing become digits.

Both are ordinary T5 checkpoints on bytes. Data is made up while training goes on; dates of the held-out set
are never among them.
"""

import utils.device.threads  # noqa: F401

import random
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated

import torch
import typer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

ROOT = Path(__file__).resolve().parent.parent
SPECIALS = ("<pad>", "</s>", "<unk>")
PAD, EOS = 0, 1
FIRST, DAYS = date(1900, 1, 1), 73_049
HELD_OUT_SHARE, HELD_OUT = 40, 1000
SHORT = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Widths of a model: states, feed-forward, heads, and layers of the encoder and of the decoder."""

    states: int
    inner: int
    heads: int
    encoder: int
    decoder: int


SIZES = {"dates": ModelSize(64, 128, 4, 2, 2), "dates-drafter": ModelSize(32, 64, 2, 1, 1)}


def ordinal(day: int) -> str:
    """Example: 3 -> 3rd, 12 -> 12th."""
    ending = "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def written(day: date, rng: random.Random) -> str:
    """A way to write the day; the order of day and month is never in doubt."""
    month = rng.choice((day.strftime("%B"), SHORT[day.month - 1]))
    number = rng.choice((str(day.day), ordinal(day.day)))
    year = f"{day.year}"
    text = rng.choice(
        (
            f"{number} {month} {year}",
            f"{month} {number}, {year}",
            f"{month} {number} {year}",
            f"the {ordinal(day.day)} of {month}, {year}",
            f"the {ordinal(day.day)} of {month} {year}",
            f"{number} of {month} {year}",
            f"{day.day}.{day.month}.{year}",
            f"{day.day:02d}.{day.month:02d}.{year}",
            f"{year}/{day.month:02d}/{day.day:02d}",
            f"{year}, {month} {number}",
        )
    )
    if rng.random() < 0.2:
        text = f"{rng.choice((day.strftime('%A'), day.strftime('%a')))}, {text}"
    return rng.choice((text, text, text, text.lower(), text.upper()))


def is_held_out(number: int) -> bool:
    """Whether the day of this number belongs to the held-out set."""
    return number * 2_654_435_761 % 2**32 % HELD_OUT_SHARE == 0


def examples(rng: random.Random, held_out: bool) -> Iterator[tuple[str, str]]:
    """Endless pairs of a written date and its form in digits."""
    while True:
        number = rng.randrange(DAYS)
        if is_held_out(number) == held_out:
            day = FIRST + timedelta(days=number)
            yield written(day, rng), day.isoformat()


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and an end of sequence behind every text."""
    vocab = {token: index for index, token in enumerate((*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())))}
    backend = Tokenizer(models.BPE(vocab, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
    )


def fresh_model(size: ModelSize, vocab: int) -> T5ForConditionalGeneration:
    """A T5 with random weights, its embedding and output one matrix."""
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=vocab,
            d_model=size.states,
            d_kv=size.states // size.heads,
            d_ff=size.inner,
            num_heads=size.heads,
            num_layers=size.encoder,
            num_decoder_layers=size.decoder,
            relative_attention_num_buckets=32,
            relative_attention_max_distance=64,
            feed_forward_proj="gated-gelu",
            dropout_rate=0.0,
            decoder_start_token_id=PAD,
            pad_token_id=PAD,
            eos_token_id=EOS,
        )
    )


def batch(tokenizer: PreTrainedTokenizerFast, pairs: Sequence[tuple[str, str]]) -> dict[str, torch.Tensor]:
    """Padded ids of sources and answers; padding of an answer counts for nothing."""
    sources = tokenizer([source for source, _ in pairs], padding=True, return_tensors="pt")
    labels = tokenizer([answer for _, answer in pairs], padding=True, return_tensors="pt")["input_ids"]
    labels = labels.masked_fill(labels == PAD, -100)
    return {"input_ids": sources["input_ids"], "attention_mask": sources["attention_mask"], "labels": labels}


def train(
    model: T5ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, steps: int, rows: int, seed: int
) -> None:
    """Teacher forcing with a rate that warms up over a twentieth of the steps and then falls to 0."""
    pairs = examples(random.Random(seed), held_out=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.05)
    model.train()
    for step in range(1, steps + 1):
        fed = batch(tokenizer, [next(pairs) for _ in range(rows)])
        labels = fed.pop("labels")
        logits = model(**fed, decoder_input_ids=model._shift_right(labels)).logits
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def exact_match(model: T5ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, count: int) -> float:
    """Share of held-out dates whose greedy answer is right to the last character."""
    model.eval()
    pairs = examples(random.Random(0), held_out=True)
    chosen = [next(pairs) for _ in range(count)]
    right = 0
    for start in range(0, count, 100):
        part = chosen[start : start + 100]
        fed = batch(tokenizer, part)
        fed.pop("labels")
        made = tokenizer.batch_decode(model.generate(**fed, max_new_tokens=16), skip_special_tokens=True)
        right += sum(answer == expected for answer, (_, expected) in zip(made, part, strict=True))
    return right / count


def card(name: str, model: T5ForConditionalGeneration, how: str, score: float) -> str:
    """The README.md beside the weights; how: steps and time in words."""
    size, weights = SIZES[name], sum(weight.numel() for weight in model.parameters())
    shown = zip(examples(random.Random(5), held_out=True), range(6), strict=False)
    rows = "\n".join(f"| {source} | {answer} |" for (source, answer), _ in shown)
    return f"""# {name}

A T5 on bytes that writes a date as YYYY-MM-DD: {size.encoder} encoder and {size.decoder} decoder layers of
width {size.states}, {weights:,} weights in float32. `models/dates` is the target, `models/dates-drafter` drafts for it.

| prompt | answer |
|---|---|
{rows}

- **Data**: made up by `scripts/train_seq2seq.py`: days from 1900-01-01 to 2099-12-31 in ten ways to write them, with
  full and short names of months, ordinal numbers, weekdays, small and capital letters. One day in {HELD_OUT_SHARE} is
  held out.
- **Training**: {how}.
- **Held out**: {score:.1%} of {HELD_OUT:,} dates right to the last character, greedy.
- **Command**: `uv run scripts/{shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}`

It knows nothing but dates: any other prompt gets a date as well.
"""


def main(
    name: Annotated[str, typer.Option(help=f"which model: {', '.join(SIZES)}")] = "dates",
    steps: Annotated[int, typer.Option(min=1, help="training steps")] = 1200,
    rows: Annotated[int, typer.Option(min=1, help="dates a step")] = 64,
    seed: Annotated[int, typer.Option(help="of weights and data")] = 1,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="default: models/NAME")] = None,
) -> None:
    """Train one of the two models and save it with its tokenizer and its card."""
    torch.manual_seed(seed)
    tokenizer = byte_tokenizer()
    model = fresh_model(SIZES[name], len(tokenizer))
    start = time.perf_counter()
    train(model, tokenizer, steps, rows, seed)
    seconds = time.perf_counter() - start
    score = exact_match(model, tokenizer, HELD_OUT)
    print(f"{name}: {seconds:.0f} s, exact match {score:.3f} on {HELD_OUT} held-out dates")
    folder = out or ROOT / "models" / name
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    how = f"{steps:,} steps of {rows} dates, {seconds:.0f} s on one core that other work shared"
    (folder / "README.md").write_text(card(name, model, how, score), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
