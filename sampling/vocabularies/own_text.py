"""One text in the drafter's own tokens, and the rows of its cache that hold them."""

from collections.abc import Sequence
from itertools import takewhile

from torch import Tensor

from sampling.forward.requests import StepGenerator
from sampling.forward.runner import Runner, prefill, request_forward
from sampling.vocabularies.crossing import Crossing

# Tokens after which a word that has no end is cut, as in scripts without spaces.
_LONGEST = 32


class OwnText:
    """What the drafter reads of a sequence: its text, word by word as the drafter's tokenizer writes it.

    A word begins at a token that says a space first, and behind a special token. Words that are whole do not change
    any more; the last one is written anew as it grows. slot: the rows of the drafter's cache.
    """

    def __init__(self, slot: Runner, crossing: Crossing) -> None:
        self.slot, self._crossing = slot, crossing
        self._ids, self._whole = list(crossing.drafter.begins), 0
        self._held: list[int] = []

    def begin(self, tokens: Sequence[int]) -> None:
        """Feed all that is read of a prompt but its last token, and as much as there is room for."""
        self._held = self.ids(tokens)[:-1][: self.slot.window]
        prefill(self.slot, self._held)

    def word(self, tokens: Sequence[int]) -> Sequence[int]:
        """The target's ids of the word that is not whole yet; `ids` was asked for these tokens."""
        return tokens[self._whole :]

    def ids(self, tokens: Sequence[int]) -> list[int]:
        """The text in the drafter's ids, never empty. tokens: the target's, as many as the last time or more."""
        words = list(_words(self._crossing, tokens[self._whole :]))
        for word in words[:-1] if words and not self._closed(words[-1]) else words:
            self._ids += self._written(word)
            self._whole += len(word)
        ids = [*self._ids, *self._written(tokens[self._whole :])]
        return ids or [self._crossing.drafter.end or 0]

    def room(self, tokens: Sequence[int]) -> int:
        """How many of the drafter's tokens fit behind the text."""
        return self.slot.window - len(self.ids(tokens))

    def request_catch_up(self, tokens: Sequence[int]) -> StepGenerator[Tensor]:
        """Logits `[1, V]` of the drafter's vocabulary behind the text: of its cache stays what it begins with."""
        ids = self.ids(tokens)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._held, ids[:-1], strict=False)))
        self.slot.crop(min(self.slot.length, same))
        self._held = ids
        return (yield from request_forward(self.slot, ids[self.slot.length :], rows=1)).logits

    def feed(self, ids: Tensor) -> StepGenerator[Tensor]:
        """Logits `[k, V]` behind k more of the drafter's ids `[k]`."""
        return (yield from request_forward(self.slot, ids)).logits

    def keep(self, accepted: Sequence[int]) -> None:
        """Of what was fed behind the text, only these ids of the drafter count, as far as they were fed."""
        fed = max(0, self.slot.length - len(self._held))
        self._held = [*self._held, *accepted[:fed]]
        self.slot.crop(min(self.slot.length, len(self._held)))

    @property
    def _at_begin(self) -> bool:
        """Whether nothing of the text is read yet."""
        return len(self._ids) == len(self._crossing.drafter.begins)

    def _closed(self, word: Sequence[int]) -> bool:
        return self._crossing.target.says[word[0]] is None or len(word) == _LONGEST

    def _written(self, word: Sequence[int]) -> Sequence[int]:
        target, drafter = self._crossing.target, self._crossing.drafter
        if not word:
            return ()
        said = target.said(word)
        if said is not None:
            return drafter.written(said, self._at_begin)
        (number,) = word
        if number in self._crossing.own_of:
            return (self._crossing.own_of[number],)
        if self._at_begin and drafter.begins:
            return ()  # each has a begin of a text of its own
        return drafter.written(
            next((name for name, special in target.specials.items() if special == number), "").encode()
        )


def _words(crossing: Crossing, tokens: Sequence[int]) -> list[list[int]]:
    """Tokens by words; a special token, and a row without a token, stands alone."""
    words: list[list[int]] = []
    for number in tokens:
        said = crossing.target.says[number]
        new = not words or said is None or said[:1].isspace() or len(words[-1]) == _LONGEST
        if new or crossing.target.says[words[-1][0]] is None:
            words.append([])
        words[-1].append(number)
    return words
