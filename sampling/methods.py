"""THE tables: one line a drafter, controller, verifier, processor and method. No torch is imported here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from utils.parameter import Chosen, Parameter, Part, Values, choice, chosen, integer, number, toggle
from utils.registry import Registry
from utils.sampling_parameters import TEMPERATURE, TOP_K, TOP_P

GAMMA = integer("gamma", 4, "drafted tokens a round (fixed gamma)", minimum=0)

STORAGES = Registry[Part](
    "n-gram storage",
    Part(
        "basic",
        "ngram_assisted.ngram_counts:NGramStorage",
        "k-grams of every order k in [2, n], longest first",
        parameters=(integer("n", None, "order of the n-grams", minimum=2),),
    ),
    Part(
        "onelevel",
        "ngram_assisted.ngram_counts:OneLevelNGramStorage",
        "n-grams of order n only",
        parameters=(integer("n", None, "order of the n-grams", minimum=2),),
    ),
)

NGRAM = (
    chosen("set_ngramstorage", Chosen("basic", (3,)), "n-gram storage and its order", STORAGES),
    integer(
        "top_k_filler", 3, "target candidates a position added to the counts; 1 = only the emitted token", minimum=1
    ),
    toggle("reset_in_between", True, "forget the n-grams before each prompt"),
)
LOOKUP = (
    integer("max_ngram_size", 3, "most last tokens to look up", minimum=1, maximum=16),
    integer("min_ngram_size", 1, "fewest last tokens to look up", minimum=1, maximum=16),
    choice("lookup_occurrence", "latest", "which earlier place is copied from", ("latest", "first")),
)
SUFFIX = (
    integer("max_tree_depth", 64, "longest substring that the suffix trees count", minimum=2, maximum=1024),
    integer("max_cached_requests", -1, "responses remembered; -1 = all, 0 = none", minimum=-1),
    number("max_spec_factor", 1.0, "drafts a matched token", above=0.0),
    number("min_token_prob", 0.1, "stop at a draft rarer than this", minimum=0.0, maximum=1.0),
    toggle("use_tree_spec", False, "draft alternatives as well, as a tree"),
)
WEIGHTS = choice(
    "draft_weights",
    "auto",
    "int8: rounded weights to draft with; full: the target's dtype; auto: int8 for what was trained here, if faster",
    ("auto", "int8", "full"),
)
HEAD = (
    WEIGHTS,
    choice(
        "draft_tree",
        "chain",
        "what a head drafts: a chain, a tree of one static shape, or one grown by each round's chances",
        ("chain", "static", "dynamic"),
    ),
    integer("tree_width", 4, "alternatives behind each draft of a tree", minimum=1, maximum=64),
    integer("tree_tokens", 12, "most drafts of a tree", minimum=1, maximum=1024),
)
HEADS = ("medusa", "hydra", "eagle", "mtp")
HYBRID_MODEL = choice("hybrid_model", "model", "what drafts first in a hybrid", ("model", *HEADS))
MODEL_STEPS = integer("num_model_steps", 2, "tokens that the model of a hybrid drafts", minimum=1)
SUFFIX_SCORE = number(
    "suffix_score",
    0.0,
    "expected accepted tokens from which the suffix draft is taken; 0 = num_model_steps",
    minimum=0.0,
)
BUDGET = integer("num_speculative_tokens", 10, "most drafts a round, copied ones included", minimum=0)

COPIERS = ("prompt_lookup", "ngram", "suffix")
COPIER = choice("hybrid_copy", "prompt_lookup", "what extends the draft", COPIERS)

DRAFTERS = Registry[Part](
    "drafter",
    Part("none", "sampling.drafter:NullDrafter", "drafts nothing: plain autoregression"),
    Part(
        "model",
        "sampling.drafters.model:ModelDrafter",
        "a smaller causal model drafts",
        "arXiv 2211.17192",
        (WEIGHTS,),
    ),
    Part(
        "ngram",
        "ngram_assisted.nasd:NgramDrafter",
        "counts of n-grams draft",
        "NASD; NAPD when top_k_filler is 1",
        NGRAM,
    ),
    Part(
        "prompt_lookup",
        "ngram_assisted.prompt_lookup:PromptLookupDrafter",
        "what followed the last tokens where they stood before is copied",
        "arXiv 2304.04487; transformers prompt_lookup_num_tokens, `ngram` in serving engines",
        LOOKUP,
    ),
    Part(
        "suffix",
        "ngram_assisted.suffix:SuffixDrafter",
        "suffix trees of this text and of earlier responses draft",
        "arXiv 2411.04975",
        SUFFIX,
    ),
    Part(
        "extended",
        "sampling.drafters.hybrid:ExtendedDrafter",
        "a smaller model drafts a few tokens, copies extend them",
        "FastDeploy mtp_strategy with_ngram",
        (
            HYBRID_MODEL,
            WEIGHTS,
            MODEL_STEPS,
            COPIER,
            *LOOKUP,
            *NGRAM,
            *(parameter for parameter in SUFFIX if parameter.name != "use_tree_spec"),
        ),
    ),
    Part(
        "suffix_or_model",
        "sampling.drafters.hybrid:SuffixOrModelDrafter",
        "suffix trees draft where they promise as many tokens as a smaller model would draft, else that model",
        "arctic-inference",
        (HYBRID_MODEL, WEIGHTS, MODEL_STEPS, SUFFIX_SCORE, *SUFFIX),
    ),
    Part(
        "medusa",
        "sampling.drafters.medusa_hydra:MedusaDrafter",
        "heads that each look one place further ahead",
        "arXiv 2401.10774",
        HEAD,
    ),
    Part(
        "hydra",
        "sampling.drafters.medusa_hydra:HydraDrafter",
        "heads that look ahead and know the drafts between",
        "arXiv 2402.05109",
        HEAD,
    ),
    Part(
        "eagle",
        "sampling.drafters.eagle_mtp:EagleDrafter",
        "a block that continues the target's hidden states",
        "arXiv 2401.15077, 2406.16858, 2503.01840",
        HEAD,
    ),
    Part(
        "mtp",
        "sampling.drafters.eagle_mtp:MtpDrafter",
        "a multi-token prediction module, fed back into itself",
        "arXiv 2412.19437",
        HEAD,
    ),
)

CONTROLLERS = Registry[Part](
    "controller",
    Part("fixed", "egag.controller:FixedGamma", "the same gamma in every round", "arXiv 2211.17192", (GAMMA,)),
    Part(
        "budget",
        "egag.controller:DraftBudget",
        "the same budget in every round, for drafts that cost nothing",
        "num_speculative_tokens of serving engines",
        (BUDGET,),
    ),
    Part(
        "egag",
        "egag.egag:EntropyGamma",
        "gamma from the entropy of the first draft's distribution",
        "EGAG",
        (
            integer("egag_gamma_min", 1, "EGAG's lower bound", minimum=1),
            integer("egag_gamma_max", 6, "EGAG's upper bound", minimum=1),
            number("egag_ema", 0.9, "EGAG's smoothing, 0 = none", minimum=0.0, below=1.0),
        ),
    ),
    Part(
        "heuristic",
        "egag.heuristic:HeuristicGamma",
        "+2 after full acceptance, else -1",
        "transformers num_assistant_tokens_schedule",
        (integer("heuristic_gamma", 5, "first gamma of the heuristic schedule", minimum=1),),
    ),
    Part(
        "confidence",
        "egag.confidence:ConfidenceGamma",
        "stop after a draft below a probability",
        "transformers assistant_confidence_threshold",
        (
            number("confidence_threshold", 0.4, "stop after a draft less likely than this", minimum=0.0, maximum=1.0),
            integer("confidence_gamma_max", 20, "most drafts a round under the confidence rule", minimum=1),
        ),
    ),
)

VERIFIERS = Registry[Part](
    "verify strategy",
    Part("rejection", "sampling.verifier:RejectionVerifier", "speculative sampling", "arXiv 2211.17192, 2305.09781"),
    Part("target_match", "sampling.verifier:TargetMatchVerifier", "a draft must equal a token drawn from p"),
    Part("greedy", "sampling.verifier:GreedyVerifier", "a draft must be the argmax of p; LOSSY but under greedy"),
    Part(
        "topp",
        "sampling.lossy:TopPVerifier",
        "a draft must be in the target's top-p set; LOSSY but under greedy",
        "FastDeploy",
        (number("verify_top_p", 0.9, "mass of the set that topp accepts from", above=0.0, maximum=1.0),),
    ),
    Part(
        "unadjusted",
        "sampling.lossy:UnadjustedVerifier",
        "speculative sampling that draws from p itself after a rejection; LOSSY but under greedy",
    ),
    Part(
        "typical",
        "sampling.lossy:TypicalVerifier",
        "a draft's p must pass a threshold that falls with the entropy; LOSSY but under greedy",
        "arXiv 2401.10774",
        (
            number("typical_epsilon", 0.09, "highest threshold of typical", above=0.0, maximum=1.0),
            number("typical_delta", 0.3, "threshold of typical = delta * exp(-H) below that", above=0.0),
        ),
    ),
)

SEARCHES = Registry[Part](
    "search",
    Part(
        "beam",
        "sampling.beam:BeamSearch",
        "the best of a few texts that grow side by side",
        "arXiv 1609.08144",
        (
            integer("num_beams", 4, "texts that grow side by side", minimum=1, maximum=1024),
            integer("beam_top_k", 3, "candidates a beam and round", minimum=1, maximum=1024),
            integer("beam_min_length", 5, "min_length of the length penalty; 0 = transformers'", minimum=0),
            number("beam_alpha", 1.2, "exponent of the length penalty; 0 = none", minimum=0.0, maximum=10.0),
        ),
    ),
)

# What stands in for the strategy: bounds of what judging can do.
POLICIES = Registry[Part](
    "accept policy",
    Part("accept_all", "sampling.lossy:AcceptAllVerifier", "every draft passes: the upper bound; LOSSY"),
    Part("reject_all", "sampling.lossy:RejectAllVerifier", "no draft passes: the lower bound"),
)

JUDGING = (
    choice("verify_strategy", "rejection", "how drafts are judged", tuple(VERIFIERS)),
    choice("accept_policy", "normal", "judge drafts, or accept or reject them all", ("normal", *POLICIES)),
)

PROCESSORS = Registry[Part](
    "processor",
    Part(
        "greedy",
        "utils.logits_processor:GreedyProcessor",
        "always the most likely token",
        parameters=(number("temperature", 1.0, "accepted, has no effect", above=0.0),),
    ),
    Part(
        "multinomial",
        "utils.logits_processor:MultinomialProcessor",
        "the whole distribution",
        parameters=(TEMPERATURE,),
    ),
    Part(
        "topk", "utils.logits_processor:TopKProcessor", "the top_k most likely tokens", parameters=(TEMPERATURE, TOP_K)
    ),
    Part(
        "nucleus",
        "utils.logits_processor:NucleusProcessor",
        "the most likely tokens up to mass top_p",
        parameters=(TEMPERATURE, TOP_P),
    ),
    Part(
        "topknucleus",
        "utils.logits_processor:TopKNucleusProcessor",
        "top-k, then nucleus",
        parameters=(TEMPERATURE, TOP_K, TOP_P),
    ),
)


def verifier_part(values: Values) -> Part:
    """The line of the strategy, or of the policy that stands in for it."""
    policy = values["accept_policy"]
    return VERIFIERS[values["verify_strategy"]] if policy == "normal" else POLICIES[policy]


@dataclass(frozen=True, slots=True)
class Method:
    """A name for (drafter, controller) on one of the pair's models, or for a search; `on` = enabled at start.

    How its drafts are judged is a setting of the user's. `search`: a line of SEARCHES, which drafts nothing.

    `preset` fixes parameters of the parts, which are then no parameters of the method.
    """

    name: str
    title: str
    help: str
    drafter: str = "none"
    controller: str = "fixed"
    runs: Literal["target", "drafter"] = "target"
    search: str = ""
    on: bool = False
    preset: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Its lines in the tables: drafter and controller, or the search."""
        if self.search:
            return (SEARCHES[self.search],)
        return DRAFTERS[self.drafter], CONTROLLERS[self.controller]

    @property
    def drafts(self) -> bool:
        """Whether there is anything to judge."""
        return self.drafter != "none"

    @property
    def other(self) -> str | None:
        """What makes its output another than the target's own; then nothing is compared with the reference."""
        if self.search:
            return "other output"
        return "other model" if self.runs == "drafter" else None

    def needs(self, values: Values) -> str | None:
        """What a pair must have for it: `model`, a drafter model, or a kind of trained head; None = nothing."""
        if self.runs == "drafter":
            return "model"
        if HYBRID_MODEL in self.parameters:
            return str(values[HYBRID_MODEL.name])
        return self.drafter if self.drafter in ("model", *HEADS) else None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What a user may set, from all its parts and from how drafts are judged."""
        own = tuple(p for part in self.parts for p in part.parameters if p.name not in self.preset)
        strategies = (p for part in VERIFIERS.values() for p in part.parameters)
        return (*own, *JUDGING, *strategies) if self.drafts else own

    def remembers(self, values: Values) -> bool:
        """Whether a run depends on the prompts before it."""
        names = {parameter.name for parameter in self.relevant(values)}
        counts = "reset_in_between" in names and not values["reset_in_between"]
        return counts or ("max_cached_requests" in names and values["max_cached_requests"] != 0)

    def relevant(self, values: Values) -> tuple[Parameter, ...]:
        """Those parameters that matter where the others have these values."""
        judge = verifier_part(values)
        unused = {p.name for part in VERIFIERS.values() if part is not judge for p in part.parameters}
        if any(parameter is COPIER for parameter in self.parameters):
            others = (DRAFTERS[name] for name in COPIERS if name != values[COPIER.name])
            unused |= {p.name for part in others for p in part.parameters}
        return tuple(p for p in self.parameters if p.name not in unused)


# Plain autoregression of the target: what every other method is measured against.
REFERENCE = "target"

METHODS = Registry[Method](
    "method",
    Method("target", "AR", "target model, plain autoregression: the reference row", on=True, preset={"gamma": 0}),
    Method("drafter", "AR drafter", "drafter model alone, plain autoregression", runs="drafter", preset={"gamma": 0}),
    Method("speculative", "SD", "speculative decoding with the drafter model, fixed gamma", "model", on=True),
    Method("egag", "SD EGAG", "speculative decoding with entropy-adaptive gamma", "model", "egag"),
    Method("ngram", "NASD", "n-gram assisted speculative decoding", "ngram", on=True),
    Method("prompt_lookup", "Prompt lookup", "copies what followed the same tokens", "prompt_lookup", "budget"),
    Method("suffix", "Suffix", "suffix decoding: copies from this text and earlier responses", "suffix", "budget"),
    Method("extended", "Model + copies", "the hybrid_model drafts, copies extend the draft", "extended", "budget"),
    Method(
        "suffix_or_model",
        "Suffix or model",
        "suffix trees where they promise suffix_score tokens, else the hybrid_model",
        "suffix_or_model",
        "budget",
    ),
    Method("medusa", "Medusa", "Medusa heads draft", "medusa"),
    Method("hydra", "Hydra", "Hydra heads draft", "hydra"),
    Method("eagle", "EAGLE", "an EAGLE head drafts", "eagle"),
    Method("mtp", "MTP", "a multi-token prediction head drafts", "mtp"),
    Method("beam", "Beam search", "the best of a few texts that grow side by side: another output", search="beam"),
)
