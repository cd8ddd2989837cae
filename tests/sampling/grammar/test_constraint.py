"""A text under a grammar: masks along paths, what cannot be continued, tokenizers that cannot be read."""

import json
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from sampling.api.compare import compare
from sampling.grammar.matching import Matching
from sampling.grammar.spelling import read_grammar
from sampling.grammar.vocabulary import vocabulary_of
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.methods.choices import make_processor
from sampling.methods.settings import PARAMETERS
from sampling.pair.processing import processor_of
from sampling.processors.with_text import changes_of
from sampling.proposal import Proposal
from tests.conformance import suite
from tests.conformance.matrix import case
from tests.conformance.toy import SHORT, toy_pair
from tests.grammars import END, GRAMMARS, TOKENS, mask_of, toy_vocabulary, under
from tests.refusals import refused
from tests.tiny import tiny_pair, tiny_tokenizer
from utils.errors import CannotContinue
from utils.logits_processor import GreedyProcessor, MultinomialProcessor
from utils.text import quoted

PET = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["cat", "dog"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_walk_to_and_fro_finds_the_masks_of_a_matcher_that_was_never_moved(name: str) -> None:
    rng, walk = np.random.default_rng(0), Matching(toy_vocabulary(), read_grammar(GRAMMARS[name]), len(TOKENS))
    committed: list[int] = []
    for _ in range(60):
        path: list[int] = []
        for _ in range(rng.integers(0, 4)):
            allowed = np.flatnonzero(mask_of(GRAMMARS[name], [*committed, *path]))
            path.append(int(rng.choice(allowed)))
            if path[-1] == END:
                break
        mask = walk.mask(path)
        if END in path:
            continue
        assert mask is not None and (mask == mask_of(GRAMMARS[name], [*committed, *path])).all()
        assert walk.mask([*path, END if not mask[END] else 99]) is None
        if path and rng.random() < 0.2:
            committed.append(path[0])
            walk.bring_up_to(committed)


def test_behind_the_end_only_the_end_may_follow() -> None:
    walk = Matching(toy_vocabulary(), "regex:ab", len(TOKENS))
    for path in ([2], [2, END], [2, END, END]):
        assert np.flatnonzero(walk.mask(path)).tolist() == [END]
    walk.bring_up_to([2, END, END])
    assert np.flatnonzero(walk.mask()).tolist() == [END] and not walk.forced(4)


def test_the_mask_has_the_last_word_and_comes_before_the_temperature() -> None:
    changes = changes_of(under("regex:c+", MultinomialProcessor(0.5)), [1], 6, torch.device("cpu"), (END,))
    assert changes is not None
    rows = changes.of_round([1], Proposal(torch.tensor([3, 0])), torch.randn(3, 6).half())
    assert rows.dtype == torch.float32
    allowed = [(row > float("-inf")).nonzero().squeeze(-1).tolist() for row in rows]
    assert allowed == [[3], [3, END], [0, 1, 2, 3, 4, END]]  # the last row stands behind a forbidden draft


def test_a_text_without_a_token_left_is_an_error_of_its_own() -> None:
    processor = under("regex:(a|b)c", make_processor(PARAMETERS["processor"].parse("greedy banned=3")))
    for drafter in ("none", "model", "point tree"):
        with refused("grammar", error=CannotContinue):
            suite.run(case(drafter), toy_pair(stop=frozenset({END})), processor, 6, 0, SHORT)


def test_a_verifier_that_accepts_what_is_forbidden_is_an_error() -> None:
    walk = Matching(toy_vocabulary(), "regex:ab", len(TOKENS))
    with refused("token 3", error=CannotContinue):
        walk.bring_up_to([3])


def test_a_tokenizer_that_cannot_be_read_is_refused_by_name() -> None:
    class SlowTokenizer:
        eos_token_id = 0

        def __len__(self) -> int:
            return 4

    with refused("SlowTokenizer", "off"):
        vocabulary_of(SlowTokenizer(), 4, frozenset({0}))
    endless = tiny_tokenizer()
    endless.eos_token = None
    with refused(type(endless).__name__):
        vocabulary_of(endless, 300, frozenset())


def test_more_logits_than_tokens_are_masked() -> None:
    pair = tiny_pair()
    vocabulary = vocabulary_of(pair.tokenizer, 300, pair.stop)
    mask = Matching(vocabulary, "regex:.*", 300).mask()
    assert mask is not None and mask[:260].any() and not mask[len(pair.tokenizer) :].any()


def test_beams_take_no_grammar() -> None:
    with refused("beam", "off"):
        compare(tiny_pair(), "a", ["beam"], grammar="json", length=4)


def test_a_greedy_processor_stays_greedy() -> None:
    greedy = PARAMETERS["processor"].parse("greedy")
    assert processor_of(tiny_pair(), greedy, "json").greedy
    assert type(processor_of(tiny_pair(), greedy)) is GreedyProcessor


@pytest.fixture(scope="module")
def embedded() -> Any:
    return load_pair(LoadOptions(dtype="float32"))


@pytest.mark.parametrize("processor", ["greedy", "nucleus 0.8 0.9"])
def test_answers_of_the_default_model_are_what_the_schema_says(embedded: Any, processor: str) -> None:
    methods = ("speculative", "suffix", "grammar_drafts", "auto") if processor == "greedy" else ("grammar_drafts",)
    settings = {"length": 48, "grammar": PET, "processor": processor, "seed": 7}
    runs = compare(embedded, "Describe a pet.", methods, **settings)
    for name, run in runs.items():
        jsonschema.validate(json.loads(run.text), PET)
        assert processor != "greedy" or run.text == runs["target"].text, quoted(name)
    assert runs["grammar_drafts"].metrics.forced and runs["grammar_drafts"].metrics.accepted
    assert runs["grammar_drafts"].metrics.rounds < runs["target"].metrics.rounds
