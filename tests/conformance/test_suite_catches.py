"""The suite must fail on the classic bugs: each is planted here, and each must be caught."""

from collections import abc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from egag.length_rule import FixedGamma, LengthRule
from ngram_assisted.nasd import NgramDrafter
from ngram_assisted.ngram_storage import NGramStorage
from ngram_assisted.prompt_lookup import PromptLookupDrafter
from ngram_assisted.suffix import SuffixDrafter
from ngram_assisted.suffix_text import TextTree
from sampling import rounds
from sampling.drafter import Drafter
from sampling.drafters import forward_drafter, model
from sampling.drafters.heads.medusa_hydra import MedusaDrafter
from sampling.drafters.model import ModelDrafter
from sampling.forward import runner
from sampling.forward.caches import cache
from sampling.forward.requests import StepGenerator
from sampling.forward.tree import depths
from sampling.loop import decode
from sampling.methods.tables import DRAFTERS
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.verify import rejection, verify
from sampling.verify.match import TargetMatchVerifier
from sampling.verify.proposals import ProposalBatch
from sampling.verify.rejection import RejectionVerifier
from sampling.verify.verdict import DeviceVerdict
from tests.conformance import suite
from tests.conformance.suite import Case
from tests.conformance.toy import toy_pair
from tests.conformance.trees import PointTreeDrafter, TreeDrafter
from utils.events import Event, Round
from utils.logits_processor import GreedyProcessor, MultinomialProcessor

CHAIN = Case(lambda pair: DRAFTERS["model"].build(pair, {}), lambda: FixedGamma(4), RejectionVerifier)
TREE = Case(lambda pair: TreeDrafter.build(pair, {}), lambda: FixedGamma(2), RejectionVerifier)
POINT_TREE = Case(lambda pair: PointTreeDrafter.build(pair, {}), lambda: FixedGamma(2), RejectionVerifier)
LOOKUP = Case(lambda pair: PromptLookupDrafter(), lambda: FixedGamma(4), RejectionVerifier)
SUFFIX = Case(lambda pair: SuffixDrafter(), lambda: FixedGamma(4), RejectionVerifier)
SUFFIX_TREE = Case(lambda pair: SuffixDrafter(64, -1, 4.0, 0.0, True), lambda: FixedGamma(4), RejectionVerifier)
VALUES = {"draft_weights": "full", "draft_tree": "best_first", "tree_width": 4, "tree_tokens": 6}
BEST_FIRST = Case(lambda pair: MedusaDrafter.build(pair, VALUES), lambda: FixedGamma(3), RejectionVerifier)


def test_the_unbroken_engine_passes() -> None:
    """Without a planted bug the same calls pass: the alarms below come from the bugs."""
    for case in (CHAIN, TREE, POINT_TREE, LOOKUP, SUFFIX, SUFFIX_TREE, BEST_FIRST):
        suite.check_greedy(case, toy_pair())
        suite.check_law(case, toy_pair(), MultinomialProcessor(1.0))
    for case in (CHAIN, LOOKUP, SUFFIX, SUFFIX_TREE, BEST_FIRST):
        suite.check_redraft(case, toy_pair())
    suite.check_self_draft(CHAIN, toy_pair(drafter_seed=None), GreedyProcessor())


def test_a_target_cache_that_is_not_cropped(monkeypatch: pytest.MonkeyPatch) -> None:
    crop = cache.RollbackCache.crop
    monkeypatch.setattr(cache.RollbackCache, "crop", lambda self, length: None if length else crop(self, 0))
    with pytest.raises((AssertionError, ValueError)):
        suite.check_greedy(CHAIN, toy_pair())


def test_a_drafter_cache_that_keeps_rejected_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output stays right, acceptance falls: only the redraft sees it."""

    class Stale(ModelDrafter):
        def observe(self, seq: Sequence, round: Round) -> None:
            pass

        def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
            slot = seq.drafter_state[self]
            crop = slot.crop
            slot.crop = lambda length: crop(min(slot.length, length + 1))
            try:
                return (yield from super().propose(seq, gamma, limit))
            except ValueError:
                return Proposal.empty(seq.device)
            finally:
                slot.crop = crop

    stale = Case(lambda pair: Stale(pair.drafter), lambda: FixedGamma(4), RejectionVerifier)
    suite.check_greedy(stale, toy_pair())
    with pytest.raises(AssertionError):
        suite.check_redraft(stale, toy_pair(), honest=CHAIN)


def test_tree_rows_that_are_not_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache.RollbackCache, "move", lambda self, source, target: None)
    with pytest.raises(AssertionError):
        suite.check_greedy(POINT_TREE, toy_pair())


def test_positions_counted_by_row_instead_of_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "positions", lambda length, count, *_: torch.arange(length, length + count))
    with pytest.raises(AssertionError):
        suite.check_greedy(POINT_TREE, toy_pair())


def test_a_tree_whose_branches_see_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def causal(length: int, count: int, *_: object) -> Tensor:
        return torch.ones(count, length + count, dtype=torch.bool).tril(length)

    monkeypatch.setattr(cache, "seen", causal)
    with pytest.raises(AssertionError):
        suite.check_greedy(POINT_TREE, toy_pair())


@pytest.mark.parametrize("case", [CHAIN, TREE], ids=["chain", "tree"])
def test_a_recovered_token_drawn_from_p(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    monkeypatch.setattr(rejection, "residual", lambda p, q: p)
    with pytest.raises(AssertionError):
        suite.check_distribution(case, toy_pair(), MultinomialProcessor(1.0))


def test_a_residual_that_forgets_the_siblings_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Siblings judged by the first one's q instead of the distribution they were drawn from."""
    siblings = RejectionVerifier._siblings

    def forgetful(self: RejectionVerifier, batch: Any, tree: Any, p: torch.Tensor, rng: Any) -> Any:
        first = tree.draft_probs[:1].expand_as(tree.draft_probs)
        return siblings(self, batch, replace(tree, draft_probs=first), p, rng)

    monkeypatch.setattr(RejectionVerifier, "_siblings", forgetful)
    with pytest.raises(AssertionError):
        suite.check_sibling_distribution(RejectionVerifier())


def test_q_read_before_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts drawn from the processed distribution but judged against the raw one."""
    propose = ModelDrafter.propose

    def raw(self: ModelDrafter, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        proposal = yield from propose(self, seq, gamma, limit)
        flat = (
            None
            if proposal.draft_probs is None
            else torch.full_like(proposal.draft_probs, 1 / proposal.draft_probs.shape[1])
        )
        return Proposal(proposal.tokens, None, flat, proposal.first_entropy)

    monkeypatch.setattr(ModelDrafter, "propose", raw)
    with pytest.raises(AssertionError):
        suite.check_distribution(CHAIN, toy_pair(), MultinomialProcessor(1.0))


def test_a_controller_that_drops_a_drawn_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unsure draft that is drawn and then thrown away biases the distribution."""
    propose = ModelDrafter.propose

    def dropping(self: ModelDrafter, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        proposal = yield from propose(self, seq, gamma, limit)
        if not len(proposal) or proposal.draft_probs is None or proposal.draft_probs[-1, proposal.tokens[-1]] >= 0.4:
            return proposal
        return Proposal(proposal.tokens[:-1], None, proposal.draft_probs[:-1], proposal.first_entropy)

    monkeypatch.setattr(ModelDrafter, "propose", dropping)
    with pytest.raises(AssertionError):
        suite.check_distribution(
            Case(CHAIN.drafter, lambda: FixedGamma(1), RejectionVerifier), toy_pair(), MultinomialProcessor(1.0)
        )


def test_a_stop_token_overlooked_inside_a_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(round: Round, stop: object) -> Round:
        return round

    monkeypatch.setattr(rounds, "_cut", blind)
    caught = 0
    for token in range(6):
        pair = toy_pair(drafter_seed=None, stop=frozenset({token}))
        try:
            suite.check_greedy(CHAIN, pair)
        except AssertionError:
            caught += 1
    assert caught


def test_a_bonus_token_after_a_rejection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token from the row after the rejected draft instead of the row it was judged by."""
    honest = verify.follow

    def shifted(batch: ProposalBatch, wanted: Tensor) -> DeviceVerdict:
        verdict = honest(batch, wanted)
        rejected = verdict.end + 1
        return replace(verdict, token=wanted[rejected + (rejected < batch.total)])

    monkeypatch.setattr(verify, "follow", shifted)
    with pytest.raises(AssertionError):
        suite.check_greedy(Case(CHAIN.drafter, CHAIN.gamma, TargetMatchVerifier), toy_pair())


def test_counts_that_leak_into_the_next_prompt() -> None:
    """A storage that is not reset drafts what another prompt taught it."""

    class Leaking(NgramDrafter):
        def __init__(self) -> None:
            super().__init__(NGramStorage(3), top_k_filler=1, reset=False)

    def drafted(drafter: NgramDrafter) -> list[tuple[int, ...]]:
        case = Case(lambda pair: drafter, lambda: FixedGamma(4), RejectionVerifier)
        suite.run(case, toy_pair(), GreedyProcessor(), 20, prompt=(5, 5, 3, 1))
        return [
            round.drafts for round in suite.run(case, toy_pair(), GreedyProcessor(), 20) if isinstance(round, Round)
        ]

    fresh = Case(lambda pair: NgramDrafter(NGramStorage(3), 1), lambda: FixedGamma(4), RejectionVerifier)
    alone = [round.drafts for round in suite.run(fresh, toy_pair(), GreedyProcessor(), 20) if isinstance(round, Round)]
    assert drafted(NgramDrafter(NGramStorage(3), top_k_filler=1)) == alone
    assert drafted(Leaking()) != alone


def test_self_drafting_sees_a_shifted_drafter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter that reads one token too few still leaves the output right; self-drafting sees it."""

    def late(slot: runner.Runner, tokens: abc.Sequence[int]) -> StepGenerator[runner.Output]:
        output = yield from runner.request_catch_up(slot, tokens)
        return runner.Output(output.logits.roll(1, -1), output.hidden)

    monkeypatch.setattr(model, "request_catch_up", late)
    suite.check_greedy(CHAIN, toy_pair(drafter_seed=None))
    with pytest.raises(AssertionError):
        suite.check_self_draft(CHAIN, toy_pair(drafter_seed=None), GreedyProcessor())


@pytest.mark.parametrize("case", [SUFFIX_TREE, BEST_FIRST], ids=["suffix tree", "best-first tree"])
def test_siblings_that_stay_in_the_residual(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    """Alternatives of a tree, each a point mass: rejected ones must leave the distribution."""
    monkeypatch.setattr(RejectionVerifier, "rest", lambda self, p, q: p)
    with pytest.raises(AssertionError):
        suite.check_distribution(case, toy_pair(), MultinomialProcessor(1.0))


def test_likeliest_tokens_judged_as_if_they_were_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heads' distributions handed over as q, though nothing was drawn from them."""
    honest = forward_drafter.best_first

    def drawn(logits: Tensor, most: int, rule: LengthRule) -> Proposal:
        proposal = honest(logits, most, rule)
        places = [depth - 1 for depth in depths(proposal.parent_rows)]
        return replace(proposal, draft_probs=torch.softmax(logits.float(), -1)[places])

    monkeypatch.setattr(forward_drafter, "best_first", drawn)
    suite.check_greedy(BEST_FIRST, toy_pair())
    with pytest.raises(AssertionError):
        suite.check_distribution(BEST_FIRST, toy_pair(), MultinomialProcessor(1.0))


class MixedUp(MedusaDrafter):
    def ahead(self, seq: Sequence, depth: int) -> StepGenerator[Tensor]:
        return (yield from super().ahead(seq, depth)).roll(1, 0)


def test_heads_whose_places_are_mixed_up() -> None:
    """Output stays right: only the redraft sees it."""
    mixed_up = Case(lambda pair: MixedUp.build(pair, VALUES), BEST_FIRST.gamma, RejectionVerifier)
    suite.check_greedy(mixed_up, toy_pair())
    with pytest.raises(AssertionError):
        suite.check_redraft(mixed_up, toy_pair(), honest=BEST_FIRST)


def test_the_first_occurrence_in_place_of_the_latest() -> None:
    """Output stays right: only the redraft sees it."""
    mixed_up = Case(lambda pair: PromptLookupDrafter(lookup_occurrence="first"), LOOKUP.gamma, RejectionVerifier)
    suite.check_greedy(mixed_up, toy_pair())
    with pytest.raises(AssertionError):
        suite.check_redraft(mixed_up, toy_pair(), honest=LOOKUP)


def test_an_index_that_misses_what_a_round_emitted() -> None:
    class Deaf(PromptLookupDrafter):
        def begin(self, seq: Sequence) -> None:
            super().begin(seq)
            seq.drafter_state[self].read = lambda tokens: None

    with pytest.raises(AssertionError):
        suite.check_redraft(Case(lambda pair: Deaf(), LOOKUP.gamma, RejectionVerifier), toy_pair(), honest=LOOKUP)


def test_counts_that_are_not_split_from_longer_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suffix automaton without its clones: it drafts what never followed."""
    monkeypatch.setattr(TextTree, "_split", lambda self, state, token: self._next[state][token])
    broken = _drafts(SUFFIX)
    monkeypatch.undo()
    assert broken != _drafts(SUFFIX)


@pytest.mark.parametrize("case", [LOOKUP, SUFFIX, SUFFIX_TREE], ids=["lookup", "suffix", "suffix tree"])
def test_a_text_that_leaks_into_the_next_prompt(case: Case) -> None:
    """A drafter that keeps the last prompt's index drafts otherwise; the real one, closed early, does not."""
    used, leaking, kept = case.drafter(toy_pair()), case.drafter(toy_pair()), list[Any]()
    begin = leaking.begin

    def spied(seq: Sequence) -> None:
        begin(seq)
        kept.append(seq.drafter_state[leaking])

    leaking.begin = spied  # type: ignore[method-assign]
    for drafter in (used, leaking):
        for _ in zip(range(6), _stream(case, drafter, (3, 3, 1, 5)), strict=False):
            pass

    def stale(seq: Sequence) -> None:
        seq.drafter_state[leaking] = kept[-1]

    leaking.begin = stale  # type: ignore[method-assign]
    assert _drafts(case, used) == _drafts(case)
    with pytest.raises((AssertionError, KeyError)):
        assert _drafts(case, leaking) == _drafts(case)


def _stream(case: Case, drafter: Drafter, prompt: tuple[int, ...]) -> Iterator[Event]:
    pair = toy_pair()
    return decode(
        pair.target, drafter, case.gamma(), case.verifier(), GreedyProcessor(), prompt, max_new_tokens=20, seed=0
    )


def _drafts(case: Case, drafter: Drafter | None = None) -> list[tuple[int, ...]]:
    return [
        event.drafts
        for event in suite.run(case, toy_pair(), GreedyProcessor(), 20, drafter=drafter)
        if isinstance(event, Round)
    ]
