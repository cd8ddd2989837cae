"""Rules cut what was not drawn before it is verified: copies, and the nodes of trees."""

from collections.abc import Sequence

import pytest
import torch

from egag.length_rule import FixedGamma
from egag.truncation import Truncation
from sampling.drafter import proposal_of
from sampling.forward.runner import prefill
from tests.conformance.matrix import build_drafter
from tests.conformance.toy import PROMPT, toy_pair
from tests.sequences import sequence

TEXT = [*PROMPT, *PROMPT, *PROMPT]


class Keeping(FixedGamma, Truncation):
    """Has only so many of the drafts verified that were not drawn, and tells what it was asked with."""

    def __init__(self, most: int) -> None:
        super().__init__(6)
        self.most = most
        self.asked: list[tuple[tuple[float, ...], int]] = []

    @property
    def truncation(self) -> Truncation:
        return self

    def truncate(self, chances: Sequence[float], match: int = 0, parents: Sequence[int] | None = None) -> int:
        self.asked.append((tuple(chances), match))
        return min(self.most, len(chances))


@pytest.mark.parametrize(
    "name",
    [
        "prompt_lookup",
        "suffix",
        "suffix tree",
        "ngram",
        "recycling",
        "logitspec",
        "mtp dynamic tree",
        "medusa static tree",
    ],
)
def test_no_more_is_proposed_than_the_rule_keeps(name: str) -> None:
    pair = toy_pair()
    drafter = build_drafter(name, pair)
    counts = []
    for most in (6, 2, 0):
        seq = sequence([*TEXT], pair.target, prompt_length=len(TEXT))
        with torch.inference_mode():
            seq.hidden = prefill(pair.target, TEXT[:-1], drafter.needs_hidden)
        rule = Keeping(most)
        drafter.begin(seq)
        counts.append(len(proposal_of(drafter.propose(seq, rule, 6))))
        (chances, _) = rule.asked[-1]
        assert list(chances) == sorted(chances, reverse=True) and all(0.0 < chance <= 1.0 for chance in chances)
    assert counts[0] > 2 and counts[1:] == [2, 0]


@pytest.mark.parametrize(("name", "match"), [("prompt_lookup", 3), ("suffix", 4)])
def test_a_copy_is_told_with_the_length_of_its_match(name: str, match: int) -> None:
    """Three tokens at most are looked up; the trees take the four that were followed by the same four twice."""
    pair = toy_pair()
    drafter, rule = build_drafter(name, pair), Keeping(6)
    seq = sequence([*TEXT], pair.target, prompt_length=len(TEXT))
    drafter.begin(seq)
    proposal_of(drafter.propose(seq, rule, 6))
    assert rule.asked[-1][1] == match


def test_of_a_hybrid_only_the_copied_part_is_cut() -> None:
    pair = toy_pair()
    drafter, rule = build_drafter("extended", pair), Keeping(0)
    seq = sequence([*TEXT], pair.target, prompt_length=len(TEXT))
    drafter.begin(seq)
    assert len(proposal_of(drafter.propose(seq, rule, 6))) == 2
