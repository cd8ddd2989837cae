"""Figures from the formulas, with what a forward costs as recorded."""

from collections.abc import Callable

from matplotlib.figure import Figure

from ablation.book_figures.common import axes, drafter_of, expected_tokens, forward_ms, growth, look
from ablation.report.plots.figure import COLOURS, GREY
from sampling.forward.tree import ancestor_mask


def draw_forward_cost() -> Figure:
    """What a forward over n tokens costs, recorded, beside n forwards over one."""
    points = forward_ms()
    figure, (axis,) = axes(6.0, 3.6)
    known = sorted(points)
    axis.plot(known, [points[n] for n in known], label="one forward over n tokens", **look(0))
    axis.plot([1, 5], [points[1], 5 * points[1]], "--", color=GREY, label="n forwards over one token")
    for n in known:
        shift, side = ((0, 7), "center") if n == 2 else ((2, -13), "left" if n > 1 else "center")
        ratio = f"v({n}) = {points[n] / points[1]:.2f}" if n > 3 else f"{points[n] / points[1]:.2f}"
        axis.annotate(ratio, (n, points[n]), xytext=shift, textcoords="offset points", fontsize=8, ha=side)
    axis.set_xlim(0, 19)
    axis.set_xlabel("n, tokens in the forward")
    axis.set_ylabel("milliseconds")
    axis.set_ylim(0, 1.6 * max(points.values()))
    axis.legend(frameon=False)
    return figure


def draw_overlap() -> Figure:
    """Two distributions, what they share, and what a rejection makes up for."""
    p = [0.42, 0.08, 0.23, 0.16, 0.11]
    q = [0.20, 0.34, 0.25, 0.04, 0.17]
    tokens = list("abcde")
    place = range(len(p))
    figure, (left, right) = axes(8.6, 3.4, 2)
    shared = [min(pair) for pair in zip(p, q, strict=True)]
    left.bar([i - 0.2 for i in place], p, 0.38, color=COLOURS[0], label="p, the target")
    left.bar([i + 0.2 for i in place], q, 0.38, color=COLOURS[1], label="q, the drafter")
    left.set_title("two distributions of the next token", fontsize=10)
    lack = [a - b for a, b in zip(p, shared, strict=True)]
    right.bar(place, shared, 0.6, color=COLOURS[2], label=f"accepted: min(p, q), in all {sum(shared):.2f}")
    label = f"recovered: max(0, p - q), in all {sum(lack):.2f}"
    right.bar(place, lack, 0.6, bottom=shared, color=COLOURS[4], label=label)
    right.set_title("what comes out is p", fontsize=10)
    for axis in (left, right):
        axis.set_xticks(list(place), tokens)
        axis.set_ylim(0, 0.55)
        axis.set_ylabel("probability")
        axis.legend(frameon=False, fontsize=8.5)
    return figure


def draw_expected_tokens() -> Figure:
    """Tokens a round against gamma, and against alpha."""
    figure, (left, right) = axes(8.6, 3.7, 2)
    gammas = range(13)
    for place, alpha in enumerate((0.95, 0.9, 0.8, 0.7, 0.5)):
        left.plot(gammas, [expected_tokens(alpha, g) for g in gammas], label=f"α = {alpha:g}", **look(place))
        left.axhline(1 / (1 - alpha), color=COLOURS[place], linestyle=":", linewidth=0.8)
    left.set_ylim(0.8, 11.0)
    left.set_xlabel("γ, drafts a round")
    left.set_ylabel("expected tokens a round")
    left.legend(frameon=False, fontsize=8.5)
    left.set_title("dotted: the limit 1 / (1 - α)", fontsize=9)
    alphas = [i / 100 for i in range(101)]
    for place, gamma in enumerate((12, 8, 4, 2, 1)):
        right.plot(alphas, [expected_tokens(a, gamma) for a in alphas], color=COLOURS[place], label=f"γ = {gamma}")
    right.set_ylim(0.8, 11.0)
    right.set_xlabel("α, chance that a draft is accepted")
    right.legend(frameon=False, fontsize=8.5)
    right.set_title("a long draft pays where α is near 1", fontsize=9)
    return figure


def draw_speedup() -> Figure:
    """Speedup against gamma for some c, verification free on the left, as recorded on the right."""
    points = forward_ms()
    figure, (left, right) = axes(9.0, 3.8, 2, sharey=True)
    alpha, gammas = 0.8, range(13)
    costs: list[Callable[[int], float]] = [lambda n: 1.0, lambda n: growth(points, n)]
    for axis, cost in zip((left, right), costs, strict=True):
        for place, c in enumerate((0.0, 0.05, 0.1, 0.3, 0.9)):
            gains = [expected_tokens(alpha, g) / (cost(g + 1) + g * c) for g in gammas]
            axis.plot(gammas, gains, color=COLOURS[place], linewidth=1.2, label=f"c = {c:g}")
            best = max(gammas, key=gains.__getitem__)
            axis.plot([best], [gains[best]], "o", color=COLOURS[place], markersize=7)
            shift = (-20, 6) if best == 12 else (-2, 7) if c == 0.05 else (5, -13) if c == 0.1 else (4, 6)
            axis.annotate(f"γ = {best}", (best, gains[best]), xytext=shift, textcoords="offset points", fontsize=8)
        axis.axhline(1.0, color=GREY, linewidth=1.0)
        axis.set_xlabel("γ, drafts a round")
        axis.set_xlim(-0.3, 13.2)
    left.set_ylim(0, 5.2)
    left.set_ylabel(f"speedup at α = {alpha}")
    left.set_title("v(n) = 1: verifying is free", fontsize=9.5)
    right.set_title("v(n) as recorded in docs/benchmarks.md", fontsize=9.5)
    right.legend(frameon=False, fontsize=8.5, title="dot: the best γ", title_fontsize=8.5)
    return figure


def draw_best_gamma() -> Figure:
    """The best gamma over alpha and c, with v and two drafters as recorded; 0 where speculation does not pay."""
    points = forward_ms()
    alphas = [0.1 + 0.85 * i / 85 for i in range(86)]
    costs = [i / 60 for i in range(61)]
    best = [
        [max(range(13), key=lambda g: expected_tokens(a, g) / (growth(points, g + 1) + g * c)) for a in alphas]
        for c in costs
    ]
    figure, (axis,) = axes(6.4, 4.2)
    axis.grid(visible=False)
    shown = axis.pcolormesh(alphas, costs, best, cmap="viridis", vmin=0, vmax=12, rasterized=True)
    figure.colorbar(shown, ax=axis, label="best γ, at most 12; 0 = do not speculate", ticks=range(0, 13, 2))
    axis.plot([0.1, 1.0], [0.1, 1.0], "--", color="white", linewidth=1.2)
    axis.text(0.22, 0.62, "c = α: the limit\nwhere verifying is free", color="white", fontsize=8.5)
    axis.contour(alphas, costs, best, levels=[0.5], colors="white", linewidths=1.0)
    for plan, name in (("quick", "speculative"), ("egag", "speculative gamma=2")):
        alpha, c = drafter_of(plan, name)
        axis.plot([alpha], [c], "o", color="white", markeredgecolor="black", markersize=6)
        axis.annotate(f"run {plan}", (alpha, c), xytext=(6, 4), textcoords="offset points", color="white", fontsize=8.5)
    axis.set_xlim(alphas[0], alphas[-1])
    axis.set_ylim(0, 1)
    axis.set_xlabel("α, chance that a draft is accepted")
    axis.set_ylabel("c, cost of a draft in target forwards")
    return figure


def draw_tree() -> Figure:
    """A tree of five drafts and the mask that the target's forward gets for it."""
    parents = (-1, -1, 0, 0, 2)
    names = ["last", "a", "b", "c", "d", "e"]
    spots = [(0.0, 0.0), (1.0, 0.6), (1.0, -0.6), (2.0, 1.0), (2.0, 0.2), (3.0, 1.0)]
    figure, (left, right) = axes(8.4, 3.3, 2)
    left.axis("off")
    for row, parent in enumerate(parents, start=1):
        left.plot(*zip(spots[parent + 1], spots[row], strict=True), color=GREY, zorder=1)
    for name, (x, y) in zip(names, spots, strict=True):
        colour = COLOURS[0] if name == "last" else COLOURS[2]
        left.text(x, y, name, ha="center", va="center", color="white", bbox={"boxstyle": "round", "facecolor": colour})
    left.set_xlim(-0.4, 3.4)
    left.set_ylim(-1.1, 1.5)
    left.set_title("drafts a to e, parents (-1, -1, 0, 0, 2)", fontsize=9.5)
    right.imshow(ancestor_mask(parents).int().tolist(), cmap="Blues", vmin=-0.2, vmax=1.4)
    right.set_xticks(range(6), names)
    right.set_yticks(
        range(6), [f"{name}, place +{depth}" for name, depth in zip(names, (0, 1, 1, 2, 2, 3), strict=True)]
    )
    right.grid(visible=False)
    right.set_title("row sees column: itself and its ancestors", fontsize=9.5)
    return figure
