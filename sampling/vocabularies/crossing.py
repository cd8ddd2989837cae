"""From the target's vocabulary to a drafter's of another tokenizer, and back (arXiv 2502.05202)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sampling.vocabularies.sample import SAMPLE
from sampling.vocabularies.tokens import Vocabulary
from utils.errors import UserError

AUTO, TLI, SLEM = "auto", "tli", "slem"
TOLD = {TLI: "tokens that both have", SLEM: "text that the target's tokenizer writes anew"}
# Share of a text's tokens that both vocabularies must have, for drafts to be drawn from those alone.
_ENOUGH = 0.5


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the tokens that two vocabularies share make up, as shares of 1.

    vocabulary: of the target's tokens. target, drafter: of the tokens that each writes a sample of text with.
    """

    vocabulary: float
    target: float
    drafter: float


class Crossing:
    """Which tokens of a target and a drafter are one: those that stand for the same bytes.

    A special token is one with that of the same name, and the end of a text with the end of a text; no special token
    is one with an ordinary one. Raises `UserError` as `Vocabulary` does.
    """

    def __init__(self, target: Vocabulary, drafter: Vocabulary) -> None:
        self.target, self.drafter = target, drafter
        self.own_of = _shared(target, drafter)
        self.target_of = {drafter_id: number for number, drafter_id in self.own_of.items()}

    @cached_property
    def coverage(self) -> Coverage:
        """How much of the target's vocabulary, and of text, the shared tokens are."""
        tokens = sum(said is not None for said in self.target.says) + len(self.target.specials)
        target, drafter_side = (vocabulary.written(SAMPLE.encode(), True) for vocabulary in (self.target, self.drafter))
        return Coverage(
            len(self.own_of) / max(1, tokens),
            sum(number in self.own_of for number in target) / max(1, len(target)),
            sum(number in self.target_of for number in drafter_side) / max(1, len(drafter_side)),
        )

    def chosen(self, wanted: str) -> str:
        """How drafts cross under this `vocabulary`. Raises `UserError` for an intersection without a token."""
        if wanted == TLI and not self.target.id_of.keys() & self.drafter.id_of.keys():
            raise UserError(
                f"vocabulary tli given, and {self.target.name} and {self.drafter.name} share special tokens at most; "
                "expected slem"
            )
        if wanted != AUTO:
            return wanted
        return TLI if min(self.coverage.target, self.coverage.drafter) >= _ENOUGH else SLEM

    def __str__(self) -> str:
        cover = self.coverage
        return (
            f"{cover.vocabulary:.1%} of the target's vocabulary; of a sample text {cover.target:.1%} of the target's "
            f"tokens and {cover.drafter:.1%} of the drafter's"
        )

    def shared(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Ids `[m]` of the shared tokens in the target and in the drafter."""
        return tuple(torch.tensor(list(ids), device=device) for ids in (self.own_of, self.own_of.values()))  # type: ignore[return-value]

    def continued(self, word: Sequence[int], written: Sequence[int]) -> list[int]:
        """The target's ids of a draft of the drafter's ids, behind a word of which these target ids are said.

        The draft counts up to its first special token, which is drafted where it is shared, and up to its last whole
        character. Where the target would write word and draft with other ids than the word has, the draft stands alone.
        Its last token may be the begin of a longer one: it is kept, as a wrong draft costs a row and no more.
        """
        special = next(
            (place for place, number in enumerate(written) if self.drafter.says[number] is None), len(written)
        )
        said = self.drafter.said(written[:special]) or b""
        data = said.decode("utf-8", "ignore").encode() if _unfinished(said) else said
        ids = self._behind(list(word), data)
        end = self.target_of.get(written[special]) if special < len(written) and data == said else None
        return ids if end is None else [*ids, end]

    def _behind(self, word: list[int], data: bytes) -> list[int]:
        whole = self.target.written((self.target.said(word) or b"") + data)
        ids = list(whole[len(word) :] if list(whole[: len(word)]) == word else self.target.written(data))
        return ids if self.target.said(ids) == data else []


def _unfinished(said: bytes) -> bool:
    """Whether the bytes end inside a character, which more of them could finish."""
    try:
        said.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return False


def _shared(target: Vocabulary, drafter: Vocabulary) -> dict[int, int]:
    """The drafter's id of each id of the target that is shared."""
    shared = {number: drafter.id_of[said] for said, number in target.id_of.items() if said in drafter.id_of}
    ends = target.end, drafter.end
    if ends[0] in target.specials.values() and ends[1] in drafter.specials.values():
        shared[ends[0]] = ends[1]  # type: ignore[index, assignment]
    for name, number in target.specials.items():
        special = drafter.specials.get(name)
        if special is not None and number not in ends[:1] and special not in ends[1:]:
            shared[number] = special
    return dict(sorted(shared.items()))
