"""From a GGUF file to an ordinary checkpoint folder: float32 weights, configuration, tokenizer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sampling.loading.refusals.contents import refuse_untrained
from sampling.loading.stages import Progress, part
from utils.errors import UserError
from utils.text import first_line

# llama.cpp cuts every digit on its own under these pre-tokenizer names; transformers 5.23 does not know them
# and would look for merges across digits that the vocabulary never learned.
_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva")


def convert(gguf: Path, folder: Path, progress: Progress) -> None:
    """Write the checkpoint that the GGUF file holds into an existing empty folder.

    The weights are stored in float32: a de-quantised value (an integer times a half-precision scale, plus
    an offset) fits neither float16 nor bfloat16. Raises `UserError` for a file that is corrupt or of an
    architecture that transformers cannot read.
    """
    progress("Reading the GGUF header", 0.0)
    pre_tokenizer = _pre_tokenizer(gguf)
    progress("Importing transformers", 0.05)
    try:
        tokenizer = _tokenizer(gguf, pre_tokenizer)
        model = _model(gguf, part(progress, 0.2, 0.9))
    except (MemoryError, OSError, UserError):
        raise
    except Exception as error:  # tokenizers raises plain Exception for a vocabulary that makes no sense
        raise UserError(
            f"{gguf}: transformers cannot read this GGUF file ({first_line(error)}); "
            "expected a complete GGUF file of a causal language model, with its tokenizer"
        ) from error
    progress("Writing the converted model", 0.9)
    tokenizer.save_pretrained(folder)
    with quiet():
        model.save_pretrained(folder)
    progress("Converted", 1.0)


def stored_as(gguf: Path) -> str:
    """The format of most of a file's weights, in llama.cpp's words, as `Q4_1`. Raises `UserError`."""
    from gguf import GGUFReader, LlamaFileType

    try:
        field = GGUFReader(gguf).get_field("general.file_type")
        return "unknown" if field is None else LlamaFileType(field.contents()).name.removeprefix("MOSTLY_")
    except (OSError, ValueError) as error:
        raise UserError(f"{gguf}: {first_line(error)}; expected a GGUF file") from None


def _pre_tokenizer(gguf: Path) -> str:
    """What the file says of how its vocabulary splits text; reading it proves that the file is whole."""
    from gguf import GGUFReader

    try:
        field = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise UserError(
            f"{gguf} is not a readable GGUF file ({first_line(error)}); expected a complete GGUF file"
        ) from error
    return str(field.contents()) if field is not None else ""


def _tokenizer(gguf: Path, pre_tokenizer: str) -> Any:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    if pre_tokenizer in _SINGLE_DIGITS:
        digits, rest = pre_tokenizers.Digits(individual_digits=True), tokenizer.backend_tokenizer.pre_tokenizer
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, rest])
    return tokenizer


def _model(gguf: Path, progress: Progress) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    with quiet(), _watched(progress):
        model, loading_info = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent),
            gguf_file=gguf.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
            output_loading_info=True,
        )
    refuse_untrained(str(gguf), model, loading_info)
    return model


@contextmanager
def _watched(progress: Progress) -> Iterator[None]:
    """Turn the bar that transformers' GGUF loader draws on stderr into our own progress."""
    from transformers import modeling_gguf_pytorch_utils as loader

    def watch(tensors: Any, **_: Any) -> Iterator[Any]:
        for index, tensor in enumerate(tensors):
            progress("De-quantising the weights", index / len(tensors))
            yield tensor

    drawn = loader.tqdm
    loader.tqdm = watch
    try:
        yield
    finally:
        loader.tqdm = drawn


@contextmanager
def quiet() -> Iterator[None]:
    """Run without transformers' own progress bars and warnings, which would break the caller's screen."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
