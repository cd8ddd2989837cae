"""Replay without a model: walks along answers, rules on them, bounds and prices, each against a run or by hand."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from egag.cost_model import CostModel
from egag.draft_distribution import DraftDistribution, RecordedDistribution, Token
from egag.feedback.heuristic import HeuristicGamma
from egag.length_rule import FixedGamma, LengthRule
from egag.rollback_price import FREE, RollbackPrice, TakenBack
from egag.stopping.confidence import ConfidenceGamma
from egag.survival import SurvivalGamma
from sampling.measure.metrics import RunMetrics
from sampling.measure.replay import (
    DraftWalk,
    PositionDraft,
    Sample,
    best_fixed,
    fitted,
    in_batch,
    oracle,
    replayed,
    rounds,
    scaled,
    walk,
)
from sampling.measure.replay.expected import expected_accepted
from sampling.measure.replay.simulator import is_simulator, simulator_row, simulator_walks
from sampling.methods.settings import Settings
from sampling.methods.tables import METHODS
from sampling.pair.kept.drafting import KeptDrafting
from sampling.pair.pair_engine import PairEngine
from tests.conformance.toy import PROMPT as TOY
from tests.conformance.toy import toy_pair
from tests.refusals import refused
from tests.tiny import tiny_pair
from utils.errors import UnknownName
from utils.events import Round

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1)
PRICE = CostModel(((1, 10.0), (3, 12.0)), first_s=2.0, step_s=1.0, rest_s=0.5)


def settings(**values: str) -> Settings:
    chosen = Settings()
    chosen.assign_all([("length", "40"), *values.items()])
    return chosen


def run(engine: PairEngine, method: str, values: Settings) -> tuple[RunMetrics, list[Round]]:
    metrics, made = RunMetrics(), []
    for event in engine.stream(method, values, PROMPT):
        metrics.add(event)
        if isinstance(event, Round):
            made.append(event)
    return metrics, made


def hand(*ahead: Sequence[int], tokens: str = "abcdef") -> DraftWalk:
    """A walk whose answer is these letters, each position with its drafts; "-" is no token of it."""
    return DraftWalk(
        method="speculative",
        values={"length": len(tokens)},
        prompt_tokens=3,
        tokens=tuple(map(ord, tokens)),
        reason="length",
        ahead=tuple(PositionDraft(tuple(map(ord, drafts)), most=3) for drafts in ahead),
        vocab_size=256,
    )


HAND = hand("abc", "b-d", "cde", "--", "e", "")


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("speculative", {"gamma": "3"}),
        ("speculative", {"gamma": "0"}),
        ("egag", {}),
        ("egag", {"egag_gamma_max": "8", "egag_ema": "0"}),
        ("confidence", {"confidence_threshold": "0.2", "confidence_gamma_max": "8"}),
        ("prompt_lookup", {}),
        ("prompt_lookup", {"num_speculative_tokens": "3"}),
        ("prompt_lookup", {"draft_rule": "egag"}),
        ("ngram", {"gamma": "5"}),
        ("suffix", {}),
        ("extended", {"num_speculative_tokens": "6"}),
        ("staged", {"staged_drafter": "prompt_lookup"}),
    ],
)
def test_a_rule_on_a_walk_has_the_rounds_of_the_run(method: str, values: dict[str, str]) -> None:
    engine, chosen = PairEngine(tiny_pair()), settings(**values)
    along = walk(engine, method, chosen, PROMPT)
    _, made = run(engine, method, chosen)
    rule = METHODS[method].rule.build(None, {**chosen, **METHODS[method].preset})
    again = list(rounds(along, rule, PRICE))
    facts = [(one.position, one.gamma, one.drafts, one.path, one.next_token) for one in made]
    assert [(one.position, one.gamma, one.drafts, one.path, one.next_token) for one in again] == facts
    assert [one.entropy or 0.0 for one in again] == pytest.approx([one.entropy or 0.0 for one in made], rel=1e-4)


class Svip(LengthRule):
    """Stops after a draft by its entropy, and before one that is less likely than the last, as rules to come do."""

    def __init__(self) -> None:
        self.gamma, self.last = 8, 0.0

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        assert distribution is not None
        held, self.last = drafted > 0 and distribution.top < 0.8 * self.last, distribution.top
        return drafted < self.gamma and not held

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        assert distribution is not None and token is not None
        return (
            drafted < self.gamma
            and math.sqrt(0.15 * distribution.entropy) <= 0.75
            and distribution.chance(token) > 0.01
        )


@pytest.mark.parametrize("method", ["speculative", "staged", "mtp", "medusa", "parallel_eagle"])
def test_rules_that_read_every_belief_are_replayed(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, chosen = PairEngine(toy_pair()), settings()
    along = walk(engine, method, chosen, TOY)
    monkeypatch.setattr(KeptDrafting, "rule", lambda *given: Svip())
    made = [event for event in engine.stream(method, chosen, TOY) if isinstance(event, Round)]
    assert len({len(one.drafts) for one in made}) > 2, "the rule stops here and there"
    again = list(rounds(along, Svip(), PRICE))
    assert [(one.drafts, one.path, one.next_token) for one in again] == [
        (one.drafts, one.path, one.next_token) for one in made
    ]


@pytest.mark.parametrize("method", ["medusa", "hydra", "eagle", "mtp", "parallel_eagle"])
@pytest.mark.parametrize(
    "values",
    [
        {"gamma": "3"},
        {"draft_rule": "confidence", "confidence_threshold": "0.3", "confidence_gamma_max": "8"},
        {"draft_rule": "egag"},
        {"draft_tree": "dynamic", "tree_width": "3", "tree_tokens": "6"},
        {"draft_tree": "static", "tree_width": "2", "tree_tokens": "5"},
    ],
)
def test_heads_are_replayed_on_chains_and_trees(method: str, values: dict[str, str]) -> None:
    engine, chosen = PairEngine(toy_pair()), settings(**values)
    along = walk(engine, method, chosen, TOY)
    made = [event for event in engine.stream(method, chosen, TOY) if isinstance(event, Round)]
    nodes = int(values["tree_tokens"]) if along.trees else None
    again = list(rounds(along, METHODS[method].rule.build(None, chosen), PRICE, nodes=nodes))
    facts = [(one.drafts, one.parents, one.path, one.next_token) for one in made]
    assert [(one.drafts, one.parents, one.path, one.next_token) for one in again] == facts


def test_the_likeliest_paths_are_replayed() -> None:
    test_heads_are_replayed_on_chains_and_trees("medusa", {"draft_tree": "best_first", "tree_tokens": "7"})


def test_a_tree_is_cut_where_its_nodes_are_least_likely() -> None:
    """The walk's tree holds those of every smaller budget, and no other depth's."""
    engine, chosen = PairEngine(toy_pair()), settings(draft_tree="dynamic", tree_width="3", tree_tokens="20")
    along = walk(engine, "mtp", chosen, TOY)
    assert max(len(ahead.drafts) for ahead in along.ahead) == 24
    for budget in (1, 3, 12):
        smaller = settings(draft_tree="dynamic", tree_width="3", tree_tokens=str(budget))
        made = [event for event in engine.stream("mtp", smaller, TOY) if isinstance(event, Round)]
        again = list(rounds(along, FixedGamma(4), PRICE, nodes=budget))
        assert [(one.drafts, one.parents) for one in again] == [(one.drafts, one.parents) for one in made]
    with refused("mtp", "gamma", 4, 2):
        replayed(along, FixedGamma(2), PRICE)
    with refused("mtp", "draft_tree chain"):
        replayed(along, SurvivalGamma(4), PRICE)
    best = best_fixed([along], PRICE)
    assert len(best.seconds) == 25 and best.seconds[best.gamma] == min(best.seconds)
    assert oracle(along, PRICE).decode_s <= best.seconds[best.gamma]


def test_a_rule_that_learns_is_told_every_round() -> None:
    """Behind full acceptance two more, else one fewer: 1 -> 3 (room for all) -> 2."""
    rule = HeuristicGamma(1)
    made = list(rounds(HAND, rule, PRICE))
    assert [(one.gamma, one.drafts, one.accepted) for one in made] == [
        (1, (ord("a"),), 1),
        (3, tuple(map(ord, "cde")), 3),
    ]
    assert [one.emitted for one in made] == [tuple(map(ord, "ab")), tuple(map(ord, "cdef"))]
    assert rule.gamma == 5


def test_the_account_by_hand() -> None:
    """gamma 1: a b | c d | - e... each round costs 11 + 2 + 0.5 with a draft."""
    account = replayed(HAND, FixedGamma(1), PRICE)
    assert account.tokens_by_round == [2, 2, 2] and account.accepted == 3 and account.drafted == 3
    assert account.verify_s == pytest.approx(33.0) and account.draft_s == pytest.approx(6.0)
    assert account.other_s == pytest.approx(1.5) and account.output_ids == list(HAND.tokens)
    assert account.finish_reason == "length" and account.prompt_tokens == 3


def test_an_accepted_stop_token_ends_the_text() -> None:
    stopped = replace(HAND, reason="stop", values={"length": 20})
    last = list(rounds(stopped, FixedGamma(3), PRICE))[-1]
    assert last.next_token == ord("f")
    ended = replace(stopped, ahead=(*HAND.ahead[:4], PositionDraft((ord("e"), ord("f"), 7), most=3), HAND.ahead[5]))
    last = list(rounds(ended, FixedGamma(3), PRICE))[-1]
    assert last.next_token is None and last.emitted == tuple(map(ord, "ef"))


def test_what_a_walk_cannot_answer_is_said() -> None:
    with refused("speculative", 0, 3):
        replayed(HAND, FixedGamma(4), PRICE)
    assert replayed(HAND, FixedGamma(4), PRICE, bounded=True).drafted == replayed(HAND, FixedGamma(3), PRICE).drafted
    engine = PairEngine(tiny_pair())
    with refused("target"):
        walk(engine, "target", settings(), PROMPT)
    with refused("multinomial", "greedy"):
        walk(engine, "speculative", settings(processor="multinomial 1"), PROMPT)


def test_beliefs_are_read_by_the_rule() -> None:
    sure, unsure = (RecordedDistribution(256, 0.1, p, 0, p) for p in (0.9, 0.2))
    ahead = (
        replace(
            HAND.ahead[0],
            beliefs=tuple(replace(one, token=ord(x)) for one, x in zip((sure, unsure, sure), "abc", strict=True)),
        ),
    )
    along = replace(HAND, ahead=(*ahead, *HAND.ahead[1:]))
    first = next(rounds(along, ConfidenceGamma(0.5, 3), PRICE))
    assert first.drafts == tuple(map(ord, "ab"))
    with refused(0, 5):
        sure.chance(5)


def test_the_oracle_drafts_what_will_be_accepted() -> None:
    """abc is accepted behind 0 (13 + 4 + 0.5), e behind 4 (11 + 2 + 0.5), so: abc d | e f."""
    account = oracle(HAND, PRICE)
    assert account.tokens_by_round == [4, 2] and account.drafted == account.accepted == 4
    assert account.decode_s == pytest.approx(17.5 + 13.5)
    assert oracle(HAND, PRICE, most=1).tokens_by_round == [2, 2, 2]


@pytest.mark.parametrize(
    ("first_s", "step_s", "emitted"), [(20.0, 20.0, [1] * 6), (2.0, 9.0, [2, 2, 2]), (2.0, 0.5, [4, 2])]
)
def test_the_oracle_leaves_out_what_costs_more_than_it_spares(
    first_s: float, step_s: float, emitted: list[int]
) -> None:
    """Each draft spares a round of 10.5: none pays at 20, only the first of a round at 2 and 9, all do at 2 and 0.5."""
    price = replace(PRICE, first_s=first_s, step_s=step_s)
    account = oracle(HAND, price)
    assert account.tokens_by_round == emitted and account.drafted == account.accepted
    assert account.decode_s <= min(best_fixed([HAND], price).seconds)


def test_the_best_fixed_length_takes_the_fewest_seconds() -> None:
    """0: 6 rounds of 10.5. 1: 3 of 13.5. 2: ab c | -- e | e f: 12 + 3 + 0.5, the same, 13.5. 3: see the oracle."""
    found = best_fixed([HAND], PRICE)
    assert found.seconds[:3] == pytest.approx((63.0, 40.5, 44.5)) and found.gamma == 3
    assert found.seconds[3] == pytest.approx(17.5 + 13.5)
    assert found.runs[0].decode_s == pytest.approx(found.seconds[3])
    assert best_fixed([HAND, HAND], [PRICE, PRICE], most=2).gamma == 1


def test_fitted_prices_cost_what_the_rounds_took() -> None:
    own = [Sample(4, 4, 5.0, 12.0, 1.0), Sample(4, 4, 7.0, 14.0, 1.0), Sample(2, 2, 4.0, 11.0, 2.0)]
    walked, plain = [Sample(8, 8, 10.0, 20.0, 9.0)], [Sample(0, 0, 0.0, 9.0, 0.5)]
    price = fitted(own, walked, plain)
    assert price.forward == ((1, 9.0), (3, 11.0), (5, 13.0), (9, 20.0))
    assert price.step_s == pytest.approx(1.0, abs=0.1)
    assert sum(price.draft_s(one.steps) for one in own) == pytest.approx(16.0)
    assert sum(price.seconds(one.nodes) for one in own) == pytest.approx(57.0)
    noisy = fitted([Sample(0, 0, 0.0, 10.0, 0.0), Sample(0, 0, 0.0, 10.0, 0.0), Sample(1, 1, 1.0, 7.0, 0.0)])
    assert noisy.forward == ((1, 9.0), (2, 9.0))
    with refused("drafter"):
        fitted([], [], plain)
    level = scaled(price, [replace(own[0], verify_s=26.0, draft_s=1.0, other_s=3.0)])
    assert level.seconds(4) == pytest.approx(30.0) and level.verify_s(0) == pytest.approx(18.0)


def test_fitted_prices_tell_what_a_rejection_costs() -> None:
    """A token read again takes 3 s more, three take 5: 2, and 1 a token. Three rows take what they took unpaid."""
    once = TakenBack(1.0, 1.0)
    free = Sample(2, 2, 1.0, 10.0, 0.0)
    paid = [replace(free, verify_s=13.0, paid=once), replace(free, verify_s=15.0, paid=TakenBack(1.0, 3.0), left=once)]
    price = fitted([free, *paid])
    assert price.rollback == RollbackPrice(2.0, 1.0) and price.forward == ((3, 10.0),)
    assert fitted([free, paid[0]]).rollback == RollbackPrice(3.0, 0.0)
    assert fitted([free]).rollback == FREE and fitted(paid).rollback == FREE


def test_the_level_of_rounds_is_not_what_they_paid_for_rejections() -> None:
    """Rounds as dear as predicted, with rejections in a row that read two tokens again where one was left."""
    price = replace(PRICE, rollback=RollbackPrice(2.0, 0.5))
    once, twice = TakenBack(1.0, 1.0), TakenBack(1.0, 2.0)
    made = Sample(2, 2, 3.0, PRICE.verify_s(2) + 3.0, 0.5, paid=twice, left=once)
    level = scaled(price, [made, made])
    assert level.forward == PRICE.forward and level.rollback == RollbackPrice(2.0, 1.0)
    assert scaled(PRICE, [made]).verify_s(2) == pytest.approx(PRICE.verify_s(2) + 3.0)


def test_a_replayed_round_costs_what_it_takes_back() -> None:
    price = replace(PRICE, rollback=RollbackPrice(2.0, 0.5))
    free, dear = replayed(HAND, FixedGamma(2), PRICE), replayed(HAND, FixedGamma(2), price)
    rejected = [TakenBack.of_round(one) for one in rounds(HAND, FixedGamma(2), price)]
    expected = sum(map(price.rollback_s, rejected))
    assert expected > 0 and dear.decode_s - free.decode_s == pytest.approx(expected)
    assert dear.rollback_s == pytest.approx(expected) and not free.rollback_s
    assert oracle(HAND, price).decode_s == oracle(HAND, PRICE).decode_s, "it drafts what will be accepted"


def test_a_batch_verifies_every_row_that_often() -> None:
    """Two sequences with two drafts each are 6 rows: along the last line 10, 11, 12, ... -> 15."""
    two = in_batch(PRICE, 2)
    assert two.verify_s(2) == pytest.approx(15.0) and two.verify_s(0) == pytest.approx(11.0)
    assert two.first_s == pytest.approx(2.2) and two.rest_s == 0.5


def test_a_walk_learns_nothing_and_knows_what_a_run_knows() -> None:
    """Earlier responses are drafted from; the answer itself, walked along before it is generated, is not."""
    engine, chosen = PairEngine(tiny_pair()), settings()
    fresh = walk(engine, "suffix", chosen, PROMPT)
    run(engine, "suffix", chosen)
    again = walk(engine, "suffix", chosen, PROMPT)
    assert again == replace(walk(engine, "suffix", chosen, PROMPT), prefill_s=again.prefill_s, samples=again.samples)
    assert sum(map(again.hits, range(40))) > sum(map(fresh.hits, range(40))), "the response is remembered"
    metrics, _ = run(engine, "suffix", chosen)
    assert replayed(again, FixedGamma(10), PRICE).tokens_by_round == metrics.tokens_by_round
    counted = settings(reset_in_between="off")
    run(engine, "ngram", counted)
    kept = engine.memories()
    walk(engine, "ngram", counted, PROMPT)
    assert engine.memories() == kept


def test_expected_acceptance_by_hand() -> None:
    p, q = (0.6, 0.2), (0.5, 0.4)
    assert expected_accepted("rejection", p, q) == pytest.approx(1.5)
    assert expected_accepted("target_match", p, q) == pytest.approx(0.72)
    # a (0.5) with child b (0.4) beside c (0.3)
    assert expected_accepted("rejection", (0.5, 0.4, 0.3), (1, 1, 1), (-1, 0, -1)) == pytest.approx(0.5 + 0.2 + 0.3)
    with refused("'typical'", "rejection", "target_match", error=UnknownName):
        expected_accepted("typical", p, q)


def test_simulator_rows_are_written_and_read(tmp_path: Path) -> None:
    """abc, then of b-d b, cde, nothing, e, and no room; each with the target's own token."""
    row = simulator_row(7, (1, 2, 3), {"ngram": HAND})
    assert row["acc_ngram"] == {"acc_len": [4, 2, 4, 1, 2, 1]}
    file = tmp_path / "s.jsonl"
    file.write_text(json.dumps(row) + "\n")
    assert is_simulator(file)
    ((id, prompt, walks),) = simulator_walks(file)
    again = walks["ngram"]
    assert (id, prompt, again.tokens) == ("7", (1, 2, 3), HAND.tokens)
    assert [again.hits(at) for at in range(6)] == [3, 1, 3, 0, 1, 0]
    assert oracle(again, PRICE).tokens_by_round == [4, 2]
    assert replayed(again, FixedGamma(2), PRICE).tokens_by_round == [3, 1, 2]
    assert simulator_row(7, prompt, walks) == row
    published = {**row, "acc_ngram": {"acc_len": [4, 2, 4, 1, 3, 2]}}  # as if nothing ended
    file.write_text(json.dumps(published) + "\n")
    assert next(simulator_walks(file))[2] == walks
    file.write_text('{"id": 1, "prompt_token_ids": [1], "generated_token_ids": "abc"}\n')
    with refused(file, "line 1", "acc_NAME"):
        list(simulator_walks(file))
