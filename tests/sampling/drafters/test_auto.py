"""The method `auto`: who drafts, what is joined, what is not even built, and what a round says of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch

from egag.choosing.drafter_chooser import DrafterChooser
from egag.cost_model import CostModel
from egag.expected_round import ExpectedRound
from sampling.drafter import proposal_of
from sampling.drafters.combined.auto import COPIES, AutoDrafter
from sampling.drafters.combined.joined import joined
from sampling.engine import Text
from sampling.forward.requests import StepGenerator
from sampling.forward.runner import ModelRunner
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import Settings
from sampling.methods.tables import DRAFTERS, HEADS, METHODS
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.profile import DraftTimes, LatencyProfile, TreeTimes
from sampling.proposal import Proposal
from sampling.verify.rejection import RejectionVerifier
from tests.conformance import suite
from tests.conformance.suite import Case
from tests.conformance.toy import PROMPT, toy_pair
from tests.sequences import sequence
from tests.tiny import tiny_pair
from utils.events import Round
from utils.logits_processor import MultinomialProcessor
from utils.parameter import ChosenPart

SETTINGS = {**Settings(), "length": 30, "survival_live": False}
GOOD, USELESS, DEAR = DraftTimes(1.0, 1.0, (0.6, 0.6)), DraftTimes(3.0, 1.0, (0.0,)), DraftTimes(40.0, 9.0, (0.9, 0.9))


def profile(**drafters: DraftTimes) -> LatencyProfile:
    """Times of a target of 20 ms."""
    copies = DraftTimes(0.1, 0.0, (0.5,))
    return LatencyProfile({64: ((1, 20.0), (17, 28.0))}, ((64, 50.0),), 0.5, {"suffix": copies, **drafters})


def built(pair: Pair, **values: object) -> AutoDrafter:
    made = DRAFTERS["auto"].build(pair, {**SETTINGS, **values})
    assert isinstance(made, AutoDrafter)
    return made


def rounds(pair: Pair, **values: object) -> list[Round]:
    events = PairEngine(pair).stream("auto", {**SETTINGS, **values}, PROMPT)
    return [event for event in events if isinstance(event, Round)]


def test_a_model_and_a_copy_become_one_tree() -> None:
    """The model's 5 -> 6 and the copy 5 7 8: the copy shares row 0, and hangs 7 8 behind it."""
    own = Proposal(torch.tensor([5, 6]))
    both, rows = joined(own, (0.8, 0.3), (5, 7, 8), (0.9, 0.4, 0.35), lambda drafts: 20.0 + 0.1 * drafts)
    assert (both.tokens.tolist(), both.parents, rows) == ([5, 6, 7, 8], (-1, 0, 0, 2), (0, 2, 3))


def test_a_copy_that_agrees_adds_no_row_and_is_judged_with_the_model() -> None:
    own = Proposal(torch.tensor([5, 6, 9]), (-1, 0, -1))
    both, rows = joined(own, (0.8, 0.3, 0.1), (5, 6), (0.9, 0.4), lambda drafts: 20.0 + drafts)
    assert both is own and rows == (0, 1)


def test_a_copy_gets_no_more_than_the_model_leaves() -> None:
    """The model is .95 sure of 5: the copy's 7, .9 by itself, is right .05 of the time at most, and does not pay."""
    own = Proposal(torch.tensor([5]))
    both, rows = joined(own, (0.95,), (7, 8), (0.9, 0.9), lambda drafts: 20.0 + 1.5 * drafts)
    assert both is own and rows == ()
    both, rows = joined(own, (0.3,), (7, 8), (0.9, 0.9), lambda drafts: 20.0 + 1.5 * drafts)
    assert both.tokens.tolist() == [5, 7, 8] and rows == (1, 2)


def test_a_pair_without_drafters_copies() -> None:
    bare = replace(toy_pair(), drafter=None, heads={})
    assert not built(bare).models and built(bare).needs_hidden == ()
    sources = {round.source for round in rounds(bare)}
    assert sources == {"none", "suffix"}


def test_the_next_prompt_is_drafted_for_as_well() -> None:
    """A rule that took over from the one before, and was told no price yet, chose to draft nothing, for good."""
    bare = replace(toy_pair(), drafter=None, heads={}, profile=profile())
    engine = PairEngine(bare)
    for _ in range(3):
        made = [one for one in engine.stream("auto", {**SETTINGS, "length": 60}, PROMPT) if isinstance(one, Round)]
        assert "suffix" in {round.source for round in made}


def test_a_drafter_that_was_not_timed_is_guessed_in_the_targets_seconds() -> None:
    """In forwards beside a target in seconds it would be fifty times too dear."""
    timed = LatencyProfile({64: ((1, 0.020), (17, 0.028))}, ((64, 0.05),), 0.0005, {})
    bare = replace(toy_pair(), drafter=None, heads={}, profile=timed)
    values = {**SETTINGS, "length": 60}
    made = [one for one in PairEngine(bare).stream("auto", values, PROMPT) if isinstance(one, Round)]
    assert sum(round.source == "suffix" for round in made) > 5


def test_what_cannot_win_is_not_built() -> None:
    pair = replace(
        toy_pair(),
        profile=profile(
            mtp=GOOD, eagle=USELESS, model=DEAR, hydra=GOOD, medusa=USELESS, parallel_eagle=USELESS, dspark=USELESS
        ),
    )
    assert set(built(pair).models) == {"mtp", "hydra"}
    none = replace(pair, profile=profile(**dict.fromkeys(("model", *HEADS), USELESS)))
    assert not built(none).models and built(none).needs_hidden == ()
    assert set(built(replace(pair, profile=None)).models) == {"model", *HEADS}


@pytest.mark.parametrize(("gain", "shaped"), [(0.9, False), (1.1, True)])
def test_a_head_drafts_trees_where_they_brought_more_than_its_chains(gain: float, shaped: bool) -> None:
    timed = replace(GOOD, tree=TreeTimes(1.0, 1.0, gain))
    pair = replace(toy_pair(), profile=profile(mtp=timed, eagle=USELESS, model=USELESS))
    assert (built(pair).models["mtp"].shape is not None) == shaped


def test_costs_that_come_later_say_what_is_built_from_then_on() -> None:
    """A first session answers before anything is measured; what it remembers outlives the change."""
    engine = PairEngine(toy_pair())
    values = {**SETTINGS, "max_cached_requests": -1}
    list(engine.stream("auto", values, PROMPT))
    before, plain = engine.drafter("auto", values), engine.drafter("speculative", values)
    engine.use_profile(
        profile(
            mtp=GOOD, eagle=USELESS, model=DEAR, hydra=USELESS, medusa=USELESS, parallel_eagle=USELESS, dspark=USELESS
        )
    )
    after = engine.drafter("auto", values)
    assert isinstance(before, AutoDrafter) and isinstance(after, AutoDrafter)
    assert len(before.models) > 1 and set(after.models) == {"mtp"}
    assert engine.drafter("speculative", values) is plain, "what weighs no costs stays, with its caches and graphs"
    assert after.suffix.memory_tree.responses == before.suffix.memory_tree.responses == 1


def test_a_drafter_model_that_does_not_draft_is_fed_nothing() -> None:
    pair = replace(toy_pair(), heads={}, profile=profile(model=DraftTimes(5.0, 5.0, (0.6,))))
    drafter = built(pair)
    seq = sequence([*PROMPT, 1], pair.target, prompt_length=len(PROMPT))
    seq.rule = rule = DrafterChooser(survival_live=False)
    drafter.begin(seq)
    for _ in range(300):
        rule.rule_for("model").learnt.judged(judged(0), rule.rule_for("model")._drafts, 1)
    slot = seq.drafter_state[drafter.models["model"]]
    before = slot.length
    assert proposal_of(drafter.propose(seq, rule, 5)).source != "model"
    assert slot.length == before


def judged(accepted: int) -> Round:
    return Round(0, 0, 4, (1,) * 4, None, (), (), tuple(range(accepted)), 2, None, 6)


def test_who_drafted_stands_in_rounds_and_in_the_account() -> None:
    account, told = RunMetrics(), rounds(toy_pair(drafter_seed=None))
    for round in told:
        account.add(round)
    assert any("model" in round.source for round in told)
    assert all((round.source == "none") == (not round.drafts) for round in told if "+" not in round.source)
    assert account.rounds_by_drafter
    counts = [entry.rsplit(" ", 1) for entry in account.rounds_by_drafter.split(", ")]
    assert {name: int(count) for name, count in counts} == dict(account.sources)
    assert sum(account.sources.values()) == len(told)
    alone = RunMetrics()
    for event in PairEngine(toy_pair()).stream("speculative", SETTINGS, PROMPT):
        alone.add(event)
    assert alone.rounds_by_drafter is None


def test_a_twin_of_the_target_is_found_out() -> None:
    """No profile, five strangers and a twin: soon the twin drafts, longer and longer, and most of it is accepted."""
    told = rounds(toy_pair(drafter_seed=None), length=43)
    late = told[len(told) // 2 :]
    assert all("model" in round.source for round in late[:-1])
    assert sum(round.accepted for round in late) > 1.5 * len(late)


def test_the_same_seed_gives_the_same_run_where_the_clock_is_not_read() -> None:
    sampled = Settings()
    sampled.assign("processor", "multinomial 1")
    runs = [rounds(toy_pair(), processor=sampled["processor"]) for _ in range(2)]
    assert [(r.drafts, r.source) for r in runs[0]] == [(r.drafts, r.source) for r in runs[1]]


def test_without_the_clock_no_seconds_are_read() -> None:
    """A round that a busy machine made long would otherwise pay for a trial."""
    learnt = []
    for slow in (1.0, 50.0):
        rule = DrafterChooser(survival_live=False)
        rule.use_cost_model(CostModel(((1, 1.0), (17, 2.0)), 0.1, 0.1))
        for number, made in enumerate(rounds(toy_pair())):
            rule.rule_for("suffix")
            rule.update(replace(made, number=number, verify_s=slow, draft_s=slow))
        learnt.append((rule.state.budget.saved, rule.without_drafts(), rule.rule_for("suffix").expected()))
    assert learnt[0] == learnt[1]


def batched(method: str, lengths: Sequence[int], **values: object) -> list[dict[int, Round]]:
    """The rounds of a batch of texts of these lengths, with a profile of its machine."""
    engine, asked = PairEngine(replace(tiny_pair(), profile=profile(model=GOOD))), {**SETTINGS, **values}
    batch = engine.batch(method, asked, len(lengths))
    for number, length in enumerate(lengths):
        batch.admit(engine.request(method, asked, Text(number, (5, 6, 7, 8, number) * 5, length)))
    told = list[dict[int, Round]]()
    while batch.texts:
        told.append({live.request.tag: event for live, event in batch.play() if isinstance(event, Round)})
    return [rounds for rounds in told if rounds]  # in the others only prompts are read


def sources(texts: int, **values: object) -> list[set[str]]:
    """Who drafts in each round of a batch."""
    return [{round.source for round in rounds.values()} for rounds in batched("auto", [30] * texts, **values)]


def test_rounds_with_drafts_and_plain_rounds_of_all_texts_are_compared_in_turn() -> None:
    told = sources(3, survival_live=True)
    assert [one == {"none"} for one in told[:7]] == [False, False, True, False, True, False, True]


def test_a_text_alone_and_one_that_reads_no_clock_are_not_compared_so() -> None:
    for told in (sources(1, survival_live=True), sources(3, survival_live=False)):
        assert {"none"} not in told[:5]


def test_texts_of_a_batch_get_chains_and_a_text_alone_gets_trees() -> None:
    told = batched("auto", [60, 30, 30])
    together, alone = ([one for one in told if (len(one) > 1) is many] for many in (True, False))
    drafted = [round for one in together for round in one.values() if "model" in round.source]
    assert len(drafted) > 5 and all(round.parents is None for round in drafted)
    assert any(round.parents is not None for one in alone for round in one.values())


@pytest.mark.parametrize("method", ["auto", "hedge"])
def test_a_batch_that_is_timed_writes_what_plain_decoding_writes(method: str) -> None:
    expected, found = (
        [[token for rounds in told if text in rounds for token in rounds[text].emitted] for text in range(3)]
        for told in (batched(name, [60, 40, 50], survival_live=True) for name in ("target", method))
    )
    assert found == expected


def test_chains_are_drafted_where_the_target_runs_no_trees() -> None:
    pair = toy_pair(drafter_seed=None)
    chains = replace(pair, target=ModelRunner(replace(pair.target.model, trees=False)))  # type: ignore[type-var]
    assert all(round.parents is None for round in rounds(chains))
    assert any(round.parents is not None for round in rounds(pair))


@pytest.mark.parametrize(("trees", "processor"), [(True, "greedy"), (False, "greedy"), (True, "multinomial")])
def test_a_model_is_credited_with_a_copy_only_where_both_can_be_joined(
    trees: bool, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under sampling the toy model's chains are drawn, which nothing can be joined with."""
    credited, beside, choose = list[bool](), list[bool](), DrafterChooser.choose

    def watched(self: DrafterChooser, expected: Mapping[str, ExpectedRound]) -> str:
        if "model" in expected and COPIES in expected:
            credited.append(expected["model"] != self.rule_for("model").expected())
        return choose(self, expected)

    monkeypatch.setattr(DrafterChooser, "choose", watched)
    pair = toy_pair(drafter_seed=None)
    target = ModelRunner(replace(pair.target.model, trees=trees))  # type: ignore[type-var]
    told = replace(pair, target=target, profile=profile(model=GOOD))
    values = {"processor": ChosenPart(processor, (1.0,))}
    beside.extend("+" in round.source for round in rounds(told, **values))
    joins = trees and processor == "greedy"
    assert credited and any(credited) == joins and any(beside) <= joins


def test_it_takes_no_rule_but_its_own() -> None:
    assert "draft_rule" not in {parameter.name for parameter in METHODS["auto"].parameters}


class Peeking(AutoDrafter):
    """The planted bug: the model's drawn tokens are looked at, and left out where they seem unlikely."""

    def _drafted(self, *arguments: object) -> StepGenerator[Proposal]:
        proposal = yield from super()._drafted(*arguments)  # type: ignore[arg-type]
        if proposal.draft_probs is None or proposal.draft_probs[0, proposal.tokens[0]] >= 0.4:
            return proposal
        return replace(Proposal.empty(proposal.tokens.device), source="none")


def test_a_choice_that_looks_at_drawn_tokens_is_caught() -> None:
    """The one that does not passes the same test, below and in the conformance suite."""

    def peeking(pair: Pair) -> AutoDrafter:
        honest = built(pair)
        return Peeking(honest.suffix, honest.models)

    case = Case(peeking, lambda: DrafterChooser(survival_gamma_max=1, survival_live=False), RejectionVerifier)
    with pytest.raises(AssertionError, match="chi-square"):
        suite.check_law(case, replace(toy_pair(), heads={}), MultinomialProcessor(1.0))


def test_the_law_is_kept_while_it_learns() -> None:
    """Each run goes on with what the last one learnt, and all drafters have their turns: tokens follow the target."""
    kept = [DrafterChooser(survival_live=False, survival_explore=0.5)]

    def rule() -> DrafterChooser:
        made = DrafterChooser(survival_live=False, survival_explore=0.5)
        made.adopt(kept[-1])
        kept.append(made)
        return made

    suite.check_distribution(Case(built, rule, RejectionVerifier), toy_pair(), MultinomialProcessor(1.0))
    assert sum(part.rounds > 0 for part in kept[-1].state.drafters.values()) > 2
