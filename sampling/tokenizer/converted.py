"""The tokenizer of a checkpoint that this program converted, without transformers: ids and texts are the same."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from sampling.tokenizer.contract import ARGUMENTS, SPECIALS
from sampling.tokenizer.template import rendered

_FILE, _SETTINGS, _TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
# Settings under which transformers adds nothing to what tokenizer.json says.
_KNOWN = {*SPECIALS, "backend", "is_local", "local_files_only", "model_max_length", "tokenizer_class"}
_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")
# Files that would say more.
_MORE = ("special_tokens_map.json", "added_tokens.json", "additional_chat_templates")


class ConvertedTokenizer:
    """See `Tokenizer` in `contract.py`. folder: where its files lie."""

    def __init__(self, folder: Path, backend: Tokenizer, specials: dict[str, str], template: str | None) -> None:
        self.folder, self.backend_tokenizer, self.chat_template = folder, backend, template
        self._specials = specials

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size(with_added_tokens=True)

    @property
    def eos_token_id(self) -> int | None:
        """See `Tokenizer`."""
        token = self._specials.get("eos_token")
        return None if token is None else self.backend_tokenizer.token_to_id(token)

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """See `Tokenizer`."""
        return dict(self._specials)

    @property
    def all_special_ids(self) -> list[int]:
        """See `Tokenizer`; each once."""
        ids: list[int] = self.convert_tokens_to_ids(list(dict.fromkeys(self._specials.values())))
        return ids

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """See `Tokenizer`."""
        return self.backend_tokenizer.get_added_tokens_decoder()

    def get_vocab(self) -> dict[str, int]:
        """See `Tokenizer`."""
        return self.backend_tokenizer.get_vocab(with_added_tokens=True)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """See `Tokenizer`."""
        return self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids: int | Sequence[int], skip_special_tokens: bool = False) -> str:
        """See `Tokenizer`."""
        ids = [token_ids] if isinstance(token_ids, int) else [int(token) for token in token_ids]
        return self.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def convert_ids_to_tokens(self, ids: int | Sequence[int]) -> Any:
        """See `Tokenizer`."""
        if isinstance(ids, int):
            return self.backend_tokenizer.id_to_token(ids)
        return [self.backend_tokenizer.id_to_token(int(token)) for token in ids]

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """See `Tokenizer`; of what is no token the id of `unk_token`."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        found = self.backend_tokenizer.token_to_id(tokens)
        unknown = self._specials.get("unk_token")
        return self.backend_tokenizer.token_to_id(unknown) if found is None and unknown is not None else found

    def get_chat_template(self) -> str:
        """See `Tokenizer`."""
        if self.chat_template is None:
            raise ValueError("it has no chat template")
        return self.chat_template

    def apply_chat_template(
        self,
        conversation: Sequence[dict[str, Any]],
        *,
        tokenize: bool,
        tools: Sequence[dict[str, Any]] | None = None,
        documents: Sequence[dict[str, str]] | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        **variables: Any,
    ) -> str:
        """The text of messages, as transformers' own method renders it. variables: what the template reads besides.

        Raises `TypeError` for `tokenize` and for what else only `in_transformers` does, otherwise as `rendered`.
        """
        more = [name for name in ARGUMENTS if name in variables]
        if tokenize or more:
            raise TypeError(f"{', '.join(more) or 'tokenize'} given; expected text alone, or in_transformers()")
        if continue_final_message and add_generation_prompt:
            raise ValueError("add_generation_prompt and continue_final_message given; expected one of them")
        told = {"documents": documents, "add_generation_prompt": add_generation_prompt, **self._specials, **variables}
        return rendered(self.get_chat_template(), conversation, continue_final_message, tools=tools, **told)

    def save_pretrained(self, save_directory: str | Path) -> object:
        """See `Tokenizer`."""
        return self.in_transformers().save_pretrained(save_directory)

    def in_transformers(self) -> Any:
        """The same as a `PreTrainedTokenizerFast`, with all that it can do."""
        from transformers import PreTrainedTokenizerFast

        made = PreTrainedTokenizerFast.from_pretrained(self.folder)
        made.chat_template = self.chat_template
        return made


def converted_tokenizer(folder: Path) -> ConvertedTokenizer | None:
    """The tokenizer of a folder that this program converted; None for one to which transformers would add something.

    Raises `OSError` for files that are not there, `ValueError` for JSON that cannot be read, and plain `Exception` for
    a tokenizer.json that makes no sense.
    """
    settings = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
    backend = Tokenizer.from_file(str(folder / _FILE))
    specials = {name: settings[name] for name in SPECIALS if settings.get(name) is not None}
    if (
        not set(settings) <= _KNOWN
        or settings.get("tokenizer_class") not in _CLASSES
        or any((folder / name).exists() for name in _MORE)
        or not _whole(backend, specials)
    ):
        return None
    template = folder / _TEMPLATE
    return ConvertedTokenizer(
        folder, backend, specials, template.read_text(encoding="utf-8") if template.is_file() else None
    )


def _whole(backend: Tokenizer, specials: dict[str, Any]) -> bool:
    """Whether transformers would leave the tokenizer as it is: special tokens are known to it as what they are."""
    known = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    exact = all(isinstance(token, str) and token in known and _bare(known[token]) for token in specials.values())
    return exact and backend.post_processor is not None and backend.truncation is None and backend.padding is None


def _bare(token: AddedToken) -> bool:
    return bool(token.special) and not (token.normalized or token.lstrip or token.rstrip or token.single_word)
