"""Every row of docs/models.md is what its family does now, and the page is the generated one."""

from dataclasses import replace

import pytest
import torch

from sampling.forward.kernels import probe
from sampling.forward.kernels.linear import PackedLinear
from sampling.loading.families.configs import FAMILIES, ModelFamily
from sampling.loading.families.judge import judge
from sampling.loading.families.page import families_without_row, page, rows_of
from sampling.proof.families import invariance_of
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "models.md"
TOLD = {(row.family, row.setting): row for row in rows_of(PAGE.read_text(encoding="utf-8"))}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_family_does_what_the_page_says(family: ModelFamily) -> None:
    """After a change: uv run scripts/generate_models.py"""
    told = TOLD.get((family.model_type, family.setting))
    assert told is not None and judge(family) == replace(told, invariant="")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_batch_invariance_is_tried_operation_by_operation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not probe.packs(torch.float32) or not probe.packs(torch.bfloat16):
        pytest.skip("torch has no oneDNN here")
    family = next(one for one in FAMILIES if one.model_type == name and not one.setting)
    assert invariance_of(family) == "both"
    product = PackedLinear.product
    monkeypatch.setattr(PackedLinear, "product", lambda self, x: product(self, x) * (1 + (len(x) > 4) * 2.0**-18))
    assert invariance_of(family).startswith("float32: `")


def test_the_page_is_the_generated_one() -> None:
    assert not families_without_row(list(TOLD.values()))
    assert page(list(TOLD.values())) == PAGE.read_text(encoding="utf-8")


def test_no_family_stands_there_twice() -> None:
    assert len({str(family) for family in FAMILIES}) == len(FAMILIES)


def test_as_many_families_are_tried_as_are_promised() -> None:
    assert len({family.model_type for family in FAMILIES if family.built}) >= 100
