"""Targets in rounded formats through the same suite: greedy output is AR's on the same weights, and no tie is excused.

Rows of such a target may not depend, in one bit, on what is fed with them, so that every way of drafting meets every
format: each feeds other rows. Rules and verifiers only decide how many: the first drafter of each form meets them.
"""

from collections.abc import Iterator
from functools import cache

import pytest
import torch

from sampling.forward.kernels import int4, int8
from sampling.forward.kernels.formats import FORMATS, Format
from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner, prefill
from sampling.methods.rules import CHOOSERS
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.proof.faults import batch_wide
from sampling.proposal import Proposal
from tests.conformance import suite
from tests.conformance.matrix import case, cut_drafters, greedy_combinations, trait, ways
from tests.conformance.toy import VOCAB
from tests.heads import CachingPair, random_heads
from tests.tiny import llama, random_model
from utils.events import Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor

pytestmark = pytest.mark.skipif(not (int8.runs() and int4.runs()), reason="this CPU or torch lacks the products")
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 96, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 6, "head_dim": 16, "max_position_embeddings": 256,
}  # fmt: skip
ROUNDED = [name for name, format in FORMATS.items() if format.batch_invariant]
# The second one's answer crosses lengths at which sums of many numbers are split otherwise.
PROMPTS = ((1, 4, 2, 0), tuple((place * place + place // 5) % VOCAB for place in range(180)))
LENGTH = 16
Combination = tuple[str, str, str]


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Each has memory of its own, and a row must not depend on whose it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@cache
def rounded_pair(name: str) -> Pair:
    """The pair of a format, made once: a run begins with empty rows."""
    return made_pair(FORMATS[name])


def made_pair(format: Format) -> Pair:
    """A target in a format, and a drafter that agrees with it often and not always."""
    target = lean.from_transformers(random_model(llama(**SIZES)), format=format)
    drafter = lean.from_transformers(random_model(llama(**SIZES), noise=0.05))
    info = ModelInfo("tiny", "cpu", "float32")
    heads = random_heads(96, 2, 256, tuple(range(VOCAB)), VOCAB)
    runners = ModelRunner(target), ModelRunner(drafter)
    return CachingPair(*runners, None, frozenset(), info, info, heads=heads, drafter_heads=heads)  # type: ignore[arg-type]


@cache
def reference(name: str, prompt: tuple[int, ...]) -> list[int]:
    """AR by hand, every token of prompt and answer fed alone."""
    runner, said = rounded_pair(name).target.another(), list[int]()
    for token in prompt[:-1]:
        runner.forward([token])
    for _ in range(LENGTH):
        said.append(int(runner.forward([said[-1] if said else prompt[-1]]).logits[0].argmax()))
    return said


def check_greedy(name: str, combination: Combination, pair: Pair) -> None:
    for prompt in PROMPTS:
        events = suite.run(case(*combination), pair, GreedyProcessor(), LENGTH, prompt=prompt)
        assert suite.output(events) == reference(name, prompt), f"{combination} on {name}"


FORMS = cut_drafters(every_form=True)
DRAWN = [name for name in FORMS if any(drawn for _, drawn in trait(name).forms)]


def picked() -> Iterator[tuple[str, Combination]]:
    """Every way of drafting on every format; on one of them every rule and verifier, by the forms in turn."""
    first = {drafter: (drafter, rule, judge) for drafter, rule, judge in reversed(greedy_combinations())}
    yield from ((name, first[drafter]) for drafter in ways() for name in ROUNDED)
    others = [one for one in greedy_combinations() if one[0] in FORMS and one != first[one[0]]]
    for part in (1, 2):
        usual = {one[part] for one in first.values()}
        for turn, wanted in enumerate(dict.fromkeys(one[part] for one in others if one[part] not in usual)):
            meeting = [one for one in others if one[part] == wanted]
            yield ROUNDED[0], meeting[turn % len(meeting)]


def test_every_way_of_drafting_is_picked_on_every_format_and_every_rule_and_verifier_on_one() -> None:
    for name in ROUNDED:
        assert {one[0] for format, one in picked() if format == name} == set(ways())
    for part in (1, 2):
        assert {one[part] for _, one in picked()} == {one[part] for one in greedy_combinations()}
    assert len({one[0] for format, one in [*picked()][len(ROUNDED) * len(ways()) :]}) > 2, "chains, trees and copies"


@pytest.mark.parametrize(
    ("name", "combination"), list(picked()), ids=lambda one: one if isinstance(one, str) else "-".join(one)
)
def test_greedy_output_is_that_of_autoregression(name: str, combination: Combination) -> None:
    check_greedy(name, combination, rounded_pair(name))


@pytest.mark.parametrize("drafter", DRAWN[:2])
@pytest.mark.parametrize("name", ROUNDED)
def test_sampled_output_has_the_targets_distribution(name: str, drafter: str) -> None:
    suite.check_distribution(case(drafter), rounded_pair(name), MultinomialProcessor(1.0), runs=150)


@pytest.mark.parametrize("drafter", FORMS)
@pytest.mark.parametrize("name", ROUNDED)
def test_drafts_are_judged_by_the_probabilities_of_autoregression(name: str, drafter: str) -> None:
    """Bit for bit: with these, the law of what is sampled is that of the verifier, which other tests prove."""
    pair, processor = rounded_pair(name), MultinomialProcessor(1.0)
    text = list(PROMPTS[1])
    for event in suite.run(case(drafter), pair, processor, LENGTH, prompt=PROMPTS[1]):
        if isinstance(event, Round):
            assert event.p == alone(ModelRunner(pair.target.model), text, event, processor)
            text += event.emitted


def alone(runner: ModelRunner, text: list[int], round: Round, processor: LogitsProcessor) -> tuple[float, ...]:
    """The probabilities of a round's drafts from rows that are fed one by one behind the text."""
    parents = Proposal(torch.tensor(round.drafts), round.parents).parent_rows
    prefill(runner, text[:-1])
    found = []
    for token, parent in zip(round.drafts, parents, strict=True):
        path = list[int]()
        while parent >= 0:
            path.insert(0, round.drafts[parent])
            parent = parents[parent]
        runner.crop(len(text) - 1)
        rows = [runner.forward([one]).logits for one in (text[-1], *path)]
        found.append(float(processor(rows[-1])[0, token]))
    return tuple(found)


@pytest.mark.parametrize("drafter", [name for name in FORMS if name not in CHOOSERS][::2])
@pytest.mark.parametrize("name", ROUNDED)
def test_one_scale_over_all_rows_is_caught(name: str, drafter: str) -> None:
    """A planted fault, on chains and on trees."""
    with pytest.raises(AssertionError, match="on "):
        check_greedy(name, (drafter, "fixed", "rejection"), made_pair(batch_wide(batch_invariant=True)))
