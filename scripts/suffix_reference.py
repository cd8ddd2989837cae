"""Our suffix decoding against arctic-inference's, on streams of requests: equal scores, and drafts that were right.

    uv run --with arctic-inference scripts/suffix_reference.py

Both read the same requests, token by token, with the default parameters. The reference has the running response in its
memory of responses; "held back" is the same reference with each response in it from its end on, as ours.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngram_assisted.suffix_memory import Recollection, ResponseTree
from ngram_assisted.suffix_text import TextTree
from ngram_assisted.suffix_tree import Limits, best_draft

ROOT = Path(__file__).resolve().parents[1]
DEPTH, LIMITS = 64, Limits(budget=10, room=10)
PROMPT, RESPONSE, REQUESTS = 120, 200, 48

Request = tuple[list[int], list[int]]
Drafted = tuple[float, Sequence[int]]


class OurTrees:
    """The two trees of `SuffixDrafter`."""

    def __init__(self) -> None:
        self.memory = ResponseTree(DEPTH)

    def begin(self, number: int, prompt: Sequence[int]) -> None:
        """A request whose prompt is read."""
        self._text, self._earlier = TextTree(DEPTH), Recollection(self.memory)
        self.read(prompt)

    def read(self, tokens: Sequence[int]) -> None:
        """The text goes on."""
        self._text.extend(tokens)
        self._earlier.extend(tokens)

    def draft(self, text: Sequence[int]) -> Drafted:
        """Score and tokens of the better draft."""
        here = best_draft(self._text, LIMITS)
        earlier = best_draft(self._earlier, LIMITS, here.score)
        best = earlier if earlier.tokens else here
        return best.score, best.tokens

    def finish(self, response: Sequence[int]) -> None:
        """The response is whole."""
        self.memory.add(response)


class ReferenceTrees:
    """The two trees of arctic-inference's `SuffixDecodingCache`; held_back: whole responses only are remembered."""

    def __init__(self, held_back: bool) -> None:
        from arctic_inference.suffix_decoding._C import SuffixTree

        self._tree: Callable[[int], Any] = SuffixTree
        self.memory, self._held_back = SuffixTree(DEPTH), held_back

    def begin(self, number: int, prompt: Sequence[int]) -> None:
        """A request whose prompt is read."""
        self._number, self._text = number, self._tree(DEPTH)
        self._text.extend(0, list(prompt))

    def read(self, tokens: Sequence[int]) -> None:
        """The text goes on."""
        self._text.extend(0, list(tokens))
        if not self._held_back:
            self.memory.extend(self._number, list(tokens))

    def draft(self, text: Sequence[int]) -> Drafted:
        """Score and tokens of the better draft."""
        arguments = (list(text[-DEPTH:]), LIMITS.budget, LIMITS.factor, 0.0, LIMITS.min_prob, False)
        here, earlier = self._text.speculate(*arguments), self.memory.speculate(*arguments)
        best = here if here.score >= earlier.score else earlier
        return best.score, best.token_ids

    def finish(self, response: Sequence[int]) -> None:
        """The response is whole."""
        if self._held_back:
            self.memory.extend(self._number, list(response))


@dataclass(slots=True)
class Tally:
    """Places where one of both drafts, those where the scores are equal, and the drafts that each got accepted."""

    places: int = 0
    equal: int = 0
    ours: int = 0
    theirs: int = 0

    def add(self, ours: Sequence[Drafted], theirs: Sequence[Drafted], response: Sequence[int]) -> None:
        """One response, with the drafts of both at each of its places."""
        pairs = [(first[0], other[0]) for first, other in zip(ours, theirs, strict=True) if first[0] or other[0]]
        self.places += len(pairs)
        self.equal += sum(abs(first - other) < 1e-5 for first, other in pairs)
        self.ours += accepted(ours, response)
        self.theirs += accepted(theirs, response)


def accepted(drafts: Sequence[Drafted], response: Sequence[int]) -> int:
    """How many drafts are accepted where the target says this response."""
    place, right = 0, 0
    while place < len(response):
        pairs = list(zip(drafts[place][1], response[place:], strict=False))
        same = next((at for at, (draft, token) in enumerate(pairs) if draft != token), len(pairs))
        right, place = right + same, place + same + 1
    return right


def drafts_of(side: Any, number: int, request: Request) -> list[Drafted]:
    """What one side drafts at each place of the response."""
    prompt, response = request
    text, drafts = list(prompt), []
    side.begin(number, prompt)
    for token in response:
        drafts.append(side.draft(text))
        side.read([token])
        text.append(token)
    side.finish(response)
    return drafts


def ids(text: str) -> list[int]:
    """Words and signs as numbers."""
    names: dict[str, int] = {}
    return [names.setdefault(word, len(names)) for word in re.findall(r"\w+|[^\w ]", text)]


def texts(*patterns: str) -> str:
    """The files of the project that match, one after the other."""
    paths = (path for pattern in patterns for path in sorted(ROOT.glob(pattern)))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def cut(tokens: Sequence[int]) -> list[Request]:
    """Requests from all over a text."""
    step = (len(tokens) - PROMPT - RESPONSE) // REQUESTS
    starts = range(0, step * REQUESTS, step)
    return [(list(tokens[at : at + PROMPT]), list(tokens[at + PROMPT : at + PROMPT + RESPONSE])) for at in starts]


def quoting(tokens: Sequence[int], rng: random.Random) -> Iterator[Request]:
    """Responses of pieces of their prompts, with other words between."""
    for prompt, other in cut(tokens):
        response: list[int] = []
        while len(response) < RESPONSE:
            at, word = rng.randrange(len(prompt) - 20), rng.randrange(len(other))
            response += [*prompt[at : at + rng.randint(5, 20)], *other[word : word + 5]]
        yield prompt, response[:RESPONSE]


def again(tokens: Sequence[int], rng: random.Random) -> Iterator[Request]:
    """The same few requests again and again; one word in ten is another one."""
    few = cut(tokens)[:3]
    for number in range(REQUESTS):
        prompt, response = few[number % len(few)]
        yield prompt, [rng.choice(response) if rng.random() < 0.1 else token for token in response]


def streams() -> dict[str, list[Request]]:
    """Six kinds of requests."""
    rng = random.Random(0)
    prose, code = ids(texts("docs/book/0*.md")), ids(texts("sampling/*.py"))
    return {
        "prose": cut(prose),
        "code": cut(code),
        "tables": cut(ids(texts("docs/results/quick/results.csv"))),
        "quotes of the prompt": list(quoting(prose, rng)),
        "requests again": list(again(prose, rng)),
        "random, 20 tokens": cut([rng.randrange(20) for _ in range(20000)]),
    }


def main() -> None:
    """One line a kind of stream, against the reference as it is and with responses held back."""
    print("| stream | scores equal | accepted drafts, ours / theirs | held back: scores equal | accepted |")
    print("|---|---|---|---|---|")
    for name, requests in streams().items():
        sides = OurTrees(), ReferenceTrees(held_back=False), ReferenceTrees(held_back=True)
        tallies = Tally(), Tally()
        for number, request in enumerate(requests):
            ours, *others = (drafts_of(side, number, request) for side in sides)
            for tally, theirs in zip(tallies, others, strict=True):
                tally.add(ours, theirs, request[1])
        cells = (f"{100 * result.equal / result.places:.0f} % | {result.ours} / {result.theirs}" for result in tallies)
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
