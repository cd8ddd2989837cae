"""scripts/verify_strategies.py refuses what it cannot compare, before it loads a model."""

import pytest

from scripts.verify_strategies import refuse_what_judges_otherwise
from tests.refusals import refused


@pytest.mark.parametrize(
    ("methods", "quoted"),
    [
        ("beam", ["beam"]),
        ("drafter", ["drafter"]),
        ("mtp, target", ["target"]),
        ("mtp verify_strategy=greedy", ["verify_strategy", "mtp"]),
        ("mtp accept_policy=accept_all", ["accept_policy", "mtp"]),
    ],
)
def test_what_has_no_drafts_or_its_own_judge_is_refused(methods: str, quoted: list[str]) -> None:
    with refused(*quoted):
        refuse_what_judges_otherwise(methods)


def test_methods_that_draft_are_taken() -> None:
    refuse_what_judges_otherwise("speculative gamma=4, mtp draft_tree=drawn gamma=3, suffix")
