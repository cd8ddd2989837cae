"""Parameters of the table's parts that are shared or too long for the table."""

from utils.parameter import MOST_DRAFTS, MOST_TOKENS, choice, drafts, integer, number, numbers, toggle

GRAMMAR_FIRST = toggle("grammar_first", True, "the tokens that a grammar forces are drafted before anything else")
GAMMA = drafts("gamma", 4, "draft length: drafted tokens per round (fixed gamma)", minimum=0)
EGAG = (
    drafts("egag_gamma_min", 1, "EGAG's lower bound", minimum=1),
    drafts("egag_gamma_max", 6, "EGAG's upper bound", minimum=1),
    number("egag_ema", 0.9, "EGAG's smoothing, 0 = none", minimum=0.0, below=1.0),
)
CONFIDENCE = (
    number("confidence_threshold", 0.4, "stop after a draft with a probability below this", minimum=0.0, maximum=1.0),
    drafts("confidence_gamma_max", 20, "most drafts per round under the confidence rule", minimum=1),
)
COST_RATIO = (
    drafts("cost_ratio_gamma_max", 16, "most drafts per round under the cost ratio", minimum=1),
    number("cost_ratio_decay", 0.95, "decay of earlier verdicts per round", above=0.0, maximum=1.0),
    number("cost_ratio_probe", 0.01, "share of time for probes while drafts give no speedup", minimum=0.0, maximum=1.0),
)
SVIP = (
    number("svip_threshold", 0.3, "stop after a draft with sqrt(0.15 H) above this", minimum=0.0),
    drafts("svip_gamma_max", 40, "most drafts per round under SVIP", minimum=1),
)
SATURATION = (
    number("saturation_threshold", 0.2, "stop after a draft whose path has less probability", minimum=0.0, maximum=1.0),
    drafts("saturation_gamma_max", 8, "most drafts per round under saturation pruning", minimum=1),
)
ADAEDL = (
    number("adaedl_k", 0.2, "weight of the entropy in AdaEDL's bound", minimum=0.0),
    number("adaedl_threshold", 0.7, "AdaEDL's initial threshold", minimum=0.0, maximum=1.0),
    drafts("adaedl_gamma_max", 8, "most drafts per round under AdaEDL", minimum=1),
)
GAMMATUNE = (
    drafts("gammatune_gamma", 3, "initial gamma of GammaTune", minimum=1),
    number("gammatune_eta", 0.3, "weight of a round in GammaTune's average", above=0.0, maximum=1.0),
    integer("gammatune_delta", 2, "drafts more after full acceptance", minimum=0, maximum=MOST_DRAFTS),
    drafts("gammatune_gamma_max", 10, "most drafts per round under GammaTune", minimum=1),
)
ANPD = (
    drafts("anpd_gamma", 4, "initial gamma of ANPD", minimum=1),
    drafts("anpd_gamma_max", 8, "most drafts per round under ANPD", minimum=1),
)
DRAFT_VERIFY = (
    number(
        "draft_verify_threshold", 0.8, "initial threshold; the source uses 0.5 under sampling", minimum=0.0, maximum=1.0
    ),
    drafts("draft_verify_gamma_max", 8, "most drafts per round under Draft & Verify", minimum=1),
)
SPECDEC = (
    number("specdec_threshold", 0.5, "stop if the probability of a rejection is above this", minimum=0.0, maximum=1.0),
    drafts("specdec_gamma_max", 20, "most drafts per round under SpecDec++", minimum=1),
    toggle("specdec_remember", True, "keep the calibration for the next prompt"),
)
CASCADE = (
    drafts("cascade_gamma_max", 8, "most drafts per round under Cascade", minimum=1),
    integer("cascade_test", 4, "rounds that a length is tested for", minimum=1, maximum=1000),
    integer("cascade_hold", 24, "rounds between two tests", minimum=1, maximum=100000),
)
UCB = (
    drafts("ucb_gamma_max", 8, "longest draft length of the bandit's 0, 1, 2, 4, ...", minimum=1),
    number("ucb_exploration", 0.2, "weight of the bonus for lengths rarely played", minimum=0.0),
    toggle("ucb_remember", True, "keep the bandit's estimates for the next prompt"),
)

SURVIVAL = (
    drafts("survival_gamma_max", 16, "most drafts per round under the survival rule", minimum=1),
    number("survival_explore", 0.01, "share of the time that trials may lose", minimum=0.0, maximum=1.0),
    toggle("survival_live", True, "correct costs by the times of the rounds; off = measured costs alone"),
    toggle("survival_remember", True, "keep the estimates of acceptance and costs for the next prompt"),
)

LOOKUP = (
    integer("max_ngram_size", 3, "maximum number of last tokens to look up", minimum=1, maximum=16),
    integer("min_ngram_size", 1, "minimum number of last tokens to look up", minimum=1, maximum=16),
    choice("lookup_occurrence", "latest", "the earlier occurrence to copy from", ("latest", "first")),
)
SUFFIX = (
    integer("max_tree_depth", 64, "longest substring that the suffix trees count", minimum=2, maximum=1024),
    integer("max_cached_requests", -1, "number of responses kept; -1 = all, 0 = none", minimum=-1, maximum=1_000_000),
    number("max_spec_factor", 1.0, "drafts per matched token", above=0.0, maximum=1000.0),
    number("min_token_prob", 0.1, "stop at a draft with a probability below this", minimum=0.0, maximum=1.0),
    toggle("use_tree_spec", False, "also draft alternatives, as a tree"),
)
RECYCLING = (
    integer("recycling_top_k", 8, "candidates kept for each token", minimum=1, maximum=8),
    toggle("recycling_remember", True, "keep the candidates for the next prompt"),
)
LOGITSPEC = (
    integer("logitspec_top_k", 32, "number of the target's candidates used as guesses", minimum=1, maximum=1024),
)

WEIGHTS = choice(
    "draft_weights",
    "auto",
    "int8: quantised weights; full: the target's dtype; auto: int8 for heads and distilled drafters, if faster",
    ("auto", "int8", "full"),
)
VOCABULARY = choice(
    "vocabulary",
    "auto",
    "a drafter with another tokenizer: tli drafts shared tokens, slem drafts text; auto chooses by their number",
    ("auto", "tli", "slem"),
)
HEAD = (
    WEIGHTS,
    choice(
        "draft_tree",
        "chain",
        "shape of a head's drafts: a chain; static or drawn: a fixed tree of top or drawn tokens; dynamic: a tree "
        "by the round's probabilities; best_first: the best paths of a head that predicts all positions in one forward",
        ("chain", "static", "drawn", "dynamic", "best_first"),
    ),
    integer("tree_width", 4, "children of each node of a tree", minimum=1, maximum=64),
    drafts("tree_tokens", 12, "maximum number of drafts in a tree", minimum=1),
)

MODEL_STEPS = drafts("num_model_steps", 2, "draft length of a hybrid's model", minimum=1)
SUFFIX_SCORE = number(
    "suffix_score",
    0.0,
    "least expected accepted tokens of a suffix draft; 0 = num_model_steps",
    minimum=0.0,
)

TYPICAL = (
    number("typical_epsilon", 0.09, "highest threshold of typical", above=0.0, maximum=1.0),
    number("typical_delta", 0.3, "threshold of typical = delta * exp(-H) below that", above=0.0),
)
SYNTHETIC = (
    numbers(
        "accept_rates",
        (0.8, 0.6, 0.4),
        "synthetic: conditional acceptance rate at each position; the last repeats",
        minimum=0.0,
        maximum=1.0,
    ),
    number(
        "accept_length",
        0.0,
        "synthetic: tokens per round, the target's included; 0 = accept_rates",
        minimum=1.0,
        maximum=MOST_DRAFTS + 1.0,
        unset=0.0,
    ),
)
BEAM = (
    integer("num_beams", 4, "number of beams", minimum=1, maximum=1024),
    integer("beam_top_k", 3, "candidates per beam and round", minimum=1, maximum=1024),
    integer(
        "beam_min_length", 5, "min_length of the length penalty; 0 = transformers'", minimum=0, maximum=MOST_TOKENS
    ),
    number("beam_alpha", 1.2, "exponent of the length penalty; 0 = none", minimum=0.0, maximum=10.0),
)
