"""What is asked of a tokenizer: transformers' have it, and so has our own."""

from collections.abc import Mapping
from typing import Any, Protocol

SPECIALS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The names under which chat templates read special tokens."""
ARGUMENTS = (
    "conversation", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message",
    "tokenize", "sanitize_control_tokens", "padding", "truncation", "max_length", "return_tensors", "return_dict",
    "return_assistant_tokens_mask", "tokenizer_kwargs",
)  # fmt: skip
"""What transformers' `apply_chat_template` takes itself, so that no template is told of it as of a variable."""


class Tokenizer(Protocol):
    """As `PreTrainedTokenizerBase` of transformers, as far as it is asked for here."""

    chat_template: Any

    def __hash__(self) -> int:
        """By identity: what is made of one is kept for it."""

    def __len__(self) -> int:
        """How many tokens it has, added ones included."""

    @property
    def eos_token_id(self) -> Any:
        """The id that ends a text, or None."""

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of the tokens of `special_tokens_map`."""

    @property
    def special_tokens_map(self) -> Mapping[str, Any]:
        """Special tokens by name, those of `SPECIALS` that it has."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        """Added tokens by id, with `content` and `special`."""

    def get_vocab(self) -> dict[str, int]:
        """The id of every token."""

    def encode(self, text: Any, *, add_special_tokens: bool = True) -> Any:
        """The ids of a text; with those that its post-processor puts around it, unless told otherwise."""

    def decode(self, token_ids: Any, skip_special_tokens: bool = False) -> Any:
        """The text of ids."""

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        """The vocabulary's entry of an id, or a list of them."""

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """The id of an entry, or a list of them."""

    def get_chat_template(self) -> str:
        """The template of plain chats. Raises `ValueError` without one."""

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, **options: Any) -> Any:
        """The text of messages in the template, with `tokenize` false."""

    def save_pretrained(self, save_directory: Any) -> object:
        """Write its files into a folder."""
