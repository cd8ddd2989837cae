"""The common base of drafters whose model has another tokenizer."""

from collections.abc import Mapping
from typing import Any, Self

from sampling.drafter import Drafter
from sampling.forward.runner import Runners
from sampling.pair.drafting_pair import DraftingPair
from sampling.sequence import Sequence
from sampling.vocabularies.crossing import Crossing
from sampling.vocabularies.own_text import OwnText


class CrossingDrafter(Drafter):
    """The model reads the text in its own tokens; `crossing` maps them to the target's tokens."""

    keeps_rows = True

    def __init__(self, runner: Runners, crossing: Crossing) -> None:
        self.runner, self.crossing = runner, crossing

    @classmethod
    def build(cls, pair: DraftingPair, values: Mapping[str, Any]) -> Self:
        assert pair.crossing is not None, "one tokenizer needs no crossing"
        return cls(pair.drafting(values["draft_weights"]), pair.crossing)

    def begin(self, seq: Sequence) -> None:
        text = seq.drafter_state[self] = OwnText(self.runner.another(), self.crossing)
        text.begin(seq.tokens)
