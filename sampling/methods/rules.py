"""The table of draft-length rules. No torch is imported here."""

from dataclasses import replace

from sampling.methods import parameters
from sampling.methods.method import FIXED
from sampling.methods.part import OneOf, Part, unless
from utils.parameter import Values, choice, choices, drafts
from utils.registry import Registry

PLAIN = (
    Part("fixed", "egag.length_rule:FixedGamma", "one gamma in every round", "arXiv 2211.17192", (parameters.GAMMA,)),
    Part(
        "budget",
        "egag.length_rule:DraftBudget",
        "the same budget in every round, for drafts that cost nothing",
        "num_speculative_tokens of serving engines",
        (drafts("num_speculative_tokens", 10, "maximum number of drafts per round, copied ones included", minimum=0),),
    ),
    Part(
        "egag",
        "egag.egag:EntropyGamma",
        "gamma from the entropy of the first draft's distribution",
        "EGAG",
        parameters.EGAG,
        bounds=(("egag_gamma_min", "egag_gamma_max"),),
    ),
    Part(
        "heuristic",
        "egag.feedback.heuristic:HeuristicGamma",
        "+2 after full acceptance, else -1",
        "transformers num_assistant_tokens_schedule",
        (drafts("heuristic_gamma", 5, "initial gamma of the heuristic schedule", minimum=1),),
    ),
    Part(
        "confidence",
        "egag.stopping.confidence:ConfidenceGamma",
        "stop after a draft below a probability",
        "transformers assistant_confidence_threshold",
        parameters.CONFIDENCE,
        limits=True,
    ),
    Part(
        "ucb",
        "egag.bandits.ucb:UcbGamma",
        "a bandit over fixed lengths with tokens per second as reward",
        "arXiv 2505.15141",
        parameters.UCB,
        remembers=unless("ucb_remember", False),
    ),
    Part(
        "cascade",
        "egag.feedback.cascade:CascadeGamma",
        "the tested length of the highest utility, or no drafts",
        "arXiv 2506.20675",
        parameters.CASCADE,
    ),
    Part(
        "cost_ratio",
        "egag.cost_ratio:CostRatioGamma",
        "most expected tokens per second, from past acceptance and measured costs",
        "arXiv 2211.17192 with verify growth",
        parameters.COST_RATIO,
        weighs=True,
    ),
    Part(
        "svip",
        "egag.stopping.svip:SvipGamma",
        "stop after a draft of high entropy",
        "arXiv 2411.18462",
        parameters.SVIP,
        limits=True,
    ),
    Part(
        "saturation",
        "egag.stopping.saturation:SaturationGamma",
        "stop after a draft whose path has become improbable",
        "saturation pruning, as in the audit of draft lengths by Jella et al. 2026; kin of arXiv 2602.01274",
        parameters.SATURATION,
        limits=True,
    ),
    Part(
        "adaedl",
        "egag.stopping.adaedl:AdaEdlGamma",
        "stop before a draft if an entropy bound on its acceptance is too low",
        "arXiv 2410.18351",
        parameters.ADAEDL,
        limits=True,
    ),
    Part(
        "gammatune",
        "egag.feedback.gammatune:GammaTune",
        "a larger gamma after full acceptance, else an average of accepted numbers",
        "arXiv 2504.00030",
        parameters.GAMMATUNE,
        bounds=(("gammatune_gamma", "gammatune_gamma_max"),),
    ),
    Part(
        "anpd",
        "egag.feedback.anpd:AnpdGamma",
        "one more after full acceptance, else halfway to the accepted number",
        "arXiv 2404.08698",
        parameters.ANPD,
        bounds=(("anpd_gamma", "anpd_gamma_max"),),
    ),
    Part(
        "draft_verify",
        "egag.stopping.draft_verify:DraftVerifyGamma",
        "stop after a draft of low confidence; the threshold follows acceptance",
        "arXiv 2309.08168",
        parameters.DRAFT_VERIFY,
        limits=True,
    ),
    Part(
        "specdec_pp",
        "egag.stopping.specdec_pp:SpecDecPpGamma",
        "stop if a rejection is probable, by calibrated probabilities",
        "arXiv 2405.19715",
        parameters.SPECDEC,
        remembers=unless("specdec_remember", False),
        limits=True,
    ),
    Part(
        "survival",
        "egag.survival:SurvivalGamma",
        "draft while the expected tokens per second of the round rise",
        "survival x cost: arXiv 2607.05147; adaptive verification in vLLM, llama.cpp #17034",
        parameters.SURVIVAL,
        remembers=unless("survival_remember", False),
        weighs=True,
        limits=True,
    ),
)
UCB_ARMS = choices(
    "ucb_arms",
    "fixed heuristic svip adaedl cost_ratio",
    "the rules that ucb_rules chooses from",
    tuple(part.name for part in PLAIN),
)


def _ucb_rules(values: Values) -> Part:
    """The bandit over the rules that the values name, with the parameters of these rules."""
    arms = {part.name: part for part in PLAIN}
    return Part(
        "ucb_rules",
        "egag.bandits.ucb_rules:UcbRules",
        "",
        parameters=(UCB_ARMS, *parameters.UCB[1:]),
        uses=tuple(arms[name] for name in values[UCB_ARMS.name].split()),
        remembers=unless("ucb_remember", False),
    )


CONTROLLERS = Registry[Part](
    "controller",
    *PLAIN,
    Part(
        "ucb_rules",
        "",
        "a bandit over rules with tokens per second as reward",
        "arXiv 2505.15141",
        (UCB_ARMS, *parameters.UCB[1:]),
        uses=(OneOf(PLAIN, _ucb_rules),),
    ),
)

CHOOSERS: dict[str, Part] = {
    "auto": replace(CONTROLLERS["survival"], path="egag.choosing.drafter_chooser:DrafterChooser"),
    "hedge": replace(CONTROLLERS["survival"], path="egag.choosing.hedge_chooser:HedgeChooser"),
}
"""The rules of drafters that consist of several; these rules also choose the drafter."""

OWN = "own"
DRAFT_RULE = choice(
    "draft_rule", OWN, "the draft-length rule; own: a fixed gamma, or a budget for copies", (OWN, *CONTROLLERS)
)


def rule_of(plain: Part) -> Part:
    """The draft-length rule of a method. A user may replace it if the method's own rule is a fixed number."""
    if plain.name not in FIXED:
        return plain
    rules = OneOf((plain, *CONTROLLERS.values()), lambda values: {OWN: plain, **CONTROLLERS}[values[DRAFT_RULE.name]])
    return Part(plain.name, "", plain.help, plain.paper, (DRAFT_RULE,), uses=(rules,))
