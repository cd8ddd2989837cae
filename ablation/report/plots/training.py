"""What a training leaves for people: a picture of its course and a card of the model it made."""

from collections.abc import Mapping
from pathlib import Path

from ablation.report.plots.figure import Plot, blank, style
from sampling.distill.accuracy import Accuracy
from sampling.distill.training import History
from sampling.heads.config import HeadConfig

_SMOOTH = 20


def write_picture(folder: Path, title: str, history: History, loss: str) -> None:
    """Loss by step, and held-out acceptance by position and tokens a round by tokens seen; loss: what it is."""
    figure, (left, middle, right) = blank(title, 11, 3.4, 1, 3)
    losses = history.losses
    smooth = [
        sum(losses[max(0, at - _SMOOTH) : at + 1]) / len(losses[max(0, at - _SMOOTH) : at + 1])
        for at in range(len(losses))
    ]
    left.plot(range(1, len(losses) + 1), losses, color="#BBBBBB", linewidth=0.6)
    left.plot(range(1, len(losses) + 1), smooth, color="#0072B2")
    left.set(xlabel="step", ylabel=loss)
    seen = [sum(history.tokens[:step]) / 1e6 for step in history.checked]
    for place in range(len(history.conditional[0])):
        middle.plot(seen, [line[place] for line in history.conditional], label=f"draft {place + 1}", **style(place))
    middle.set(xlabel="million tokens seen, repeats counted", ylabel="held-out acceptance where those before are right")
    middle.legend(fontsize=8, frameon=False)
    right.plot(seen, history.tokens_per_round, **style(0))
    right.set(xlabel="million tokens seen, repeats counted", ylabel="held-out tokens a round, greedy chain")
    Plot("training", title, figure).save_svg(folder)


def write_card(
    folder: Path,
    config: HeadConfig,
    history: History,
    accuracy: Accuracy,
    facts: Mapping[str, object],
    held_out: str,
    before: str = "",
) -> None:
    """README.md of a head: what it is, what it was made from, how, and what came out.

    facts: further lines. held_out: what training never saw, such as greedy answers of the target. before: the
    card (`card_of`) of the head whose weights it began with.
    """
    about = {
        "kind": config.method,
        "base model": f"{config.base} (weights {config.base_digest[:16]})",
        "draft vocabulary": f"{config.draft_vocab:,} of {config.vocab_size:,} tokens",
        **facts,
        "steps": len(history.losses),
        "tokens seen, repeats counted": f"{sum(history.tokens):,}",
        "training time": f"{history.seconds / 60:.0f} min",
        "last loss": f"{sum(history.losses[-_SMOOTH:]) / len(history.losses[-_SMOOTH:]):.3f}",
        "held-out tokens a round": f"{accuracy.tokens_per_round:.2f} (greedy chain of {len(accuracy.conditional)})",
        "held-out tokens in the draft vocabulary": f"{100 * accuracy.covered:.1f} %",
        "held-out acceptance by position": ", ".join(f"{share:.3f}" for share in accuracy.conditional),
        "recommended in a session": ", ".join(f"{name} {value}" for name, value in config.recommended.items()),
    }
    lines = [f"# {config.method} drafter for {config.base}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in about.items()]
    lines += ["", f"Held-out figures are from {held_out} that training never saw.", ""]
    lines += ["![course of the training](training.svg)", ""]
    if before:
        lines += ["## The training that it began with", "", before]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def card_of(folder: Path) -> str:
    """The tables of a head's card, without title and pictures; empty where it has none."""
    path = folder / "README.md"
    if not path.is_file():
        return ""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith(("# ", "!["))).strip() + "\n"
