"""The table of code from other repositories: every row runs, and what it says happens."""

import re
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.docs.pages import ROOT
from tests.tiny import tiny_tokenizer

PAGE = ROOT / "docs" / "api-reference.md"
_ROW = re.compile(r"^\| `(.+?)` \| (?:(works)|`(\w+): (.+?)`) \|", flags=re.MULTILINE)
ROWS = _ROW.findall(PAGE.read_text(encoding="utf-8"))
NAMES = """
from ngram_assisted import NGramStorage, ngram_assisted_speculative_generate
from sampling import autoregressive_generate, beam_search_generate, speculative_generate
from utils.logits_processor import GreedyProcessor, MultinomialProcessor, NucleusProcessor
"""


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the page says is at hand."""
    shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    target, drafter = (LlamaForCausalLM(LlamaConfig(num_hidden_layers=layers, **shape)) for layers in (2, 1))
    ids = [1, 5, 9, 5, 9]
    found = {"target": target, "drafter": drafter, "tokenizer": tiny_tokenizer(), "ids": ids, "torch": torch}
    found["tensor"] = torch.tensor([ids])
    exec(NAMES, found)
    return found


def test_every_row_of_the_table_is_read() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Code from other repositories")[1].split("\n## ")[0]
    assert len(ROWS) == section.count("\n| `") >= 20


@pytest.mark.parametrize(("code", "works", "error", "said"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_does_what_it_says(code: str, works: str, error: str, said: str, names: dict[str, Any]) -> None:
    if works:
        exec(code, dict(names))
        return
    kind = {"ImportError": ImportError, "TypeError": TypeError, "ValueError": ValueError}[error]
    with pytest.raises(kind, match=re.escape(said)) as raised:
        exec(code, dict(names))
    assert "\n" not in str(raised.value)
