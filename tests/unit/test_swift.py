"""SWIFT: which layers are left out, and how others are tried."""

from dataclasses import replace

import pytest
import torch

from egag.controller import FixedGamma
from sampling.drafters.swift import Search, SwiftDrafter, evenly, neighbour, promise
from sampling.events import Round
from sampling.forward.encoder_decoder import EncoderDecoderModel
from sampling.forward.runner import Skippable
from sampling.methods import METHODS
from sampling.pair import LAYERS
from sampling.settings import Settings
from tests.conformance import suite
from tests.conformance.matrix import case
from tests.conformance.test_runners import lean_pair, weights
from tests.conformance.toy import PROMPT
from tests.sequences import sequence
from utils.coins import Draws
from utils.errors import UserError
from utils.logits_processor import GreedyProcessor, MultinomialProcessor


def test_layers_are_left_out_evenly_and_the_ends_stay() -> None:
    assert evenly(6, 0.5) == (0, 2, 5)
    assert evenly(30, 0.0) == tuple(range(30))
    assert evenly(1, 0.9) == evenly(2, 0.5) == (0,)
    for skip in (0.1, 0.45, 0.8):
        kept = evenly(30, skip)
        assert len(set(kept)) == round(30 * (1 - skip)) and (kept[0], kept[-1]) == (0, 29)


def test_a_neighbour_differs_by_a_layer_or_two_and_is_never_empty() -> None:
    draws, sizes = Draws(0), set()
    for position in range(200):
        draws.at(position)
        other = neighbour((0, 3, 4), 5, draws)
        assert other == tuple(sorted(set(other))) and other and max(other) < 5
        sizes.add(len(set(other) ^ {0, 3, 4}))
        draws.at(position)
        assert neighbour((2,), 3, draws)
    assert sizes == {1, 2}


def test_a_set_is_worth_what_it_brings_over_what_it_costs() -> None:
    assert promise(0.5, 0.5) == pytest.approx(1.0)  # one draft: 1.5 tokens in 1.5 forwards
    assert promise(0.8, 0.2) == pytest.approx(
        max(sum(0.8**n for n in range(k + 1)) / (1 + 0.2 * k) for k in range(1, 9))
    )
    assert promise(0.8, 0.9) < 1.0 < promise(0.9, 0.5)


def test_a_model_without_some_layers_shares_its_weights() -> None:
    model = weights(0)
    part = model.through((1,))
    assert part.num_layers == 1 and part.layers[0] is model.layers[1] and part.embedding is model.embedding
    whole, other = model.through((0, 1)).new_cache(), part.new_cache()
    assert (len(whole.layers), len(other.layers)) == (2, 1)


def test_the_whole_model_is_accepted_whole() -> None:
    """Nothing left out, nothing searched: a drafter that is the target."""
    one = replace(case("swift"), drafter=lambda pair: SwiftDrafter(pair, swift_skip=0.0, swift_trials=0))
    for processor in (GreedyProcessor(), MultinomialProcessor(1.0)):
        suite.check_self_draft(one, lean_pair(fixed=False), processor)


def test_the_search_keeps_the_better_of_two_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer 1 alone agrees always, the others never."""
    pair = lean_pair(fixed=False)
    drafter = SwiftDrafter(pair, swift_skip=0.5, swift_trials=20, swift_window=1)
    assert drafter.start == (0,)
    monkeypatch.setattr(SwiftDrafter, "agreement", lambda self, seq, layers: float(layers == (1,)))
    one = replace(case("swift"), drafter=lambda pair: drafter)
    rounds = [event for event in suite.run(one, pair, GreedyProcessor(), 40) if isinstance(event, Round)]
    assert drafter.found.layers == (1,) and 0 < drafter.found.tried <= len(rounds)
    assert drafter.memory() == f"1 of 2 layers, the best of {drafter.found.tried + 1} sets"


def test_no_more_sets_are_tried_than_asked_and_none_on_fewer_tokens_than_the_window() -> None:
    for trials, window, expected in ((0, 1, 0), (3, 1, 3), (50, 60, 0)):
        drafter = SwiftDrafter(lean_pair(fixed=False), 0.5, trials, window)
        suite.run(
            replace(case("swift"), drafter=lambda pair, made=drafter: made), lean_pair(False), GreedyProcessor(), 30
        )
        assert drafter.found.tried == expected


def test_agreement_is_that_of_the_layers_with_the_text() -> None:
    """All layers agree with what the target said; with both ends of a longer text read, and no more of it."""
    pair = lean_pair(fixed=False)
    text = [*PROMPT, *suite.greedy_reference(pair, 8)]
    drafter = SwiftDrafter(pair, swift_window=8)
    seq = sequence(text, pair.target, prompt_length=len(PROMPT))
    assert drafter.agreement(seq, (0, 1)) == 9 / 10
    seq.tokens[-1] = (seq.tokens[-1] + 1) % 6
    assert drafter.agreement(seq, (0, 1)) == 8 / 10
    assert len(text) < 2 * 8 + 1


def test_what_was_found_goes_on_where_it_is_to_be_remembered() -> None:
    pair = lean_pair(fixed=False)
    earlier = SwiftDrafter(pair)
    earlier.found = Search((1,), 7)
    for remember, expected in ((True, Search((1,), 7)), (False, Search((0,), 0))):
        later = SwiftDrafter(pair, swift_remember=remember)
        later.adopt(earlier)
        assert later.found == expected and bool(later.memory()) == remember
    earlier.found = Search((9,), 7)
    later = SwiftDrafter(pair)
    later.adopt(earlier)
    assert later.found == Search((0,)), "a layer that this target has not"


def test_a_change_within_a_text_drafts_what_the_new_layers_say() -> None:
    """A drafter that changed its layers at some place drafts there what one drafts that always had them."""
    pair = lean_pair(fixed=False)
    text = [*PROMPT, *suite.greedy_reference(pair, 10)]
    seq = sequence(text, pair.target, prompt_length=len(PROMPT))
    changing, steady = SwiftDrafter(pair, swift_window=4), SwiftDrafter(pair, swift_trials=0)
    steady.found = Search((1,))
    with torch.inference_mode():
        changing.begin(seq)
        steady.begin(seq)
        changing.agreement = lambda seq, layers: float(layers == (1,))  # type: ignore[method-assign]
        changing._try(seq, seq.drafting[changing], (1,))
        drafts = [one.propose(seq, FixedGamma(4), 4).tokens.tolist() for one in (changing, steady)]
    assert seq.drafting[changing].layers == (1,) and drafts[0] == drafts[1]


def test_a_target_whose_layers_cannot_be_left_out_is_refused_by_name() -> None:
    class Opaque:
        """A model with nothing to take out."""

    pair = lean_pair(fixed=False)
    target = pair.target.another()
    target.model = Opaque()  # type: ignore[assignment]
    other = replace(pair, target=target)
    assert not issubclass(EncoderDecoderModel, Skippable)
    with pytest.raises(UserError, match=r"layers of lean cannot be left out.*start with a model that has a lean"):
        SwiftDrafter.build(other, {})
    assert "cannot be left out" in str(other.lacks(METHODS["swift"], Settings()))
    assert METHODS["swift"].needs(Settings()) == LAYERS
