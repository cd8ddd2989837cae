"""Write the embedded default as a checkpoint of another tokenizer, to draft for itself across vocabularies.

uv run scripts/other_tokenizer.py FOLDER [--merges 20000] [--sentence-piece]

The tokenizer has the first merges of the default's own, under other ids, and another end of a text; with
--sentence-piece its tokens are marked as SentencePiece does, and all bytes can be fallen back to. The weights are the
default's: a token has the row that it has there.
"""

import utils.device.threads  # noqa: F401

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from sampling.loading.embedded import embedded_gguf
from sampling.loading.gguf.cache import converted
from sampling.loading.stages import silent
from sampling.vocabularies.tokens import Vocabulary

_SPACE, _END = "\u2581", "</s>"
_STRIDE = 7919  # a prime: ids in another order than the default's


def tokens_of(spec: Any, merges: int) -> dict[str, int]:
    """Tokens that the first merges lead to, with their ids in the default, in another order."""
    known = spec["model"]["vocab"]
    kept = {token for token in known if len(token) == 1} | {"".join(pair) for pair in spec["model"]["merges"][:merges]}
    return {token: known[token] for token in sorted(kept, key=lambda token: known[token] * _STRIDE % len(known))}


def sentence_piece(spec: Any, rows: dict[str, int], said: list[bytes | None]) -> dict[str, int]:
    """The same tokens in SentencePiece's marks, with all bytes; the tokenizer's steps are changed to fit."""
    marked: dict[str, str] = {}
    for token, row in rows.items():
        data = said[row]
        try:
            text = data.decode().replace(" ", _SPACE) if data else ""
        except UnicodeDecodeError:
            continue  # a part of a character, which there is bytes
        if text and min(text) >= " ":
            marked[token] = text
    of_byte = {data: row for row in rows.values() if (data := said[row]) is not None and len(data) == 1}
    pairs = [[marked.get(part) for part in pair] for pair in spec["model"]["merges"]]
    vocab = {f"<0x{byte:02X}>": of_byte.get(bytes([byte]), 0) for byte in range(256)}
    vocab |= {text: rows[token] for token, text in marked.items()}
    spec["model"]["merges"] = [[a, b] for a, b in pairs if a and b and a + b in vocab]
    spec["model"] |= {"byte_fallback": True, "fuse_unk": True}
    marks = [{"type": "Prepend", "prepend": _SPACE}, {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}]
    back = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    spec["normalizer"], spec["pre_tokenizer"] = {"type": "Sequence", "normalizers": marks}, None
    steps = [back, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]
    spec["decoder"] = {"type": "Sequence", "decoders": steps}
    return vocab


def main(
    folder: Annotated[Path, typer.Argument(help="Where the checkpoint goes.")],
    merges: Annotated[int, typer.Option(min=1, help="Merges of the default's tokenizer that are kept.")] = 20000,
    sentence_piece_marks: Annotated[bool, typer.Option("--sentence-piece", help="Mark tokens so.")] = False,
) -> None:
    """Write it."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    source = str(converted(embedded_gguf(), silent))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source)
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    rows = tokens_of(spec, merges)
    spec["model"]["merges"] = spec["model"]["merges"][:merges]
    if sentence_piece_marks:
        rows = sentence_piece(spec, rows, Vocabulary("default", tokenizer, len(tokenizer)).says)
    rows = {_END: tokenizer.eos_token_id, **rows}
    spec["model"]["vocab"] = {token: place for place, token in enumerate(rows)}
    end = {"id": 0, "content": _END, "special": True, "normalized": False}
    spec["added_tokens"] = [{**end, "single_word": False, "lstrip": False, "rstrip": False}]
    spec["post_processor"] = None
    other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(spec)), eos_token=_END)
    kept = model.get_input_embeddings().weight.data[torch.tensor(list(rows.values()))].clone()
    model.resize_token_embeddings(len(rows))
    model.get_input_embeddings().weight.data.copy_(kept)
    for settings in (model.config, model.generation_config):
        settings.eos_token_id, settings.bos_token_id, settings.pad_token_id = 0, None, None
    model.save_pretrained(folder)
    other.save_pretrained(folder)
    print(f"{folder}: {len(rows):,} tokens")


if __name__ == "__main__":
    typer.run(main)
