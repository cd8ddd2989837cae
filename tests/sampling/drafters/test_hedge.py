"""The method `hedge`: every drafter is scored on the verified text, and the scores are those of the distributions."""

from collections.abc import Mapping, Sequence

import pytest
import torch

from egag.choosing.hedge_chooser import HedgeChooser
from egag.length_rule import FixedGamma
from sampling.drafter import proposal_of
from sampling.drafters.combined.auto import COPIES
from sampling.drafters.combined.hedge import HedgeDrafter, _copied
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.forward.requests import run_single
from sampling.methods.settings import Settings
from sampling.methods.tables import DRAFTERS, METHODS
from sampling.pair.pair import Pair
from sampling.verify.rejection import RejectionVerifier
from tests.conformance import suite
from tests.conformance.suite import Case
from tests.conformance.toy import PROMPT, toy_pair
from tests.refusals import refused
from tests.sequences import sequence
from utils.events import Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor

SETTINGS = {**Settings(), "survival_live": False}
SCORED = ("model", "eagle", "mtp")


def built(pair: Pair) -> HedgeDrafter:
    made = DRAFTERS["hedge"].build(pair, SETTINGS)
    assert isinstance(made, HedgeDrafter)
    return made


class Noting(HedgeChooser):
    """Keeps what it was told of each round's text."""

    def __init__(self) -> None:
        super().__init__(survival_live=False)
        self.told: list[Mapping[str, Sequence[float] | None]] = []

    def learn_text(self, seen: Mapping[str, Sequence[float] | None]) -> None:
        self.told.append(dict(seen))
        super().learn_text(seen)


def decoded(pair: Pair, processor: LogitsProcessor, length: int = 40) -> tuple[list[Round], Noting]:
    chooser = Noting()
    case = Case(built, lambda: chooser, RejectionVerifier)
    return [one for one in suite.run(case, pair, processor, length) if isinstance(one, Round)], chooser


@pytest.mark.parametrize("processor", [GreedyProcessor(), MultinomialProcessor(1.0)], ids=["greedy", "sampled"])
def test_scores_are_the_overlap_of_both_distributions_at_every_verified_token(processor: LogitsProcessor) -> None:
    """Computed anew for each prefix: the model's first draft and the target behind the same tokens."""
    pair, (made, chooser) = toy_pair(), decoded(toy_pair(), processor)
    assert len({name for round in made for name in round.source.split("+")}) > 2, "several drafters had turns"
    text, drafter = list(PROMPT), pair.drafting("full")
    for round, told in zip(made, chooser.told, strict=False):
        scores = told["model"]
        assert scores is not None and len(scores) == len(round.emitted)
        for token, score in zip(round.emitted, scores, strict=True):
            both = [processor(runner.another().forward(text, rows=1).logits) for runner in (pair.target, drafter)]
            assert score == pytest.approx(float(torch.minimum(*both).sum()), abs=1e-4)
            text.append(token)


def test_heads_are_scored_on_every_token_as_well_and_others_by_their_own_rounds() -> None:
    made, chooser = decoded(toy_pair(), GreedyProcessor())
    for round, told in zip(made, chooser.told, strict=False):
        assert {*told} >= {*SCORED, COPIES, "medusa"}
        for name, scores in told.items():
            if name in SCORED:
                assert scores is not None and len(scores) == len(round.emitted) and set(scores) <= {0.0, 1.0}
            elif name != COPIES:
                assert (scores is None) == (name not in round.source.split("+"))


def test_a_score_of_a_head_is_whether_its_first_draft_is_the_text() -> None:
    """Against the head alone, which drafts one token a round behind the same target."""
    pair = toy_pair()
    made, chooser = decoded(pair, GreedyProcessor())
    text = [token for round in made for token in round.emitted]
    alone = Case(lambda pair: DRAFTERS["mtp"].build(pair, Settings()), lambda: FixedGamma(1), RejectionVerifier)
    first: dict[int, float] = {}
    for round in suite.run(alone, pair, GreedyProcessor(), len(text)):
        if isinstance(round, Round) and round.drafts:
            first[round.position - len(PROMPT)] = float(round.accepted)
    scores = [score for told in chooser.told for score in told["mtp"] or ()]
    assert len(first) > 10
    assert {place: scores[place] for place in first if place < len(scores)} == {
        place: hit for place, hit in first.items() if place < len(scores)
    }


@pytest.mark.parametrize("name", SCORED)
def test_looking_along_the_text_leaves_what_is_drafted_next(name: str) -> None:
    pair = toy_pair()
    drafter: ForwardDrafter = DRAFTERS[name].build(pair, Settings())
    drafts = []
    for looks in (0, 1, 3):
        seq = sequence([*PROMPT, 1, 4, 2], pair.target, prompt_length=len(PROMPT))
        seq.hidden = suite.prefill(pair.target, seq.tokens[:-1], drafter.needs_hidden)
        drafter.begin(seq)
        for _ in range(looks):
            assert len(run_single(drafter.along(seq, 1))) == 1
        drafts.append(proposal_of(drafter.propose(seq, FixedGamma(3), 5)).tokens.tolist())
    assert drafts[0] == drafts[1] == drafts[2] and len(drafts[0]) == 3


def test_copies_are_scored_by_the_run_that_the_text_went_on_with() -> None:
    assert _copied((5, 6, 7), (5, 9)) == [1.0, 0.0] and _copied((5, 6), (5,)) == [1.0]
    assert _copied((5,), (5, 9)) == [1.0] and _copied((), (5, 9)) == [0.0]


def test_a_twin_of_the_target_drafts_soon() -> None:
    made, chooser = decoded(toy_pair(drafter_seed=None), GreedyProcessor(), 80)
    late = made[len(made) // 2 :]
    assert sum("model" in round.source for round in late) > 0.8 * len(late)
    assert chooser.scores["model"].alpha > 0.9


def test_it_takes_no_rule_but_its_own() -> None:
    assert "draft_rule" not in {parameter.name for parameter in METHODS["hedge"].parameters}
    seq = sequence([*PROMPT], toy_pair().target)
    with refused("FixedGamma", "HedgeChooser"):
        proposal_of(built(toy_pair()).propose(seq, FixedGamma(2), 3))
