"""Figures from the recorded runs in docs/results."""

import math
from statistics import median

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ablation.book_figures.common import axes, by_configuration, expected_tokens, look
from ablation.report.plots.figure import COLOURS, GREY, MARKERS
from ablation.report.tables.rates import summed
from egag.draft_distribution import LogitsDistribution
from egag.egag import EntropyGamma
from sampling.methods.tables import AR

LEAST_ROUNDS = 10


def draw_positions() -> Figure:
    """Share of drafts accepted by position, of all rounds and of those that judged one there; recorded."""
    rows = by_configuration("egag") | {"NASD": by_configuration("copies")["ngram gamma=10"]}
    chosen = {
        "speculative gamma=6": "SD, γ = 6 (run egag)",
        "egag egag_gamma_max=8, egag_ema=0": "EGAG, γ_max = 8 (run egag)",
        "NASD": "NASD, γ = 10 (run copies)",
    }
    figure, (left, right) = axes(8.8, 3.6, 2, sharey=True)
    for place, (name, label) in enumerate(chosen.items()):
        hist, tested = (summed(row[key] for row in rows[name]) for key in ("accept_hist", "tested_at"))
        accepted = [sum(hist[i:]) for i in range(1, len(tested) + 1)]
        rounds = sum(hist)
        left.plot(range(1, len(tested) + 1), [count / rounds for count in accepted], **look(place))
        judged = [(i, a / t) for i, (a, t) in enumerate(zip(accepted, tested, strict=True), 1) if t >= LEAST_ROUNDS]
        right.plot(*zip(*judged, strict=True), label=label, **look(place))
    left.set_ylim(0, 1.02)
    left.set_title("accepted / all rounds", fontsize=9.5)
    right.set_title("accepted / judged there", fontsize=9.5)
    for axis in (left, right):
        axis.set_xlabel("position in the draft")
    right.legend(frameon=False, fontsize=8.5, loc="lower left")
    return figure


def logits_of(normalised_entropy: float) -> Tensor:
    """Logits of two tokens whose distribution has this H / ln 2, or up to 1e-6 less; 0 and below are certainty."""
    wanted = (normalised_entropy - 5e-7) * math.log(2)
    low, high = 0.0, 50.0  # the gap between the logits; the entropy falls with it
    for _ in range(60):
        middle = (low + high) / 2
        rare = 1 / (1 + math.exp(middle))
        entropy = -rare * math.log(rare) - (1 - rare) * math.log1p(-rare)
        low, high = (middle, high) if entropy > wanted else (low, middle)
    return torch.tensor([high, 0.0])


def rounds_gamma(rule: EntropyGamma, logits: Tensor) -> int:
    """The draft length that the rule chooses where the first draft is drawn from these logits."""
    rule.before(0, LogitsDistribution(logits))
    return rule.gamma


def draw_egag() -> Figure:
    """EGAG's gamma against the normalised entropy: the rule, and recorded means of answers."""
    rows = by_configuration("egag")
    figure, (axis,) = axes(7.2, 4.0)
    entropies = [i / 1000 for i in range(1001)]
    firsts = [logits_of(h) for h in entropies]
    for place, most in enumerate((8, 6, 4)):
        rule = EntropyGamma(1, most, 0.0)
        lengths = [rounds_gamma(rule, logits) for logits in firsts]
        axis.plot(entropies, lengths, color=COLOURS[place], linewidth=1.3)
        runs = rows[f"egag egag_gamma_max={most}, egag_ema=0"]
        x = [float(row["mean_normalised_entropy"]) for row in runs]
        y = [float(row["mean_gamma"]) for row in runs]
        axis.plot(x, y, MARKERS[place], color=COLOURS[place], markersize=4, label=f"γ_max = {most}")
    axis.set_xlabel("H / ln V, normalised entropy of the first draft's distribution")
    axis.set_ylabel("γ")
    axis.set_ylim(0, 8.6)
    axis.legend(frameon=False, fontsize=8.5)
    axis.set_title("lines: the rule for one round; marks: means of recorded answers (run egag)", fontsize=9)
    return figure


def draw_predicted() -> Figure:
    """Speedup predicted from alpha, c and v of each recorded answer, against the one that was measured."""
    rows = by_configuration("egag")
    reference = {row["id"]: float(row["verify_ms"]) for row in rows[AR]}
    figure, (axis,) = axes(5.2, 4.6)
    for place, gamma in enumerate((2, 4, 6)):
        runs = rows[f"speculative gamma={gamma}"]
        v = [float(row["verify_ms"]) / reference[row["id"]] for row in runs]
        cost = [value + gamma * float(row["c"]) for value, row in zip(v, runs, strict=True)]
        x = [expected_tokens(float(row["alpha"]), gamma) / value for row, value in zip(runs, cost, strict=True)]
        marks = {**look(place), "linestyle": ""}
        axis.plot(x, [float(row["speedup"]) for row in runs], label=f"γ = {gamma}", **marks)
    axis.plot([0.2, 1.2], [0.2, 1.2], "--", color=GREY, linewidth=1.0)
    axis.set_xlim(0.3, 1.15)
    axis.set_ylim(0.3, 1.15)
    axis.set_xlabel("predicted speedup, from α, c and v of the answer")
    axis.set_ylabel("measured speedup")
    axis.legend(frameon=False, fontsize=8.5)
    axis.set_title("SD, 20 prompts a γ (run egag)", fontsize=9.5)
    return figure


def draw_tokens_and_speed() -> Figure:
    """Tokens a round against speedup, a mark for each recorded configuration: they are not the same."""
    names = {
        "prompt_lookup max_ngram_size=3, num_speculative_tokens=10": ("prompt lookup", (6, 4)),
        "suffix max_cached_requests=0, use_tree_spec=on": ("suffix, trees", (-28, 9)),
        "ngram gamma=10": ("NASD", (6, -11)),
        "extended": ("drafter model + copies", (-108, 8)),
        "suffix_or_model": ("suffix or drafter model", (6, -11)),
        "prompt_lookup accept_policy=reject_all": ("lookup, all rejected", (8, -4)),
    }
    figure, (axis,) = axes(6.6, 4.0)
    for plan, chosen in (("copies", names), ("egag", {"speculative gamma=6": ("SD, γ = 6", (6, -4))})):
        rows = by_configuration(plan)
        for name, (label, shift) in chosen.items():
            x = median(float(row["tokens_per_round"]) for row in rows[name])
            y = median(float(row["speedup"]) for row in rows[name])
            axis.plot([x], [y], "o" if plan == "copies" else "s", color=COLOURS[0 if plan == "copies" else 1])
            axis.annotate(label, (x, y), xytext=shift, textcoords="offset points", fontsize=8.5)
    axis.axhline(1.0, color=GREY, linewidth=1.0)
    axis.plot([1, 3.0], [1, 3.0], "--", color=GREY, linewidth=1.0)
    axis.annotate("drafts and\nverifying free", (2.6, 2.6), xytext=(-64, 2), textcoords="offset points", fontsize=8)
    axis.set_xlim(0.8, 5.8)
    axis.set_ylim(0.4, 3.0)
    axis.set_xlabel("tokens a round (median over prompts)")
    axis.set_ylabel("speedup over AR (median over prompts)")
    axis.set_title("circles: run copies; square: run egag", fontsize=9.5)
    return figure
