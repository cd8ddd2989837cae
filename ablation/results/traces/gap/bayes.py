"""How likely each draft of a walk is right by some of its signals: a classifier that has never seen the text."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablation.results.traces.gap.signals import WalkSignals
from utils.errors import UserError

FOLDS = 5
_NEEDED = "--gap needs scikit-learn; expected it to be installed: uv sync --extra gap, or pip install scikit-learn"
Numbers = NDArray[np.float64]


class Believed(NamedTuple):
    """What a classifier says of texts that it was not trained on.

    chances: of each text, that each draft is right if all before it are. auc: how often a draft that was right has a
    higher chance than one that was wrong, of the judged ones; NaN where all went one way.
    """

    chances: tuple[Numbers, ...]
    auc: float


def believed(texts: Sequence[WalkSignals], groups: Sequence[str], names: Sequence[str]) -> Believed:
    """Cross-fitted chances by the columns `names`: texts of a group are left out together.

    groups: of each text. Gradient-boosted trees, trained on judged drafts of the other groups. Raises `UserError` for
    fewer than two groups, and where scikit-learn is not installed.
    """
    known = list(dict.fromkeys(groups))
    if len(known) < 2:
        raise UserError(f"a gap of {len(known)} prompt given; expected a trace of two prompts or more")
    folds = {group: number % FOLDS for number, group in enumerate(known)}
    chances: list[Numbers] = [np.empty(0)] * len(texts)
    for fold in range(min(FOLDS, len(known))):
        inside = [number for number, group in enumerate(groups) if folds[group] == fold]
        others = [texts[number] for number in range(len(texts)) if number not in inside]
        columns = np.concatenate([one.of(names)[one.judged] for one in others])
        right = np.concatenate([one.right[one.judged] for one in others])
        asked = [texts[number].of(names) for number in inside]
        for number, said in zip(inside, _fitted(columns, right, asked), strict=True):
            chances[number] = said
    return Believed(tuple(chances), _auc(texts, chances))


def _fitted(columns: Numbers, right: NDArray[np.bool_], asked: Sequence[Numbers]) -> list[Numbers]:
    """The chances of what is asked for, by a classifier of these drafts; their share where all went one way."""
    if len(np.unique(right)) < 2:
        share = float(right.mean()) if len(right) else 0.5
        return [np.full(len(one), share) for one in asked]
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ImportError:
        raise UserError(_NEEDED) from None
    trees = HistGradientBoostingClassifier(
        learning_rate=0.06, max_iter=100, max_leaf_nodes=8, min_samples_leaf=20, early_stopping=False, random_state=0
    )
    known = ~np.isnan(columns).all(axis=0)
    trees.fit(columns[:, known], right)
    return [trees.predict_proba(one[:, known])[:, 1] if len(one) else np.empty(0) for one in asked]


def _auc(texts: Sequence[WalkSignals], chances: Sequence[Numbers]) -> float:
    """By ranks, ties shared: Mann and Whitney's U over the number of pairs."""
    from scipy.stats import rankdata

    right = np.concatenate([one.right[one.judged] for one in texts])
    ranks = rankdata(np.concatenate([said[one.judged] for one, said in zip(texts, chances, strict=True)]))
    hits = int(right.sum())
    misses = len(right) - hits
    if not hits or not misses:
        return float("nan")
    return float((ranks[right].sum() - hits * (hits + 1) / 2) / (hits * misses))
