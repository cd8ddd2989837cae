"""What is asked of all texts of a round at once: chains, states, verdicts. A text is what it is alone."""

from dataclasses import replace
from typing import Any

import pytest

from sampling.batch import Batch, decode_many
from sampling.drafters import chains, forward_drafter
from sampling.forward.runner import ModelRunner
from sampling.forward.sharing import SharedRunner
from sampling.heads.recurrent_graphs import RecurrentGraphs
from sampling.heads.recurrent_runner import RecurrentRunner
from sampling.pair.kept.heads import KeptHeads
from sampling.scheduling.live_text import Request
from sampling.verify import proposals
from tests.conformance.matrix import case
from tests.conformance.test_batches import (
    GREEDY,
    LENGTHS,
    PROMPTS,
    SAMPLED,
    STOP,
    Course,
    alone,
    check,
    pair,
    seed_of,
    weights,
)
from utils.events import Event
from utils.logits_processor import LogitsProcessor

STEPPED = ["model", "mtp", "eagle"]
BY_TEXT: list[LogitsProcessor] = [GREEDY, SAMPLED[0], SAMPLED[1], SAMPLED[0]]


@pytest.mark.parametrize("drafter", STEPPED)
@pytest.mark.parametrize("processor", [GREEDY, *SAMPLED], ids=["greedy", "multinomial", "nucleus"])
def test_chains_are_drawn_side_by_side(
    drafter: str, processor: LogitsProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one text's after the other's, where a rule counts drafts and no more."""
    sizes, honest = list[int](), chains.draft_chains

    def noted(steps: Any, seqs: Any, *more: Any) -> Any:
        sizes.append(len(seqs))
        return honest(steps, seqs, *more)

    monkeypatch.setattr(forward_drafter, "draft_chains", noted)
    check((drafter,), processor, (8,))
    assert max(sizes) > 4


@pytest.mark.parametrize("drafter", ["none", *STEPPED, "suffix"])
def test_texts_of_several_processors_share_a_round(drafter: str) -> None:
    """Greedy ones beside drawn ones: each has the draws that it has alone."""
    one, numbers = case(drafter, forgetful=True), range(len(PROMPTS))
    by_text = [BY_TEXT[number % len(BY_TEXT)] for number in numbers]
    asked = [Request(list(PROMPTS[at]), by_text[at], LENGTHS[at], seed_of(at), STOP, tag=at) for at in numbers]
    batch = Batch(SharedRunner(weights(0)), one.drafter(pair(shared=True)), one.gamma, one.verifier(), 8)
    events: dict[int, list[Event]] = {at: [] for at in numbers}
    for live, event in decode_many(batch, asked):
        events[live.request.tag].append(event)
    assert [Course.of(events[at]) for at in numbers] == [alone((drafter,), by_text[at])[at] for at in numbers]


@pytest.mark.parametrize("drafter", ["eagle", "mtp", "mtp dynamic tree", "parallel_eagle"])
def test_heads_of_many_texts_are_captured(drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their forwards have fixed shapes as those of one text have, and few of them."""
    made, honest = list[RecurrentGraphs](), RecurrentRunner.__init__

    def noted(self: RecurrentRunner, forward: Any, graphs: bool = False) -> None:
        honest(self, forward, graphs)
        made.append(self.graphs)  # type: ignore[arg-type]

    monkeypatch.setattr(RecurrentRunner, "__init__", noted)
    one = case(drafter, forgetful=True)
    shared = replace(pair(shared=True), target=ModelRunner.with_graphs(weights(0)), kept_heads=KeptHeads())
    batch = Batch(SharedRunner(weights(0), fixed_shapes=True), one.drafter(shared), one.gamma, one.verifier(), 8)
    events: dict[int, list[Event]] = {at: [] for at in range(len(PROMPTS))}
    for live, event in decode_many(
        batch, [Request(list(PROMPTS[at]), GREEDY, LENGTHS[at], seed_of(at), STOP, tag=at) for at in events]
    ):
        events[live.request.tag].append(event)
    assert [Course.of(told) for told in events.values()] == alone((drafter,), GREEDY)
    assert 0 < made[0].many.shapes <= 40


def test_verdicts_of_a_round_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One layout and one read for all texts, however many there are."""
    sizes, honest = list[int](), proposals.ProposalBatch.__init__

    def noted(self: Any, members: Any, device: Any) -> None:
        sizes.append(len(members))
        honest(self, members, device)

    monkeypatch.setattr(proposals.ProposalBatch, "__init__", noted)
    one = case("model", forgetful=True)
    batch = Batch(SharedRunner(weights(0)), one.drafter(pair(shared=True)), one.gamma, one.verifier(), 4)
    for at in range(4):
        batch.admit(Request(list(PROMPTS[at]), SAMPLED[0], 8, seed_of(at), STOP, tag=at))
    batch.play()
    assert sizes == [4]


def test_planted_a_draft_that_goes_to_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains that are handed to other texts are drafts that are worse, which shows in the rounds."""
    alone(("model",), GREEDY)
    honest = chains.draft_chains
    monkeypatch.setattr(forward_drafter, "draft_chains", lambda *given: honest(*given)[::-1])
    with pytest.raises((AssertionError, RuntimeError)):
        check(("model",), GREEDY, (3,))
