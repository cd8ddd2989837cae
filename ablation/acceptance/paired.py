"""Two drafters, or two checkpoints of one, on the same texts: is one accepted more, beyond chance?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ablation.report.tables.paired import LEVEL, can_tell, ratio_interval, signed_ranks
from sampling.measure.acceptance.estimate import DepthSums
from sampling.measure.acceptance.met import Met
from utils.numbers.holm import holm


@dataclass(frozen=True, slots=True)
class PairedAcceptance:
    """Tokens a round of one drafter over those of another, with drafts of `gamma`: the median ratio over texts.

    p_holm: Wilcoxon's signed-rank test, corrected for all pairs that were asked.
    """

    one: str
    other: str
    gamma: int
    texts: int
    ratio: float
    low: float
    high: float
    p: float
    p_holm: float

    @property
    def verdict(self) -> str:
        """What the test says."""
        if self.p_holm <= LEVEL:
            return f"{self.one} accepts {'more' if self.ratio > 1.0 else 'less'}"
        return "no difference shown"


def compare_acceptance(mets: Mapping[str, Sequence[Met]], gamma: int) -> list[PairedAcceptance]:
    """Every pair of drafters, each text one number: the expected tokens of a round that begins anywhere in it."""
    tokens = {name: [_tokens(met, gamma) for met in met_of] for name, met_of in mets.items()}
    pairs = list(combinations(tokens, 2))
    family = [np.log(np.array(tokens[one]) / np.array(tokens[other])) for one, other in pairs]
    tests = signed_ranks(family)
    corrected = holm([p for p, _ in tests])
    found = []
    for (one, other), logs, (p, _), p_holm in zip(pairs, family, tests, corrected, strict=True):
        told = can_tell(len(logs), len(pairs))
        figures = *ratio_interval(logs), p, p_holm if told else math.nan
        found.append(PairedAcceptance(one, other, gamma, len(logs), *figures))
    return found


def _tokens(met: Met, gamma: int) -> float:
    survival = DepthSums.of([met]).survival[:gamma]
    return 1.0 + float(np.nan_to_num(survival).sum())
