"""Families that do not run here, asked for from Python and as checkpoints: the reason, before weights are read."""

from pathlib import Path

from transformers import BloomConfig, FalconConfig, NllbMoeConfig, PretrainedConfig, WhisperConfig

from sampling.loading.pairs import LoadOptions, load_pair
from tests.hostile.row import Row
from tests.tiny import tiny_tokenizer

EXPECTED = "or an encoder-decoder model of docs/models.md"


def unfit(name: str, config: PretrainedConfig, reason: str) -> Row:
    """A folder that holds a configuration and a tokenizer, and no weights."""

    def write(folder: Path) -> None:
        config.save_pretrained(folder / "it")
        tiny_tokenizer().save_pretrained(folder / "it")

    return Row(
        "python",
        lambda folder: load_pair(LoadOptions(str(folder / "it"), device="cpu", dtype="float32")),
        2,
        (f"it ({config.model_type}): {reason}", EXPECTED),
        write,
        name=name,
    )


ROWS = (
    unfit("ALiBi", BloomConfig(), "its distances are added to scores by row of the cache"),
    unfit("ALiBi where it is a choice", FalconConfig(alibi=True), "its distances are added to scores by row"),
    unfit("experts with a capacity", NllbMoeConfig(), "its experts take only so many tokens of a forward"),
    unfit("a model of sound", WhisperConfig(), "its encoder reads sound, not text"),
)
