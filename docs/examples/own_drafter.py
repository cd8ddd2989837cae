"""A drafter of one's own, registered as a method and compared with plain decoding.

    uv run docs/examples/own_drafter.py

The drafter runs no model. It drafts what followed the last token when that token stood in the text before. Prints its
row beside plain decoding (AR), NASD and the control (AR again). Its text is `exact`: a bad drafter costs time alone.
"""

import pandas as pd
import torch

from egag.length_rule import LengthRule
from sampling import LoadOptions, compare, load_pair, register
from sampling.drafter import Drafter
from sampling.methods.method import Method
from sampling.methods.part import Part
from sampling.proposal import Proposal
from sampling.sequence import Sequence


class AsBeforeDrafter(Drafter):
    """Drafts what followed the last token at its last place before."""

    @classmethod
    def build(cls, pair, values):
        return cls()

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        last, before = seq.tokens[-1], seq.tokens[:-1]
        place = max((i for i, token in enumerate(before) if token == last), default=len(before))
        drafts = before[place + 1 :][: min(gamma.gamma, limit)]
        return Proposal(torch.tensor(drafts, dtype=torch.long, device=seq.device))


def main() -> None:
    part = Part("as_before", f"{__name__}:AsBeforeDrafter", "what followed the last token before")
    register(Method("as_before", "As before", part.help, drafter="as_before"), drafter=part)
    pair = load_pair(LoadOptions(dtype="float32"))
    prompt = "Say the numbers from 1 to 40."
    runs = compare(pair, prompt, ["ngram", "as_before"], length=32, gamma=3)
    print(pd.DataFrame([run.row for run in runs.values()]).round(2).to_string(index=False, na_rep="-"))


if __name__ == "__main__":
    main()
