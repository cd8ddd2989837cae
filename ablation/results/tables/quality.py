"""What rounding costs in quality as text for people: the columns that stand beside every speed of two formats."""

from collections.abc import Iterable

from sampling.loading.options import WEIGHTS
from sampling.measure.quality import Quality
from utils.numbers.intervals import FEWEST

QUALITY_HEADERS = ("weights", "same token, %", "KL to full, nats", "perplexity", "MB (of full)")
QUALITY_MEANING = (
    "Quality is measured on the full weights' own greedy answers, token by token, without the prompts' tokens: how "
    "often both find the same token most likely, the mean of KL(full || rounded), and the perplexity of these answers, "
    "each with its 95 % interval over prompts. MB are 10^6 bytes of what the products and the embedding "
    "hold, what is shared counted once."
)


def quality_cells(format: str, quality: Quality) -> tuple[str, ...]:
    """A format's cells under `QUALITY_HEADERS`."""
    share, count = quality.weight_bytes / quality.full_weight_bytes, quality.prompts
    return (
        format,
        _told(count, 100 * quality.same, _percent(quality.same_low), _percent(quality.same_high), 1),
        _told(count, quality.kl, quality.kl_low, quality.kl_high, 4),
        _told(count, quality.perplexity, quality.perplexity_low, quality.perplexity_high, 3),
        f"{quality.weight_bytes / 1e6:,.0f} ({share:.0%})",
    )


def full_cells(quality: Quality) -> tuple[str, ...]:
    """The cells of the full weights, which are the reference, from the quality of any format against them."""
    ends = quality.full_perplexity_low, quality.full_perplexity_high
    perplexity = _told(quality.prompts, quality.full_perplexity, *ends, 3)
    return (WEIGHTS[0], "the reference", "–", perplexity, f"{quality.full_weight_bytes / 1e6:,.0f} (100%)")


def quality_command(formats: Iterable[str]) -> str:
    """The command that measures the quality of these formats."""
    return f"uv run infer.py quality --formats {','.join(formats)}"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _told(prompts: int, middle: float, low: float | None, high: float | None, digits: int) -> str:
    """Example: 94.7 [93.9, 95.4]. Of fewer than `FEWEST` prompts without an interval, whatever a file holds."""
    ends = "" if low is None or high is None or prompts < FEWEST else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{middle:.{digits}f}{ends}"
