"""Every row of docs/models.md is what its family does now, and the page is the generated one."""

import pytest

from sampling.loading.families.configs import FAMILIES, ModelFamily
from sampling.loading.families.judge import judge
from sampling.loading.families.page import families_without_row, page, rows_of
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "models.md"
TOLD = {(row.family, row.setting): row for row in rows_of(PAGE.read_text(encoding="utf-8"))}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_family_does_what_the_page_says(family: ModelFamily) -> None:
    """After a change: uv run scripts/generate_models.py"""
    assert judge(family) == TOLD.get((family.model_type, family.setting))


def test_the_page_is_the_generated_one() -> None:
    assert not families_without_row(list(TOLD.values()))
    assert page(list(TOLD.values())) == PAGE.read_text(encoding="utf-8")


def test_no_family_stands_there_twice() -> None:
    assert len({str(family) for family in FAMILIES}) == len(FAMILIES)


def test_as_many_families_are_tried_as_are_promised() -> None:
    assert len({family.model_type for family in FAMILIES if family.built}) >= 100
