"""What the oracle leaves, split: on walks whose truth is planted, and of a trace."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ablation.report.gap.shares import gap_shares
from ablation.results.traces.bounds import ReplayedAnswer
from ablation.results.traces.gap import split
from ablation.results.traces.gap.bayes import believed
from ablation.results.traces.gap.host import TimedRule, reading_s
from ablation.results.traces.gap.lengths import best_count, best_runs, survival
from ablation.results.traces.gap.signals import COLUMNS, READ_BY, signals
from ablation.results.traces.gap.split import PARTS, TextGap
from ablation.results.traces.replay import ReplayRequest
from ablation.run.results_file import Files
from egag.cost_model import CostModel
from egag.draft_distribution import RecordedDistribution
from egag.stopping.saturation import SaturationGamma
from egag.stopping.svip import SvipGamma
from sampling.measure.replay import DraftWalk, PositionDraft, best_fixed, oracle, placed
from sampling.methods.rules import CONTROLLERS
from sampling.methods.settings import Settings
from tests.ablation.results.test_full_trace import replay, traced, traced_once  # noqa: F401
from tests.refusals import refused
from tests.rules import judged

PRICE = CostModel(((1, 20.0), (5, 24.0), (9, 32.0)), first_s=3.0, step_s=2.0, rest_s=0.5)
LENGTH, DRAFTS = 60, 6
Says = Callable[[random.Random, bool], tuple[float, float]]


def planted(seed: int, says: Says, right: float = 0.6, prompt: int = 9) -> DraftWalk:
    """An answer of tokens that never repeat. Each draft is right as a coin falls; `says` is (entropy, chance) of it."""
    rng, tokens = random.Random(seed), tuple(range(1000 * seed, 1000 * seed + LENGTH))
    ahead = []
    for position in range(LENGTH):
        drafts, beliefs = list[int](), list[RecordedDistribution | None]()
        for depth in range(min(DRAFTS, LENGTH - position - 1)):
            hit = rng.random() < right
            token = tokens[position + depth] if hit else -1
            entropy, chance = says(rng, hit)
            drafts.append(token)
            beliefs.append(RecordedDistribution(64, entropy, chance, token, chance))
        ahead.append(PositionDraft(tuple(drafts), tuple(beliefs), most=DRAFTS))
    return DraftWalk("speculative", {"length": LENGTH}, prompt, tokens, "length", tuple(ahead), "each", 64)


def answers(says: Says, texts: int = 12) -> list[ReplayedAnswer]:
    values = Settings()
    made = []
    for seed in range(1, texts + 1):
        record = SimpleNamespace(id=str(seed), target_weights="full")
        generation: Any = SimpleNamespace(record=record, prompt_ids=(1, 2, 3), values=values)
        made.append(ReplayedAnswer(generation, planted(seed, says), PRICE))
    return made


def shared(says: Says, *rules: str) -> pd.DataFrame:
    requests = [ReplayRequest(rule=name, bounded=True) for name in rules]
    found = list(split._split("model", answers(says), requests, lambda figures, size: 0.0))
    for one in found:
        assert sum(one.parts) == pytest.approx(one.gap_s) and one.oracle_s <= min(one.all_s, one.rule_s, one.fixed_s)
    return gap_shares(found).set_index("rule")


def test_what_no_signal_tells_is_irreducible() -> None:
    """Coins that beliefs know nothing of: all signals together spare less than a tenth of what the oracle does."""
    shares = shared(lambda rng, hit: (rng.random(), rng.random()), "svip")
    row = shares.loc["draft_rule=svip"]
    assert (
        row["irreducible"] + row["later_rounds"] > 90 and row["irreducible"] > 30 and abs(row["all_auc"] - 0.5) < 0.06
    )
    assert sum(row[name] for name in PARTS) == pytest.approx(100)


def test_what_the_entropy_tells_is_in_the_signal_of_a_rule_that_reads_it_and_of_no_other() -> None:
    """An entropy of .5 of drafts that are right, 2 of wrong ones; the chance is noise."""
    shares = shared(lambda rng, hit: (0.5 if hit else 2.0, rng.random()), "svip", "confidence")
    svip, confidence = shares.loc["draft_rule=svip"], shares.loc["draft_rule=confidence"]
    assert svip["all_auc"] == svip["signal_auc"] == 1.0 and abs(confidence["signal_auc"] - 0.5) < 0.06
    assert abs(svip["irreducible"]) < 2 and abs(svip["other_signals"]) < 5
    assert confidence["other_signals"] > 50 and confidence["irreducible"] == svip["irreducible"]
    assert svip["kept"] > confidence["kept"] and svip["gap_low"] < svip["gap"] < svip["gap_high"]


def test_a_classifier_never_saw_the_text_that_it_judges() -> None:
    """A column that names the text, whose drafts are all right or all wrong: known by heart, it tells nothing."""
    walks = [planted(seed, lambda rng, hit: (1.0, 0.5), float(seed % 3 == 0), seed) for seed in range(1, 13)]
    texts = [signals(walk, ()) for walk in walks]
    names = [str(number) for number in range(12)]
    assert believed(texts, names, ("prompt_tokens",)).auc < 0.6
    twice = [*texts, *texts]
    assert believed(twice, [*names, *(f"{name}b" for name in names)], ("prompt_tokens",)).auc > 0.95
    assert believed(twice, [*names, *names], ("prompt_tokens",)).auc < 0.6, "texts of a prompt are left out together"
    with refused("1 prompt", "two prompts"):
        believed(twice, ["a"] * 24, ("depth",))


def test_signals_know_nothing_of_what_follows() -> None:
    """Another answer from the 30th token on: all that was shown before it is the same."""
    walk = planted(3, lambda rng, hit: (rng.random(), rng.random()))
    other = replace(walk, tokens=(*walk.tokens[:30], *(token + 500 for token in walk.tokens[30:])))
    one, two = signals(walk, (1, 2)), signals(other, (1, 2))
    before = sum(one.counts[:31])
    assert one.counts == two.counts and not np.array_equal(one.right, two.right)
    assert np.array_equal(one.columns[:before], two.columns[:before], equal_nan=True)


def test_signals_by_hand() -> None:
    """Text 7 8 7, drafts 8 and 9 of which the first is right, then one that is wrong; a copy that states .5 and .25."""
    beliefs = RecordedDistribution(64, 1.0, 0.5, 8, 0.4), RecordedDistribution(64, 2.0, 0.25, 9, 0.25)
    ahead = (
        PositionDraft((8, 9), beliefs, chances=(0.5, 0.25), match=3),
        PositionDraft((9,), (None,)),
        PositionDraft(),
    )
    walk = DraftWalk("speculative", {"length": 3}, 3, (8, 5, 6), "length", ahead)
    found = signals(walk, (7, 8, 7))
    assert found.counts == (2, 1, 0) and found.right.tolist() == [True, False, False] and found.judged.all()
    column = {name: found.of([name])[:, 0].tolist() for name in COLUMNS}
    nan = pytest.approx(float("nan"), nan_ok=True)
    assert column["depth"] == [0, 1, 0] and column["position"] == [0, 0, 1] and column["prompt_tokens"] == [3, 3, 3]
    assert column["path_top"] == [0.5, 0.125, nan] and column["path_chance"] == [0.4, 0.1, nan]
    assert column["least_top"] == [0.5, 0.25, nan] and column["first_entropy"] == [1.0, 1.0, nan]
    assert column["stated"] == [0.5, 0.5, nan] and column["match"] == [3, 3, 0]
    assert column["last_right"] == [nan, nan, 1.0] and column["right_lately"] == [0.5, 0.5, 0.75]
    assert column["streak"] == [0, 0, 1] and column["seen"] == [1, 0, 0] and column["seen_behind"] == [1, 0, 0]


def test_the_best_lengths_by_hand() -> None:
    """.8, .1 at 20, 21, 22 s: at .05 a second 0, .75, .8; at .2 a second -3, -2.4, -2.5."""
    price = CostModel(((1, 20.0), (3, 22.0)), first_s=0.0, step_s=0.0)
    chain = np.array([0.8, 0.1])
    assert best_count(chain, price, 0.05) == 2 and best_count(chain, price, 0.2) == 1
    assert best_count(np.array([]), price, 0.05) == 0
    assert [one.tolist() for one in survival(np.array([0.8, 0.5, 0.9]), (2, 0, 1))] == [[0.8, 0.4], [], [0.9]]


def test_who_knows_the_round_is_between_a_fixed_length_and_the_oracle() -> None:
    """The oracle knows the later rounds as well. Constant chances choose one length, but near the end."""
    walks = [planted(seed, lambda rng, hit: (1.0, 0.5)) for seed in range(1, 7)]
    texts = [signals(walk, ()) for walk in walks]
    sure = [survival(text.right.astype(float), text.counts) for text in texts]
    flat = [survival(np.full(len(text.right), 0.6), text.counts) for text in texts]
    seconds = sum(oracle(walk, PRICE).decode_s for walk in walks)
    known_s, flat_s = (sum(run.decode_s for run in best_runs(walks, one, [PRICE] * 6)) for one in (sure, flat))
    assert seconds < known_s < 0.95 * best_fixed(walks, PRICE).seconds[2]
    assert flat_s == pytest.approx(min(best_fixed(walks, PRICE).seconds), rel=0.02)
    assert placed(walks[0], [0] * LENGTH, PRICE).rounds == LENGTH


class Clock:
    """A second more with every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_a_rule_is_timed_with_what_it_reads() -> None:
    """A second for each of its calls; 10 s for entropy and 5 s for the top of a distribution, each once."""
    costs = {"entropy": 10.0, "top": 5.0, "chance": 1.0}

    def reading(figures: frozenset[str], size: int) -> float:
        assert size == 64
        return sum(costs[name] for name in figures)

    told = RecordedDistribution(64, 0.1, 0.9, 3, 0.9)
    for rule, read_s in ((SvipGamma(), 10.0), (SaturationGamma(), 5.0), (CONTROLLERS["fixed"].build(None, {}), 0.0)):
        timed = TimedRule(rule, reading, Clock())
        assert timed.before(0, told) and timed.after(1, told, 3)
        timed.update(judged(1, 1))
        assert timed.seconds == 3.0 + read_s and timed.gamma == rule.gamma
    both = TimedRule(CONTROLLERS["survival"].build(None, {}), reading, Clock())
    assert both.truncation.truncate([0.9, 0.1]) >= 0 and both.seconds == 1.0
    assert reading_s(frozenset({"top"}), 1000) > 0.0 and reading_s(frozenset(), 1000) < 1.0


def test_every_rule_says_what_it_reads() -> None:
    assert set(READ_BY) == set(CONTROLLERS) - {"fixed", "budget"}
    assert {name for names in READ_BY.values() for name in names} <= set(COLUMNS)


def gap_of(id: str, fixed_s: float, all_s: float) -> TextGap:
    return TextGap(id, "m", "r", 2, 9, fixed_s, 8.0, 1.0, 7.0, all_s, 5.5, 5.0, 0.7, 0.8)


def test_the_turns_of_a_prompt_count_as_one() -> None:
    """Gaps 5, 5 and 7 of 10, 10 and 12 s: 17 of 32; irreducible .5, .5 and 3.5 of them: 4.5 of 17."""
    shares = gap_shares([gap_of("a", 10.0, 6.0), gap_of("a", 10.0, 6.0), gap_of("b", 12.0, 9.0)])
    (row,) = (row for _, row in shares.iterrows())
    assert row["prompts"] == 2 and row["gap"] == pytest.approx(100 * 17 / 32)
    assert row["irreducible"] == pytest.approx(100 * 4.5 / 17) and np.isnan(row["irreducible_low"])


def test_a_gap_of_a_trace_is_printed_and_written(traced: Path, tmp_path: Path) -> None:  # noqa: F811
    trace, folder = Files(traced).trace, tmp_path / "gap"
    code, said = replay(trace, "--gap", folder, "--rule", "svip", "--methods", "speculative")
    assert code == 0 and "What the oracle leaves" in said and "irreducible" in said
    texts = pd.read_csv(folder / "texts.csv")
    assert len(texts) == 3 and set(texts["rule"]) == {"draft_rule=svip"}
    parts = texts[[f"{name}_s" for name in PARTS]].sum(axis=1)
    assert np.allclose(parts, texts["fixed_s"] - texts["oracle_s"])
    assert {path.name for path in folder.iterdir()} >= {"report.md", "shares.csv", "gap.png", "gap.svg", "gap.pdf"}
    assert replay(trace, "--gap", folder, "--rule", "svip", "--methods", "speculative")[0] == 0, "it is replaced"
    (folder / "report.md").write_text("mine")
    for arguments in (("--rule", "svip"), ("--gamma", "2"), ("--rule", "fixed")):
        assert replay(trace, "--gap", folder, *arguments)[0] == 2
    assert (folder / "report.md").read_text() == "mine"


def test_trees_have_no_gap() -> None:
    walk = replace(planted(1, lambda rng, hit: (1.0, 0.5)), ahead=(PositionDraft((1, 2), (), (-1, -1)),) * LENGTH)
    generation: Any = SimpleNamespace(record=SimpleNamespace(id="1", target_weights="full"), prompt_ids=())
    asked: Sequence[ReplayRequest] = [ReplayRequest(rule="svip")]
    with refused("trees", "draft_tree chain"):
        list(split._split("mtp", [ReplayedAnswer(generation, walk, PRICE)], asked, reading_s))
