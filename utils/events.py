"""What a decode run tells: frozen records of plain Python values, in the order they happen."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Literal

from utils.errors import UserError

# The source of a round whose drafts a grammar forced.
FORCED = "grammar"

FinishReason = Literal["stop", "length", "context"]


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is in the caches. `prefill_s` covers the target's and the drafter's forwards over it.

    queued_s: in a batch, since the prompt arrived; elsewhere, until it was read. shared: the target's forward was made
    once for several runs, and its seconds are those of then. handed: bytes of the state that came from whoever made it
    elsewhere, in that time, and transfer_s how long handing it over took; None where it was made here. capture_s: that
    capturing graphs took meanwhile, which no other time contains. chunks: in a batch, the forwards that read a part of
    the prompt; None = it was read alone. Then prefill_s is its share, waited_s the rest of the time until it was in.
    prefix_hits: rows of the prompt that the target took from a tree of prefixes, None without one; saved_s: what
    reading them would have taken. drafter_start: the first row of the prompt that the drafter's model or head read
    itself, None where there is no such.
    """

    prompt_tokens: int
    prefill_s: float
    queued_s: float = 0.0
    shared: bool = False
    handed: int | None = None
    transfer_s: float = 0.0
    capture_s: float = 0.0
    waited_s: float = 0.0
    chunks: int | None = None
    prefix_hits: int | None = None
    saved_s: float = 0.0
    drafter_start: int | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One round: what was drafted, what was judged, what was emitted, and where the time went.

    `drafts`, `parents`, `q` and `p` have one entry a draft: its token, the row of its parent (-1 = the
    last committed token; None for a chain), and its probability under the drafter and under the target
    at its place. `path` holds the rows of the accepted drafts, in order. `next_token` is the token the target
    chose after them (None when an accepted stop token ended the text first): a bonus token when nothing was
    rejected, else a recovered one. `position` is the index of the round's first new token in prompt + output;
    the prompt is what an encoder read, where there is one. `entropy` is that of the drafter's raw distribution
    for the first draft, in nats. `draft_s` covers proposing and learning, `verify_s` the target's forward,
    `other_s` the rest (processors, judging, bookkeeping). `inner`: where the drafter model is drafted for itself,
    its own rounds, without times. `source`: who drafted where several drafters take turns, joined by + where they did
    so together, `none` where nobody did; empty where there is only one. `live`: how many sequences shared its forwards;
    the times are then those of all of them. `waited_s`: since the round before, for prompts of others.
    `rollback_s`: of `verify_s`, taking the target's states back. `reread`: tokens that they read or replayed again.
    `grammar_s`: of all of them, the masks of a grammar and its matcher.
    `experts`: by layer that has them, how many its forward woke, of how many, and their seconds, of `verify_s`.
    `capture_s`: that capturing graphs took meanwhile, which no other time contains.

    Example: drafts (5, 7, 9), path (0, 1), next_token 4 -> emitted (5, 7, 4), tested 3, rejected row 2.
    """

    number: int
    position: int
    gamma: int
    drafts: tuple[int, ...]
    parents: tuple[int, ...] | None
    q: tuple[float, ...]
    p: tuple[float, ...]
    path: tuple[int, ...]
    next_token: int | None
    entropy: float | None
    vocab_size: int
    draft_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    inner: tuple["Round", ...] = ()
    source: str = ""
    live: int = 1
    waited_s: float = 0.0
    rollback_s: float = 0.0
    reread: int = 0
    experts: tuple[tuple[int, int, float], ...] = ()
    grammar_s: float = 0.0
    capture_s: float = 0.0

    def timed(self, seconds: Mapping[str, float], live: int | None = None, waited_s: float | None = None) -> "Round":
        """The same with the time of its phases; live, waited_s: of a batch, None = as they are."""
        values = list(_VALUES(self))
        values[_TIMES] = seconds["draft"], seconds["verify"], seconds["other"]
        values[_CAPTURE] = seconds["capture"]
        if live is not None:
            values[_LIVE] = live
        if waited_s is not None:
            values[_WAITED] = waited_s
        return Round(*values)

    @property
    def accepted(self) -> int:
        """Drafts that were accepted and emitted."""
        return len(self.path)

    @property
    def depth(self) -> int:
        """Drafts on its longest path: all of a chain, the levels of a tree."""
        if self.parents is None:
            return len(self.drafts)
        levels: list[int] = []
        for parent in self.parents:
            levels.append(1 if parent < 0 else levels[parent] + 1)
        return max(levels, default=0)

    @property
    def tested(self) -> int:
        """Positions at which drafts were judged: each accepted one, and the one at which none was.

        A position counts once, however many drafts of a tree stand at it.
        """
        return self.accepted + (self.rejected is not None)

    @property
    def emitted(self) -> tuple[int, ...]:
        """The round's new tokens: the accepted drafts, then the target's own."""
        kept = tuple(self.drafts[row] for row in self.path)
        return kept if self.next_token is None else (*kept, self.next_token)

    @property
    def rejected(self) -> int | None:
        """Row of the draft that was rejected last, where the accepted path ends; None after a bonus token."""
        if self.next_token is None:
            return None
        last = self.path[-1] if self.path else -1
        parents = range(-1, len(self.drafts) - 1) if self.parents is None else self.parents
        return max((row for row, parent in enumerate(parents) if parent == last), default=None)


_NAMES = [field.name for field in fields(Round)]
_VALUES = attrgetter(
    *_NAMES
)  # dataclasses.replace looks for every field by name, which a batch would pay for each of its texts
_TIMES = slice(_NAMES.index("draft_s"), _NAMES.index("other_s") + 1)
_LIVE, _WAITED, _CAPTURE = (_NAMES.index(name) for name in ("live", "waited_s", "capture_s"))


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A text that a search found: its new ids, ln p of them after the prompt, and what it is ranked by."""

    tokens: tuple[int, ...]
    log_prob: float
    score: float


@dataclass(frozen=True, slots=True)
class BeamRound:
    """One round of a beam search: every live beam has one more token, some have ended.

    `emitted` are the new tokens that no later round can change: all texts that may still win have them in
    common. There may be none, or many at once. `beams` are the live texts, most likely first, `found` the
    ended ones that are kept, best score first. `verify_s` covers the target's forward, `other_s` the choice.
    `capture_s`: see `Round`.
    """

    number: int
    emitted: tuple[int, ...]
    beams: tuple[Hypothesis, ...]
    found: tuple[Hypothesis, ...]
    verify_s: float = 0.0
    other_s: float = 0.0
    capture_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a run: why, how many tokens it made, and what a search found, best score first.

    preempted: how often its rows were given up in a batch of bounded memory, and read again; None elsewhere.
    """

    reason: FinishReason
    new_tokens: int
    hypotheses: tuple[Hypothesis, ...] = ()
    preempted: int | None = None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What an engine says of the rounds of one answer; what it does not say is None.

    rounds: forwards of the target that emitted tokens, the one over the prompt's last token included.

    drafted, accepted: drafts proposed, and drafts that were kept and emitted. hist: entry i counts the rounds that
    accepted i drafts. by_round: (accepted, drafted) of each round, in order.
    """

    rounds: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    hist: tuple[int, ...] | None = None
    by_round: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def none(cls, new_tokens: int) -> "Acceptance":
        """Of plain decoding: a round a token, no drafts."""
        return cls(new_tokens, 0, 0, (new_tokens,), ((0, 0),) * new_tokens)

    @property
    def tested(self) -> int | None:
        """Positions judged: each accepted draft, and in a round with drafts left the one that was rejected."""
        if self.by_round is None:
            return None
        return sum(accepted + (accepted < drafted) for accepted, drafted in self.by_round)


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """A whole answer of an engine that does not tell its rounds as they are played.

    ttft_s, wall_s: from asking until its first tokens, `first` of them, and its last were there. queued_s: from the
    prompt's arrival until it was asked.
    """

    prompt_tokens: int
    output_ids: tuple[int, ...]
    reason: FinishReason
    ttft_s: float
    wall_s: float
    first: int
    acceptance: Acceptance
    queued_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FailedText:
    """One of many texts has no answer, and why; the others go on."""

    error: str

    @classmethod
    def of(cls, error: Exception) -> "FailedText":
        """What a person is told of an error; of a bug its kind, too."""
        return cls(str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}")


AnyRound = Round | BeamRound
Event = Prefilled | AnyRound | Finished | WholeAnswer | FailedText
