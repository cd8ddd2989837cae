"""Every drafter that copies, with its defaults and with each parameter changed, drafts what it drafted before."""

import random
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import torch

from egag.length_rule import DraftBudget
from egag.survival import SurvivalGamma
from sampling.drafter import Drafter, proposal_of
from sampling.methods.tables import DRAFTERS
from sampling.sequence import Sequence
from tests.conformance.toy import toy_runner
from tests.recorded import check_recorded
from tests.sequences import sequence
from utils.events import Round
from utils.parameter import ChosenPart

SIZE, PROMPT, ANSWER = 40, 120, 160
OTHERS: dict[str, list[dict[str, Any]]] = {
    "prompt_lookup": [{"max_ngram_size": 5, "min_ngram_size": 2}, {"lookup_occurrence": "first"}],
    "ngram": [
        {"set_ngramstorage": ChosenPart("onelevel", (3,))},
        {"top_k_filler": 1},
        {"reset_in_between": False, "top_k_filler": 5},
    ],
    "suffix": [
        {"max_tree_depth": 3},
        {"max_cached_requests": 1},
        {"max_cached_requests": 0, "max_spec_factor": 4.0},
        {"min_token_prob": 0.6, "max_spec_factor": 2.0},
        {"use_tree_spec": True, "max_spec_factor": 8.0},
    ],
    "recycling": [{"recycling_top_k": 3}, {"recycling_remember": False}],
    "logitspec": [{"logitspec_top_k": 4}],
}
WAYS = [(name, values) for name, others in OTHERS.items() for values in ({}, *others)]


def made_up(seed: int) -> list[int]:
    """A text of phrases that come again, with a stray token now and then; text 1 has four tokens only."""
    rng, size = random.Random(seed), 4 if seed == 1 else SIZE
    phrases = [[rng.randrange(size) for _ in range(rng.randrange(2, 9))] for _ in range(9)]
    text = list[int]()
    while len(text) < PROMPT + ANSWER:
        text += rng.choice(phrases)
        if rng.random() < 0.2:
            text.append(rng.randrange(size))
    return text[: PROMPT + ANSWER]


def candidates(token: int, chosen: int | None) -> torch.Tensor:
    """Logits behind a token: an order of its own, with the one that is chosen before all others but for two tokens."""
    row = torch.tensor([float((other * 7 + token * 13) % SIZE) for other in range(SIZE)])
    if chosen is not None:
        row[chosen] = SIZE + 1.0 if token % 3 else SIZE - 2.5
    return row


def judged(seq: Sequence, number: int, answer: list[int], drafts: list[int], parents: list[int]) -> Round:
    """The verdict of a target that writes `answer`."""
    path, at, above = list[int](), len(seq.tokens), -1
    chosen: dict[int, int] = {}
    while True:
        chosen[above] = answer[at]
        below = [row for row, parent in enumerate(parents) if parent == above and drafts[row] == answer[at]]
        if not below or at + 1 >= len(answer):
            break
        path, above, at = [*path, below[0]], below[0], at + 1
    tokens = [seq.tokens[-1], *drafts]
    seq.logits = torch.stack([candidates(token, chosen.get(row)) for row, token in enumerate(tokens, -1)])
    flat = (1.0,) * len(drafts)
    seconds = 1.0 + len(drafts) / 16
    return Round(
        number, at, 8, tuple(drafts), tuple(parents), flat, flat, tuple(path), answer[at], None, SIZE, 0.01, seconds
    )


def told(drafter: Drafter, seed: int, rule: DraftBudget | SurvivalGamma) -> str:
    """A text's rounds, `3/8` for three of eight drafts accepted, and a checksum of all drafts, their parents and what a
    hybrid is told to follow the drafts of its model."""
    answer, rounds, checksum = made_up(seed), list[str](), 0
    seq = sequence(answer[:PROMPT], toy_runner(0))
    seq.max_new_tokens = ANSWER
    drafter.begin(seq)
    rule.begin()
    while len(seq.tokens) < len(answer):
        proposal = proposal_of(drafter.propose(seq, rule, len(answer) - len(seq.tokens) - 1))
        drafts, parents = proposal.tokens.tolist(), [*proposal.parent_rows]
        goes_on = getattr(drafter, "continuation", lambda *_: ())
        behind = [*goes_on(seq, answer[len(seq.tokens) :][: len(rounds) % 3], 4)]
        round = judged(seq, len(rounds), answer, drafts, parents)
        seq.tokens.extend(round.emitted)
        drafter.observe(seq, round)
        rule.update(round)
        rounds.append(f"{round.accepted}/{len(drafts)}")
        checksum = crc32(repr((drafts, parents, behind)).encode(), checksum)
    drafter.finish(seq)
    return f"{' '.join(rounds)} {checksum:08x}"


def drafted(name: str, values: dict[str, Any]) -> list[str]:
    """What is drafted of four texts, of the second under the survival rule, and of the first by an heir."""
    drafter, heir = (DRAFTERS[name].build(None, values) for _ in range(2))
    lines = [told(drafter, seed, DraftBudget(budget)) for seed, budget in ((0, 8), (1, 5), (0, 12), (2, 60))]
    lines.append(told(drafter, 1, SurvivalGamma()))
    memory = drafter.memory()
    heir.adopt(drafter)
    return [*lines, memory, told(heir, 0, DraftBudget(8)), heir.memory()]


def test_copies_are_drafted_as_they_were() -> None:
    found = {" ".join([name, *map(str, values.items())]): drafted(name, values) for name, values in WAYS}
    check_recorded(Path(__file__).with_name("recorded.json"), found)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_recorded_is_of_all_parameters(name: str) -> None:
    """Each parameter has another value somewhere, and it changes what is drafted."""
    part = DRAFTERS[name]
    assert {parameter.name for parameter in part.parameters} == {key for values in OTHERS[name] for key in values}
    plain = drafted(name, {})
    assert all(drafted(name, values) != plain for values in OTHERS[name])
