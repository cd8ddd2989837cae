"""What a run was: counts, times and the rates that follow from them. Definitions in docs/metrics.md."""

from dataclasses import dataclass
from itertools import chain, repeat

from sampling.measure.counts import RunCounts
from sampling.measure.untold import untold


@dataclass(slots=True)
class RunMetrics(RunCounts):
    """The account of one generation with what follows from it; feed it every event (`add`), read it at any time.

    prefilled: how its prompt was read. queued_s: before that; waited_s: after that, for prompts of others and, while
    its own was read, for their rounds. gaps_s: from each round to the next. live_sum: sequences that shared a round,
    over all rounds. Rates are None where nothing was drafted or no time has passed: unknown is not zero. So is the
    speed of a search that is not over, for how many tokens its rounds will have made is not known.
    """

    @property
    def decode_s(self) -> float:
        """All rounds; of an engine's answer all behind its first tokens."""
        if self.answered:
            return self.answered.wall_s - self.answered.ttft_s
        return self.draft_s + self.verify_s + self.other_s

    @property
    def ttft_s(self) -> float:
        """Until the first token is there: prefill, handing it over, first round; of a search until one is settled."""
        return self.answered.ttft_s if self.answered else self._begun_s + self.first_round_s

    @property
    def wall_s(self) -> float:
        """From its admission to its end, with captures; what a consumer does between events is not in it."""
        if self.answered:
            return self.answered.wall_s
        return self._read_s + self.decode_s + self.waited_s + self.capture_s

    @property
    def _begun_s(self) -> float:
        """Until its rounds could begin: the prompt was read, and what that left was here."""
        return self._read_s + (self.prefilled.waited_s if self.prefilled else 0.0)

    @property
    def _read_s(self) -> float:
        """Its own part of that."""
        return self.prefill_s + (self.prefilled.transfer_s if self.prefilled else 0.0)

    @property
    def prefill_shared(self) -> bool | None:
        """Whether the target read the prompt once for this run and others."""
        return self.prefilled.shared if self.prefilled else None

    @property
    def prefill_chunks(self) -> int | None:
        """In a batch, the forwards that read a part of its prompt; None where it was read alone."""
        return self.prefilled.chunks if self.prefilled else None

    @property
    def kv_bytes(self) -> int | None:
        """Bytes of a prefilled state that was handed over; None where the prompt was read here."""
        return self.prefilled.handed if self.prefilled else None

    @property
    def kv_transfer_ms(self) -> float | None:
        """How long that took."""
        return None if self.prefilled is None or self.prefilled.handed is None else self.prefilled.transfer_s * 1e3

    @property
    def prefix_hits(self) -> int | None:
        """Rows of the prompt that the target took from the prefix cache; None without one."""
        return self.prefilled.prefix_hits if self.prefilled else None

    @property
    def prefill_saved_ms(self) -> float | None:
        """What reading these would have taken, by the fastest reading of a prompt so far a row."""
        return None if self.prefix_hits is None or self.prefilled is None else self.prefilled.saved_s * 1e3

    @property
    def shared(self) -> bool:
        """Whether any of its rounds was one of others too: then no phase of it is its own."""
        return self.live_sum > self.rounds

    @property
    def opaque(self) -> bool:
        """Whether no phase of its rounds is known as its own."""
        return self.shared or self.answered is not None

    @property
    def unknown(self) -> frozenset[str]:
        """Names of what is not known of it, and not 0."""
        return frozenset() if self.answered is None else untold(self.answered.acceptance)

    @property
    def live_rows(self) -> float | None:
        """Sequences that shared a round with it, itself included."""
        return None if self.searches else _ratio(self.live_sum, self.rounds)

    @property
    def tpot_ms(self) -> float | None:
        """Time a token behind the first one, waiting included; None for one token."""
        return (
            None if self._searching else _ratio((self.wall_s - self.capture_s - self.ttft_s) * 1e3, self.new_tokens - 1)
        )

    @property
    def tokens_per_s(self) -> float | None:
        """New tokens a second of decoding; of an engine's answer those behind the first."""
        first = self.answered.first if self.answered else 0
        return None if self._searching else _ratio(self.new_tokens - first, self.decode_s)

    @property
    def e2e_tokens_per_s(self) -> float | None:
        return None if self._searching else _ratio(self.new_tokens, self.wall_s)

    @property
    def _searching(self) -> bool:
        return self.searches and self.finish_reason is None

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted."""
        return _ratio(self.accepted, self.drafted)

    @property
    def alpha(self) -> float | None:
        """accepted / tested: the share of the judged positions at which a draft was taken, on chains and on trees."""
        return _ratio(self.accepted, self.tested)

    @property
    def tokens_per_round(self) -> float | None:
        """Emitted tokens a round, the target's own included; 1.00 for plain autoregression, None for a search."""
        return None if self.searches else _ratio(self.new_tokens, self.rounds)

    @property
    def accept_hist(self) -> list[int]:
        """Rounds by number of accepted drafts: entry i counts the rounds that accepted i."""
        return [self.accepted_counts[i] for i in range(max(self.accepted_counts, default=-1) + 1)]

    @property
    def tested_at(self) -> list[int]:
        """Rounds that judged drafts at position i, for i = 1, 2, ...; `tested` is their sum."""
        return [self.tested_counts[i] for i in range(1, max(self.tested_counts, default=0) + 1)]

    @property
    def accepted_at(self) -> list[int]:
        """Rounds that accepted at least i drafts, for i = 1, 2, ..."""
        hist = self.accept_hist
        return [sum(hist[i:]) for i in range(1, len(hist))]

    @property
    def conditional_acceptance(self) -> list[float]:
        """By position i = 1, 2, ...: accepted at i / tested at i."""
        accepted = chain(self.accepted_at, repeat(0))
        return [kept / tested for kept, tested in zip(accepted, self.tested_at, strict=False)]

    @property
    def inner_rounds(self) -> int | None:
        """Forwards of a drafter model that is drafted for itself; None for every other drafter."""
        return len(self.inner) or None

    @property
    def inner_tested(self) -> int | None:
        """Positions at which those forwards judged drafts."""
        return sum(inner.tested for inner in self.inner) if self.inner else None

    @property
    def inner_accepted(self) -> int | None:
        """Drafts that they accepted."""
        return sum(inner.accepted for inner in self.inner) if self.inner else None

    @property
    def rounds_by_drafter(self) -> str | None:
        """Who drafted in how many rounds, where several drafters take turns: `mtp 40, none 3`, the most first."""
        return ", ".join(f"{name} {count}" for name, count in self.sources.most_common()) or None

    @property
    def mean_gamma(self) -> float | None:
        return None if self.searches else _ratio(self.gamma_sum, self.rounds)

    @property
    def score(self) -> float | None:
        """What a search ranked its answer by; None where nothing was searched, or not to the end."""
        return self.hypotheses[0].score if self.hypotheses else None

    @property
    def token_ms(self) -> float | None:
        """Decoding time a token."""
        return None if self._searching else _ratio(self.decode_s * 1e3, self.new_tokens)

    @property
    def mean_entropy(self) -> float | None:
        """Mean entropy (nats) of the drafter's raw distribution for the first draft of a round."""
        return _ratio(sum(self.entropies), len(self.entropies))

    @property
    def mean_normalised_entropy(self) -> float | None:
        """The same, divided by ln V: what EGAG reads."""
        return _ratio(sum(self.normalised_entropies), len(self.normalised_entropies))

    def per_round_ms(self, seconds: float) -> float | None:
        """A total in seconds as milliseconds a round; None where no phase is its own."""
        return None if self.opaque else _ratio(seconds * 1e3, self.rounds)

    @property
    def draft_ms(self) -> float | None:
        return self.per_round_ms(self.draft_s)

    @property
    def verify_ms(self) -> float | None:
        return self.per_round_ms(self.verify_s)

    @property
    def other_ms(self) -> float | None:
        return self.per_round_ms(self.other_s)

    @property
    def rollback_ms(self) -> float | None:
        """Of `verify_ms`: saving, restoring and replaying states, and reading again by forwards of their own."""
        return self.per_round_ms(self.rollback_s)

    @property
    def forced(self) -> int | None:
        """Drafts that a grammar forced; None where no grammar was followed."""
        return self.forced_drafts if self.grammar_s else None

    @property
    def grammar_ms(self) -> float | None:
        """Of all phases: the masks of a grammar and its matcher; None where none was followed."""
        return self.per_round_ms(self.grammar_s) if self.grammar_s else None

    @property
    def experts_per_round(self) -> float | None:
        """Different experts of a layer that a round's rows woke, mean over layers and rounds."""
        return _ratio(self.experts_awake, self.expert_layers)

    @property
    def experts_ms(self) -> float | None:
        """Of `verify_ms`: experts and their router."""
        return self.per_round_ms(self.experts_s) if self.expert_layers else None

    @property
    def expert_share(self) -> float | None:
        """The same as a share of all experts."""
        return _ratio(self.experts_awake, self.experts_there)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
