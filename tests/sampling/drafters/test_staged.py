"""Drafting in two stages: drafts are those of the drafter model alone, of fewer forwards, whatever becomes of them."""

from collections import Counter, abc
from dataclasses import replace
from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy.stats import chisquare

from egag.draft_distribution import DraftDistribution, LogitsDistribution, Token
from egag.length_rule import FixedGamma, LengthRule
from sampling.drafter import proposal_of
from sampling.drafters.combined.staged import StagedDrafter
from sampling.drafters.model import ModelDrafter
from sampling.forward.causal_model import Output
from sampling.forward.requests import StepGenerator
from sampling.forward.runner import ModelRunner, prefill
from sampling.measure.metrics import RunMetrics
from sampling.measure.sentences import stages
from sampling.methods.rules import CONTROLLERS
from sampling.methods.settings import Settings
from sampling.methods.tables import DRAFTERS, HEADS, INNER, METHODS
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.pair_messages import no_head
from sampling.proof.memo import memorised
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.verify.rejection import RejectionVerifier
from tests.conformance import suite
from tests.conformance.matrix import build_drafter
from tests.conformance.suite import FALSE_ALARM, Case
from tests.conformance.toy import PROMPT, VOCAB, toy_pair, toy_runner
from tests.refusals import lacking, refused
from tests.sequences import sequence
from utils.events import Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, TopKProcessor

TEXT = [1, 2, 3, 4, 5, 1, 2]
STAGED = ["staged", *(f"staged {kind} {tree}" for kind in HEADS for tree in ("chain", "dynamic")), "staged suffix"]


class Asked(LengthRule):
    """A rule that writes down what it is asked, and by which drafter's distributions."""

    def __init__(self, rule: LengthRule) -> None:
        self.rule = rule
        self.log: list[tuple[Any, ...]] = []

    @property
    def gamma(self) -> int:  # type: ignore[override]
        return self.rule.gamma

    def begin(self) -> None:
        self.rule.begin()

    def update(self, round: Round) -> None:
        self.rule.update(replace(round, inner=(), draft_s=1.0, verify_s=1.0, other_s=1.0))

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        assert isinstance(distribution, LogitsDistribution)
        self.log.append(("before", drafted, *(round(value, 3) for value in distribution.logits.tolist())))
        return self.rule.before(drafted, distribution)

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        assert isinstance(distribution, LogitsDistribution) and token is not None
        self.log.append(("after", drafted, int(token), *(round(value, 3) for value in distribution.logits.tolist())))
        return self.rule.after(drafted, distribution, token)


class Counting(ModelRunner):
    """A runner that counts its forwards with logits."""

    forwards = 0

    def forward(self, *given: Any, **named: Any) -> Output:
        Counting.forwards += named.get("rows") != 0
        return super().forward(*given, **named)


STAYS, MOVES = "fixed", "confidence"
# A rule is shown distributions of the drafter model and is not told who drafted for it: one drafter meets every rule,
# and the others one that never stops early and one that does.
MEETINGS = [(rule, "staged") for rule in CONTROLLERS] + [(rule, name) for rule in (STAYS, MOVES) for name in STAGED[1:]]


@cache
def run_of(rule: str, name: str, seed: int | None) -> tuple[list[Any], list[Any]]:
    """The rounds of a run, and what its rule was asked."""
    asked = Asked(CONTROLLERS[rule].build(None, {}))
    case = Case(lambda pair: build_drafter(name, pair), lambda: asked, RejectionVerifier)
    rounds = [one for one in suite.run(case, toy_pair(seed), GreedyProcessor(), 20) if isinstance(one, Round)]
    return [(one.drafts, one.path, one.gamma, one.q) for one in rounds], asked.log


@pytest.mark.parametrize(("rule", "name"), MEETINGS)
@pytest.mark.parametrize("seed", [1, None])
def test_drafts_and_what_rules_see_are_those_of_the_model_alone(rule: str, name: str, seed: int | None) -> None:
    """Round for round, with a drafter that is mostly rejected and with one that never is."""
    rounds, log = run_of(rule, name, seed)
    assert log and (rounds, log) == run_of(rule, "model", seed)


@pytest.mark.parametrize("name", ["staged", "staged medusa dynamic", "staged suffix"])
def test_sampled_drafts_follow_the_drafter_models_distribution(name: str) -> None:
    """Three drafts at once, against the product of the drafter's own distributions, and q says which they were."""
    processor, runs, pair = TopKProcessor(1.0, 3), 300, toy_pair()
    exact = joint(pair, TEXT, processor, 3)
    pair, _ = memorised(pair)
    drafter = build_drafter(name, pair)
    counts: Counter[tuple[int, ...]] = Counter()
    drafted = 0
    for seed in range(runs):
        seq = begun(drafter, pair, TEXT, processor, seed)
        proposal = proposal_of(drafter.propose(seq, FixedGamma(3), 9))
        counts[tuple(proposal.tokens.tolist())] += 1
        drafted += sum(len(one.drafts) for one in proposal.inner)
        assert proposal.draft_probs is not None
        chance = proposal.draft_probs.gather(1, proposal.tokens.unsqueeze(1)).prod().item()
        assert chance == pytest.approx(exact[tuple(proposal.tokens.tolist())], rel=1e-3)
    assert drafted > runs / 4, "nothing was drafted for the drafter model"
    often = [path for path, mass in exact.items() if mass * runs >= 5]
    seen, expected = [counts[path] for path in often], [exact[path] * runs for path in often]
    rest = max(runs - sum(expected), 1e-9)
    assert chisquare([*seen, runs - sum(seen)], [*expected, rest]).pvalue > FALSE_ALARM


def joint(pair: Pair, text: abc.Sequence[int], processor: LogitsProcessor, length: int) -> dict[tuple[int, ...], float]:
    """The drafter model's probability of every continuation, by enumeration."""
    runner, exact = pair.recomputing().drafter, {}
    assert runner is not None
    for path in product(range(VOCAB), repeat=length):
        runner.crop(0)
        p = processor(runner.forward([*text, *path[:-1]], rows=length).logits)
        exact[path] = float(torch.stack([p[row, token] for row, token in enumerate(path)]).prod())
    return exact


def begun(drafter: Any, pair: Pair, text: abc.Sequence[int], processor: LogitsProcessor, seed: int = 0) -> Sequence:
    seq = sequence(text, pair.target, processor, seed=seed)
    drafter.begin(seq)
    return seq


class Known(StagedDrafter):
    """Writes down what the head was asked with: the text, how many of its states were known, and its drafts."""

    def _drafts(self, seq: Sequence, text: Sequence, room: int) -> StepGenerator[Proposal]:
        made = yield from super()._drafts(seq, text, room)
        if len(made):
            self.asked.append(([*text.tokens], text.runner.length, made.tokens.tolist(), made.parents))
        return made

    asked: list[tuple[list[int], int, list[int], tuple[int, ...] | None]]


# Without caches a head reads its text anew in each round, whatever shape it drafts: chains behind rejections show it.
CACHES = [(True, tree, seed) for tree in ("chain", "dynamic") for seed in (1, None)] + [(False, "chain", 1)]


@pytest.mark.parametrize(("cached", "tree", "seed"), CACHES)
@pytest.mark.parametrize("kind", HEADS)
def test_a_head_drafts_what_a_fresh_one_does_whatever_was_rolled_back(
    kind: str, tree: str, cached: bool, seed: int | None
) -> None:
    """After rejections at every place, full acceptance at both stages, and rounds without drafts."""
    pair = toy_pair(seed) if cached else toy_pair(seed).recomputing()
    values = {**Settings(), "staged_drafter": kind, "draft_tree": tree, "tree_tokens": 5}
    fresh, model = INNER[kind].build(pair.of_drafter, values), ModelDrafter.build(pair, values)
    staged = Known(INNER[kind].build(pair.of_drafter, values), model)
    staged.asked = []
    rules = [FixedGamma(4), CONTROLLERS["ucb"].build(None, {}), CONTROLLERS["confidence"].build(None, {})]
    for rule in rules:
        list(suite.run(Case(lambda _: staged, lambda: rule, RejectionVerifier), pair, GreedyProcessor(), 24))  # noqa: B023
    assert len(staged.asked) > 12
    lags = Counter(len(tokens) - 1 - known for tokens, known, _, _ in staged.asked)
    assert set(lags) <= {0, 1} and (seed == 1 or lags[1]), lags
    for tokens, known, drafts, parents in staged.asked:
        slot = toy_runner(0 if seed is None else seed)
        seq = sequence(tokens[: known + 1], slot)
        seq.hidden = prefill(slot, tokens[:known], fresh.needs_hidden)
        fresh.begin(seq)
        seq.tokens = tokens
        steps = 1 + max(depth_of(parents, len(drafts)))
        again = proposal_of(fresh.propose(seq, FixedGamma(steps), steps))
        assert (again.tokens.tolist(), again.parents) == (drafts, parents)


def depth_of(parents: tuple[int, ...] | None, count: int) -> list[int]:
    depth: list[int] = []
    for row in range(count):
        parent = row - 1 if parents is None else parents[row]
        depth.append(0 if parent < 0 else depth[parent] + 1)
    return depth


@pytest.mark.parametrize(("steps", "forwards"), [(0, 6), (1, 3), (2, 2), (5, 1), (9, 1)])
def test_right_drafts_for_the_drafter_model_save_its_forwards(steps: int, forwards: int) -> None:
    """Its twin as a copier's text: everything is accepted, and the next token comes with each forward."""
    pair = toy_pair()
    pair = replace(pair, drafter=Counting(pair.drafter.model))  # type: ignore[union-attr]
    alone = build_drafter("model", pair)
    expected = proposal_of(alone.propose(begun(alone, pair, TEXT, GreedyProcessor()), FixedGamma(6), 9)).tokens.tolist()

    class Told(Rote):
        said = expected

    drafter = StagedDrafter(Told(), ModelDrafter.build(pair, {"draft_weights": "full"}), steps)
    seq = begun(drafter, pair, TEXT, GreedyProcessor())
    Counting.forwards = 0
    proposal = proposal_of(drafter.propose(seq, FixedGamma(6), 9))
    assert proposal.tokens.tolist() == expected
    assert Counting.forwards == len(proposal.inner) == forwards
    assert sum(one.accepted for one in proposal.inner) == 6 - forwards


class Rote:
    """A copier that knows what the drafter model will say."""

    needs_hidden = ()
    said: abc.Sequence[int] = ()

    def begin(self, seq: Sequence) -> None: ...
    def continuation(self, seq: Sequence, pending: abc.Sequence[int], limit: int) -> abc.Sequence[int]:
        return self.said[len(pending) : len(pending) + limit]


def test_the_account_tells_what_drafting_for_the_drafter_model_brought() -> None:
    engine = PairEngine(toy_pair(None))
    account, alone = RunMetrics(), RunMetrics()
    for name, metrics in (("staged", account), ("speculative", alone)):
        for event in engine.stream(name, {**Settings(), "length": 30}, PROMPT):
            metrics.add(event)
    assert account.output_ids == alone.output_ids and account.tested_at == alone.tested_at
    assert account.inner_rounds is not None and account.inner_tested and account.inner_accepted is not None
    assert account.drafted / 3 <= account.inner_rounds <= account.drafted
    assert account.inner_accepted <= account.inner_tested
    assert (alone.inner_rounds, alone.inner_tested, alone.inner_accepted, stages(alone)) == (None, None, None, None)
    none_of_it = SimpleNamespace(drafted=6, inner_rounds=4, inner_tested=5, inner_accepted=0)
    assert stages(none_of_it) == (
        "1.50 drafts a forward of the drafter model, which accepted 0% of the drafts for it that it judged"
    )
    said = stages(account)
    assert said is not None and f"{account.drafted / account.inner_rounds:.2f} drafts a forward" in said
    assert f"{account.inner_accepted / account.inner_tested:.0%}" in said


def test_a_head_that_cannot_read_the_drafter_models_states_is_refused_by_name() -> None:
    pair, settings = replace(toy_pair(), drafter_heads={}), Settings()
    said = pair.lacks(METHODS["staged"], settings)
    assert said == no_head("mtp", "toy", "toy", encoder=False)
    assert not lacking(said, "mtp", "toy", "self:int8", "self:int4", "staged_drafter")
    with refused(said):
        DRAFTERS["staged"].build(pair, settings)
    settings.assign("staged_drafter", "suffix")
    assert pair.lacks(METHODS["staged"], settings) is None
    none = replace(toy_pair(), drafter=None)
    for copier in ("suffix", "mtp"):
        settings.assign("staged_drafter", copier)
        assert none.lacks(METHODS["staged"], settings) == none.lack("model")


def test_trees_for_a_drafter_model_of_chains_are_refused() -> None:
    pair = toy_pair()
    assert pair.drafter is not None
    chains = replace(pair, drafter=ModelRunner(replace(pair.drafter.model, trees=False)))  # type: ignore[type-var]
    settings = Settings()
    assert DRAFTERS["staged"].build(chains, settings)
    settings.assign("draft_tree", "dynamic")
    with refused("draft_tree chain"):
        DRAFTERS["staged"].build(chains, settings)
