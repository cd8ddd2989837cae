"""The tables of drafters, searches and methods, one entry each. No torch is imported here."""

from sampling.methods import parameters
from sampling.methods.choices import STORAGES
from sampling.methods.method import Method, method_table
from sampling.methods.part import Hybrid, Part, TrainedPart, always, chosen_by, for_drafter, unless
from sampling.methods.rules import CHOOSERS, CONTROLLERS, rule_of
from sampling.methods.verifiers import JUDGING
from utils.parameter import ChosenPart, choice, chosen, drafts, integer, toggle
from utils.registry import Registry

COPIERS = Registry[Part](
    "copier",
    Part(
        "prompt_lookup",
        "ngram_assisted.prompt_lookup:PromptLookupDrafter",
        "copies the continuation of an earlier match of the last tokens",
        "arXiv 2304.04487; transformers prompt_lookup_num_tokens, `ngram` in serving engines",
        parameters.LOOKUP,
        bounds=(("min_ngram_size", "max_ngram_size"),),
    ),
    Part(
        "ngram",
        "ngram_assisted.nasd:NgramDrafter",
        "drafts from counts of n-grams",
        "NASD; NAPD when top_k_filler is 1",
        (
            chosen("set_ngramstorage", ChosenPart("basic", (3,)), "n-gram storage and its order", STORAGES),
            integer(
                "top_k_filler",
                3,
                "target candidates per position added to the counts; 1 = only the emitted token",
                minimum=1,
                maximum=64,
            ),
            toggle("reset_in_between", True, "forget the n-grams before each prompt"),
        ),
        remembers=unless("reset_in_between", True),
    ),
    Part(
        "suffix",
        "ngram_assisted.suffix:SuffixDrafter",
        "drafts from suffix trees of this text and of earlier responses",
        "arXiv 2411.04975",
        parameters.SUFFIX,
        remembers=unless("max_cached_requests", 0),
        trees=unless("use_tree_spec", False),
    ),
)

# A chain has no width and no tree size. A best-first tree has no width.
A_TREE = unless("draft_tree", "chain")
ON_TREES = {"tree_width": unless("draft_tree", "chain", "best_first"), "tree_tokens": A_TREE}

HEADS = Registry[TrainedPart](
    "head",
    TrainedPart(
        "medusa",
        "sampling.drafters.heads.medusa_hydra:MedusaDrafter",
        "heads that each look one place further ahead",
        "arXiv 2401.10774",
        parameters.HEAD,
        read=ON_TREES,
        needs="medusa",
        trees=A_TREE,
        task="sampling.distill.tasks:MedusaTask",
    ),
    TrainedPart(
        "hydra",
        "sampling.drafters.heads.medusa_hydra:HydraDrafter",
        "heads that predict ahead and read the earlier drafts",
        "arXiv 2402.05109",
        parameters.HEAD,
        read=ON_TREES,
        needs="hydra",
        trees=A_TREE,
        task="sampling.distill.tasks:HydraTask",
    ),
    TrainedPart(
        "eagle",
        "sampling.drafters.heads.eagle_mtp:EagleDrafter",
        "a block that continues the target's hidden states",
        "arXiv 2401.15077, 2406.16858, 2503.01840",
        parameters.HEAD,
        read=ON_TREES,
        needs="eagle",
        trees=A_TREE,
        task="sampling.distill.tasks:EagleTask",
    ),
    TrainedPart(
        "mtp",
        "sampling.drafters.heads.eagle_mtp:MtpDrafter",
        "a multi-token prediction module, fed back into itself",
        "arXiv 2412.19437",
        parameters.HEAD,
        read=ON_TREES,
        needs="mtp",
        trees=A_TREE,
        task="sampling.distill.tasks:MtpTask",
    ),
    TrainedPart(
        "parallel_eagle",
        "sampling.drafters.heads.parallel_eagle:ParallelEagleDrafter",
        "a block that predicts several positions in one forward",
        "P-EAGLE, arXiv 2602.01469",
        parameters.HEAD,
        read=ON_TREES,
        needs="parallel_eagle",
        trees=A_TREE,
        task="sampling.distill.parallel_eagle:ParallelEagleTask",
    ),
    TrainedPart(
        "dspark",
        "sampling.drafters.heads.dspark:DsparkDrafter",
        "a block that is filled in one pass, and a low-rank matrix that makes a chain of it",
        "arXiv 2607.05147, 2602.06036",
        parameters.HEAD,
        read=ON_TREES,
        needs="dspark",
        trees=A_TREE,
        task="sampling.distill.one_pass:DsparkTask",
    ),
)

# The head trained here with the most tokens per round (docs/benchmarks.md).
BEST_HEAD = "mtp"

# Drafters with weights: these can be trained, and a hybrid may begin with them.
MODELS = Registry[TrainedPart](
    "model",
    TrainedPart(
        "model",
        "sampling.drafters.model:ModelDrafter",
        "a smaller causal model drafts",
        "arXiv 2211.17192",
        (parameters.WEIGHTS, parameters.VOCABULARY),
        needs="model",
        task="sampling.distill.tasks:ModelTask",
    ),
    *HEADS.values(),
)

# A copy can follow a chain only.
CHAIN = {"draft_tree": "chain", "tree_width": 1, "tree_tokens": 1}
# The trees of a drafter that is chosen among others.
TREE = {"draft_tree": "dynamic", "tree_width": 2, "tree_tokens": 12}
HYBRID_MODEL = choice("hybrid_model", "model", "the model that drafts first in a hybrid", tuple(MODELS))
HYBRID_COPY = choice("hybrid_copy", "prompt_lookup", "the copier that extends the draft", tuple(COPIERS))
INNER: dict[str, Part] = {**HEADS, **COPIERS}
STAGED_DRAFTER = choice("staged_drafter", "mtp", "the drafter of the drafter model", tuple(INNER))

NONE = Part("none", "sampling.drafter:NullDrafter", "drafts nothing: plain autoregression")
SUFFIX_OR_MODEL = Part(
    "suffix_or_model",
    "sampling.drafters.combined.hybrid:SuffixOrModelDrafter",
    "suffix trees if their expected accepted tokens reach the draft length of a model, else that model",
    "arctic-inference",
    (HYBRID_MODEL, parameters.MODEL_STEPS, parameters.SUFFIX_SCORE),
    uses=(chosen_by(HYBRID_MODEL, MODELS), COPIERS["suffix"]),
    hybrid=Hybrid(HYBRID_MODEL, parameters.MODEL_STEPS, "suffix"),
)
AFTER_GRAMMAR: dict[str, Part] = {"none": NONE, **COPIERS, **MODELS, "suffix_or_model": SUFFIX_OR_MODEL}
GRAMMAR_ELSE = choice("grammar_else", "none", "what drafts where the grammar forces nothing", tuple(AFTER_GRAMMAR))

DRAFTERS = Registry[Part](
    "drafter",
    NONE,
    Part(
        "recycling",
        "ngram_assisted.token_recycling:TokenRecyclingDrafter",
        "the target's other candidates of earlier rounds, as a tree",
        "arXiv 2408.08696",
        parameters.RECYCLING,
        remembers=unless("recycling_remember", False),
        trees=True,
    ),
    Part(
        "logitspec",
        "ngram_assisted.logitspec:LogitSpecDrafter",
        "the target's other candidates for the last token as guesses of the next one, and copies behind them",
        "arXiv 2507.01449",
        parameters.LOGITSPEC,
        trees=True,
    ),
    *MODELS.values(),
    *COPIERS.values(),
    Part(
        "extended",
        "sampling.drafters.combined.hybrid:ExtendedDrafter",
        "a smaller model drafts a few tokens, copies extend them",
        "FastDeploy mtp_strategy with_ngram",
        (HYBRID_MODEL, parameters.MODEL_STEPS, HYBRID_COPY),
        uses=(chosen_by(HYBRID_MODEL, MODELS, **CHAIN), chosen_by(HYBRID_COPY, COPIERS, use_tree_spec=False)),
        hybrid=Hybrid(HYBRID_MODEL, parameters.MODEL_STEPS, HYBRID_COPY),
    ),
    SUFFIX_OR_MODEL,
    Part(
        "staged",
        "sampling.drafters.combined.staged:StagedDrafter",
        "a smaller model drafts, and a head or copies draft for it",
        "arXiv 2308.04623, 2503.13565",
        (STAGED_DRAFTER, drafts("staged_gamma", 2, "drafts per forward of the drafter model", minimum=0)),
        one_vocabulary=True,
        uses=(
            for_drafter(STAGED_DRAFTER, INNER, draft_weights="auto", use_tree_spec=False),
            always(MODELS["model"], vocabulary="auto"),
        ),
        hybrid=Hybrid("model"),  # its own drafter can only make it cheaper
    ),
    Part(
        "auto",
        "sampling.drafters.combined.auto:AutoDrafter",
        "all drafters of a pair: copies, the drafter model, heads; each round uses the one with the best estimate",
        "BanditSpec, arXiv 2505.15141; HYBRID_SUFFIX_MTP of SGLang",
        (parameters.WEIGHTS, parameters.VOCABULARY, parameters.GRAMMAR_FIRST),
        uses=(always(COPIERS["suffix"], use_tree_spec=False, max_spec_factor=4.0),),  # the rule cuts long copies
    ),
    Part(
        "hedge",
        "sampling.drafters.combined.hedge:HedgeDrafter",
        "the drafters of auto, each judged by all of the verified text, drawn by their gains so far",
        "HedgeSpec, arXiv 2510.20064",
        (parameters.WEIGHTS, parameters.VOCABULARY, parameters.GRAMMAR_FIRST),
        uses=(always(COPIERS["suffix"], use_tree_spec=False, max_spec_factor=4.0),),  # the rule cuts long copies
    ),
    Part(
        "grammar",
        "sampling.drafters.grammar:GrammarDrafter",
        "the tokens that a grammar forces, and where it forces none another drafter",
        "vLLM PR 45400; llguidance's fast-forward tokens",
        (GRAMMAR_ELSE,),
        uses=(chosen_by(GRAMMAR_ELSE, AFTER_GRAMMAR),),
        hybrid=Hybrid(GRAMMAR_ELSE),
    ),
)

SEARCHES = Registry[Part](
    "search",
    Part(
        "beam",
        "sampling.beam:BeamSearch",
        "the best of several texts decoded in parallel",
        "arXiv 1609.08144",
        parameters.BEAM,
        trees=True,
    ),
)

# Plain autoregression of the target, which is the reference of every other method, and of the drafter model. Users type
# these names, which are also the names of the models.
AR = "target"
DRAFTER_AR = "drafter"
# Plain autoregression once more, which shows the noise: the name of a run, not of a method.
CONTROL = "control"


def parts_of(line: Method) -> tuple[Part, ...]:
    """What a line of METHODS is made of."""
    if line.search:
        return (SEARCHES[line.search],)
    if not line.drafts:
        return DRAFTERS[line.drafter], CONTROLLERS[line.controller]
    rule = CHOOSERS.get(line.drafter) or rule_of(CONTROLLERS[line.controller])
    return DRAFTERS[line.drafter], rule, JUDGING


METHODS = method_table(
    parts_of,
    Method(AR, "AR", "target model, plain autoregression: the reference row", on=True, preset={"gamma": 0}),
    Method(DRAFTER_AR, "AR drafter", "drafter model alone, plain autoregression", runs="drafter", preset={"gamma": 0}),
    Method("speculative", "SD", "speculative decoding with the drafter model, fixed gamma", "model", on=True),
    Method("egag", "SD EGAG", "speculative decoding with entropy-adaptive gamma", "model", "egag"),
    Method("heuristic", "SD heuristic", "two drafts more after full acceptance, else one fewer", "model", "heuristic"),
    Method("confidence", "SD confidence", "drafts until one is below a probability", "model", "confidence"),
    Method("ucb", "SD UCB1", "speculative decoding whose gamma a bandit chooses by tokens a second", "model", "ucb"),
    Method("ngram", "NASD", "n-gram assisted speculative decoding", "ngram", on=True),
    Method("prompt_lookup", "Prompt lookup", "copies the continuation of an earlier match", "prompt_lookup", "budget"),
    Method("suffix", "Suffix", "suffix decoding: copies from this text and earlier responses", "suffix", "budget"),
    Method("recycling", "Token Recycling", "a tree of the target's earlier candidates", "recycling", "budget"),
    Method("logitspec", "LogitSpec", "guesses from the last logits, with copies after them", "logitspec", "budget"),
    Method("extended", "Model + copies", "the hybrid_model drafts, copies extend the draft", "extended", "budget"),
    Method(
        "suffix_or_model",
        "Suffix or model",
        "suffix trees if their expected accepted tokens reach suffix_score, else the hybrid_model",
        "suffix_or_model",
        "budget",
    ),
    Method("grammar_drafts", "Grammar", "drafts what the grammar forces, else the grammar_else", "grammar", "budget"),
    Method("staged", "SD staged", "the drafter model decodes speculatively with the staged_drafter", "staged"),
    Method("auto", "Auto", "each round uses the drafter of the most expected tokens a second", "auto", "survival"),
    Method("hedge", "HedgeSpec", "the drafters of auto, drawn by gains on the verified text", "hedge", "survival"),
    Method("medusa", "Medusa", "Medusa heads draft", "medusa"),
    Method("hydra", "Hydra", "Hydra heads draft", "hydra"),
    Method("eagle", "EAGLE", "an EAGLE head drafts", "eagle"),
    Method("mtp", "MTP", "a multi-token prediction head drafts", "mtp"),
    Method("parallel_eagle", "P-EAGLE", "a P-EAGLE head drafts all positions in one forward", "parallel_eagle"),
    Method("dspark", "DSpark", "a DSpark head drafts a block in one forward", "dspark"),
    Method("beam", "Beam search", "the best of several texts decoded in parallel: another output", search="beam"),
)
