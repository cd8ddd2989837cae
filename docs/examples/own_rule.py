"""A draft-length rule of one's own, compared with a fixed length under the same drafter model.

    uv run docs/examples/own_rule.py

The rule drafts `gamma` tokens after a round that accepted all drafts, and one after a rejection. Prints its row and the
fixed length's, each against plain decoding (AR), then the drafts of each round. The rule wastes fewer drafts.
"""

import pandas as pd

from egag.length_rule import LengthRule
from sampling import LoadOptions, compare, load_pair, register
from sampling.methods.method import Method
from sampling.methods.parameters import GAMMA
from sampling.methods.part import Part
from utils.events import Round


class CautiousGamma(LengthRule):
    """gamma drafts after a round that accepted everything, else one."""

    def __init__(self, gamma: int = 4) -> None:
        self.most = self.gamma = gamma

    @classmethod
    def build(cls, pair, values):
        return cls(values["gamma"])

    def begin(self) -> None:
        self.gamma = self.most

    def update(self, round: Round) -> None:
        if round.drafts:
            self.gamma = self.most if len(round.path) == len(round.drafts) else 1


def main() -> None:
    rule = Part("cautious", f"{__name__}:CautiousGamma", "one draft after a rejection", parameters=(GAMMA,))
    register(Method("cautious", "SD cautious", rule.help, drafter="model", controller="cautious"), rule=rule)
    runs = compare(
        load_pair(LoadOptions(dtype="float32")), "Why is the sky blue?", ["speculative", "cautious"], length=32
    )
    print(pd.DataFrame([run.row for run in runs.values()]).round(2).to_string(index=False, na_rep="-"))
    for name in ("speculative", "cautious"):
        print(f"drafts of each round, {name}:", *(len(round.drafts) for round in runs[name].rounds))


if __name__ == "__main__":
    main()
