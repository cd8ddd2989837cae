"""Families that do not run here, asked for from Python and as checkpoints: the reason, before weights are read."""

from pathlib import Path

from transformers import DeepseekV4Config, NllbMoeConfig, PretrainedConfig, WhisperConfig, XLMConfig

from sampling.loading.pairs import LoadOptions, load_pair
from tests.hostile.row import Row
from tests.tiny import tiny_tokenizer

EXPECTED = "expected a model of docs/models.md"


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
    unfit("a mask behind the text", XLMConfig(), "it fills in a mask"),
    unfit("layers that are not known", DeepseekV4Config(), "layers of a type that is not known here"),
    unfit("experts with a capacity", NllbMoeConfig(), "its experts take only so many tokens of a forward"),
    unfit("a model of sound", WhisperConfig(), "its encoder reads sound, not text"),
)
