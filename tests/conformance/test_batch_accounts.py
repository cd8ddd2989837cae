"""What a batch learns from its texts and what each of them pays; planted faults of both are caught."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

import sampling.sequence
from egag.cost_model import ASSUMED_COSTS, CostModel
from egag.length_rule import FixedGamma, LengthRule
from sampling.batch import Batch
from sampling.drafter import Drafter, NullDrafter
from sampling.engine import Text
from sampling.forward.sharing import SequenceSlot
from sampling.methods.settings import Settings
from sampling.methods.tables import METHODS
from sampling.pair.pair_engine import PairEngine
from sampling.pair.profile import DraftTimes, LatencyProfile
from sampling.pair.share import shared_runner
from sampling.proposal import Proposal
from sampling.scheduling.live_text import LiveText, Request
from sampling.verify.rejection import RejectionVerifier
from tests.tiny import tiny_pair
from utils.device.sent import sent
from utils.events import Round
from utils.logits_processor import GreedyProcessor

COPIES = DraftTimes(0.0001, 0.0)
STEEP = CostModel(tuple((rows, float(rows)) for rows in range(1, 17)), 1.0, 1.0)


class Listening(NullDrafter):
    """Notes the texts that it learns from, and drafts as many tokens as a prompt begins with."""

    def __init__(self) -> None:
        self.learnt: list[int] = []

    def propose(self, seq: sampling.sequence.Sequence, gamma: LengthRule, limit: int) -> Proposal:
        return Proposal(sent([1] * min(limit, seq.tokens[0]), seq.device))

    def finish(self, seq: sampling.sequence.Sequence) -> None:
        self.learnt.append(seq.tokens[1])


def batch_of(drafter: Drafter, size: int, plain: CostModel = ASSUMED_COSTS) -> Batch:
    made = tiny_pair()
    return Batch(shared_runner(made.target), drafter, lambda: FixedGamma(8), RejectionVerifier(), size, plain=plain)


def admitted(batch: Batch, prompts: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[LiveText]:
    texts = zip(prompts, lengths, strict=True)
    return [batch.admit(Request(list(prompt), GreedyProcessor(), length, 0))[0] for prompt, length in texts]


def played(batch: Batch) -> list[dict[LiveText, Round]]:
    """The rounds until all is told."""
    rounds = []
    while batch.live:
        rounds.append({live: round for live, round in batch.play() if isinstance(round, Round)})
    return rounds


def test_texts_are_learnt_in_the_order_of_the_prompts() -> None:
    """Not in that of their ends."""
    batch = batch_of(drafter := Listening(), 4)
    admitted(batch, [(0, tag, 5) for tag in range(10, 14)], (9, 2, 5, 1))
    played(batch)
    assert drafter.learnt == [10, 11, 12, 13]


def test_nothing_is_learnt_of_a_text_that_is_given_up() -> None:
    batch = batch_of(drafter := Listening(), 3)
    _, second, _ = admitted(batch, [(0, tag, 5) for tag in range(10, 13)], (4, 9, 2))
    batch.play()
    batch.drop(second)
    played(batch)
    assert drafter.learnt == [10, 12]


def test_each_pays_for_its_own_rows() -> None:
    """Of a forward whose price is its rows, who drafts six tokens pays seven times what who drafts none does."""
    batch = batch_of(Listening(), 3, STEEP)
    texts = admitted(batch, [(drafts, 5, 5) for drafts in (0, 2, 6)], (8, 8, 8))
    told = dict(batch.play())
    shares = [live.seq.last.verify_s for live in texts if live.seq.last]
    price = STEEP.among(3)
    parts = [price.verify_s(drafts) for drafts in (0, 2, 6)]
    assert parts[2] > 2 * parts[0], "the price tells them apart"
    assert [share / sum(shares) for share in shares] == pytest.approx([part / sum(parts) for part in parts])
    assert sum(shares) == pytest.approx(next(round.verify_s for round in told.values() if isinstance(round, Round)))


def test_a_round_has_waited_for_the_prompts_since_the_one_before() -> None:
    batch = batch_of(Listening(), 2)
    (first,) = admitted(batch, [(0, 5, 5)], (9,))
    waits = [batch.play()[0][1]]
    admitted(batch, [(0, 6, 5)], (9,))
    waits += [dict(batch.play())[first] for _ in range(3)]
    seconds = [round.waited_s for round in waits if isinstance(round, Round)]
    assert seconds[0] == 0.0 and seconds[1] > 0.0 and seconds[2:] == [0.0, 0.0]


def reused() -> tuple[list[int], list[int]]:
    """The second text of a place that takes over what the first left, and the same text by itself."""
    prompts = ([5, 6, 7, 8, 9], [5, 6, 20, 21, 22])
    texts = []
    for places in ((prompts[0], prompts[1]), (prompts[1],)):
        batch = batch_of(NullDrafter(), 1)
        for prompt in places:
            live, _ = batch.admit(Request(list(prompt), GreedyProcessor(), 8, 0, reuse=99))
            played(batch)
        texts.append(live.seq.tokens[5:])
    return texts[0], texts[1]


def test_a_place_gives_on_what_both_texts_begin_with_and_no_more() -> None:
    after, alone = reused()
    assert after == alone


def test_planted_a_row_too_many_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = SequenceSlot.resume

    def one_more(self: SequenceSlot, tokens: Sequence[int], most: int) -> int:
        same = honest(self, tokens, most)
        if self.held and same < len(tokens):
            self._cache.length = same = same + 1
        return same

    monkeypatch.setattr(SequenceSlot, "resume", one_more)
    after, alone = reused()
    assert after != alone


def test_a_text_of_a_batch_is_told_what_its_rounds_cost() -> None:
    """By the engine's profile, behind a prompt of this length; its rule then has the price among so many."""
    profile = LatencyProfile({128: ((1, 0.02), (3, 0.024), (9, 0.04))}, ((128, 0.3),), 0.001, {"suffix": COPIES})
    engine = PairEngine(replace(tiny_pair(), profile=profile))
    values = {**Settings(), "length": 6}
    expected = METHODS["suffix"].cost_model(profile, values, 3)
    assert expected is not None and expected != ASSUMED_COSTS
    request = engine.request("suffix", values, Text(None, (5, 6, 7), 6))
    assert request.price == expected
    batch = engine.batch("suffix", values, 2)
    live, _ = batch.admit(request)
    assert live.seq.rule.cost_model == expected
    batch.admit(engine.request("suffix", values, Text(None, (5, 6, 8), 6)))
    batch.play()
    assert live.seq.rule.cost_model == expected, "both prompts were read, and nobody had a round"
    batch.play()
    assert live.seq.rule.cost_model == expected.among(2)
