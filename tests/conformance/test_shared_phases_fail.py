"""What is asked of all texts of a round at once fails: each is asked by itself, and says what it says alone."""

from collections.abc import Callable
from typing import Any

import pytest

from sampling.drafters import forward_drafter
from sampling.drafters.drawing import BestToken, Drawing
from sampling.drafters.heads.head_drafter import HeadDrafter
from sampling.forward.sharing import SharedRunner
from sampling.heads.recurrent_runner import RecurrentRunner
from sampling.verify.rejection import RejectionVerifier
from sampling.verify.verify import EagerVerification
from tests.conformance.test_batches import GREEDY, SAMPLED, alone, check
from utils.logits_processor import LogitsProcessor

# Where a phase for many is, and how many it is asked of.
PHASES: dict[str, tuple[Any, str, Callable[..., int]]] = {
    "chains": (forward_drafter, "draft_chains", lambda steps, seqs, *more: len(seqs)),
    "rows": (SharedRunner, "_counted", lambda self, feeds, *rest: len(feeds)),
    "rows of a head": (RecurrentRunner, "run", lambda self, feeds: len(feeds)),
    "best drafts": (BestToken, "run", lambda self, feeds: len(feeds)),
    "drawn drafts": (Drawing, "run", lambda self, feeds: len(feeds)),
    "verdicts": (EagerVerification, "run", lambda self, feeds, flat=None: len(feeds)),
    "a rule": (RejectionVerifier, "decide", lambda self, batch, p, rngs: len(batch.counts)),
    "lessons": (HeadDrafter, "observe_together", lambda self, seqs, rounds: len(seqs)),
}
BEFORE = ("rows", "rows of a head", "best drafts", "drawn drafts", "lessons")
MET = [
    ("chains", "model", SAMPLED[0]),
    ("chains", "mtp", GREEDY),
    ("chains", "eagle", SAMPLED[0]),
    ("rows", "none", GREEDY),
    ("rows", "model", SAMPLED[0]),
    ("rows", "mtp", GREEDY),
    ("rows of a head", "mtp dynamic tree", GREEDY),
    ("best drafts", "model egag", GREEDY),
    ("drawn drafts", "model egag", SAMPLED[0]),
    ("verdicts", "model", SAMPLED[0]),
    ("verdicts", "mtp dynamic tree", SAMPLED[0]),
    ("a rule", "model", SAMPLED[0]),
    ("lessons", "mtp", SAMPLED[0]),
]


@pytest.mark.parametrize(("phase", "drafter", "processor"), MET)
def test_each_text_is_asked_by_itself(
    phase: str, drafter: str, processor: LogitsProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind all that it does for many, where that is taken back; its numbers are drawn once more."""
    parts = ("model", "egag") if drafter == "model egag" else (drafter,)
    alone(parts, processor)
    owner, name, count = PHASES[phase]
    honest, failures = getattr(owner, name), list[int]()

    def failing(*given: Any) -> Any:
        if phase in BEFORE and count(*given) > 1:
            failures.append(count(*given))
            raise ZeroDivisionError("planted")
        found = honest(*given)
        if count(*given) > 1:
            failures.append(count(*given))
            raise ZeroDivisionError("planted")
        return found

    monkeypatch.setattr(owner, name, failing)
    check(parts, processor, (3,))
    assert failures
