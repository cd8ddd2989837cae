"""NASD beside its storage: a rule is asked after each draft."""

import pytest

from egag.draft_distribution import DraftDistribution, Token
from egag.length_rule import FixedGamma
from ngram_assisted.nasd import NgramDrafter
from ngram_assisted.ngram_storage import NGramStorage
from tests.conformance.toy import toy_runner
from tests.sequences import sequence


class StopsBehind(FixedGamma):
    """Stops behind so many drafts, whatever its gamma is."""

    def __init__(self, most: int) -> None:
        super().__init__(6)
        self.most = most

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        return drafted < self.most


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_rule_that_stops_behind_a_draft_is_heard(most: int) -> None:
    drafter, seq = NgramDrafter(NGramStorage(3)), sequence([1, 2, 3, 4, 5] * 3, toy_runner(0))
    drafter.begin(seq)
    proposal = drafter.propose(seq, StopsBehind(most), 9)
    assert proposal.tokens.tolist() == [1, 2, 3, 4, 5][:most]
