"""scripts/verify_strategies.py refuses what it cannot compare, before it loads a model."""

import pytest

from scripts.verify_strategies import refuse_what_judges_otherwise
from utils.errors import UserError


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ("beam", "beam given, which has no drafts to judge; expected a method that drafts"),
        ("drafter", "drafter given, which has no drafts"),
        ("mtp, target", "target given, which has no drafts"),
        ("mtp verify_strategy=greedy", "verify_strategy given with mtp; all strategies are asked here, leave it out"),
        ("mtp accept_policy=accept_all", "accept_policy given with mtp"),
    ],
)
def test_what_has_no_drafts_or_its_own_judge_is_refused(methods: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        refuse_what_judges_otherwise(methods)


def test_methods_that_draft_are_taken() -> None:
    refuse_what_judges_otherwise("speculative gamma=4, mtp draft_tree=drawn gamma=3, suffix")
