"""THE tables: one line a drafter, controller, verifier, processor and method. No torch is imported here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from utils.parameter import Chosen, Parameter, Part, choice, chosen, integer, number, toggle
from utils.registry import Registry

GAMMA = integer("gamma", 4, "drafted tokens a round (fixed gamma)", minimum=0)
TEMPERATURE = number("temperature", None, "softmax temperature", above=0.0)
TOP_K = integer("k", None, "how many tokens stay in", minimum=1)
TOP_P = number("p", None, "mass of the tokens that stay in", above=0.0, maximum=1.0)

STORAGES = Registry[Part](
    "n-gram storage",
    Part(
        "basic",
        "ngram_assisted.storage:NGramStorage",
        "k-grams of every order k in [2, n], longest first",
        parameters=(integer("n", None, "order of the n-grams", minimum=2),),
    ),
    Part(
        "onelevel",
        "ngram_assisted.storage:OneLevelNGramStorage",
        "n-grams of order n only",
        parameters=(integer("n", None, "order of the n-grams", minimum=2),),
    ),
)

DRAFTERS = Registry[Part](
    "drafter",
    Part("none", "sampling.drafter:NullDrafter", "drafts nothing: plain autoregression"),
    Part("model", "sampling.drafters.model:ModelDrafter", "a smaller causal model drafts", "arXiv 2211.17192"),
    Part(
        "ngram",
        "ngram_assisted.nasd:NgramDrafter",
        "counts of n-grams draft",
        "NASD; NAPD when top_k_filler is 1",
        (
            chosen("set_ngramstorage", Chosen("basic", (3,)), "n-gram storage and its order", STORAGES),
            integer(
                "top_k_filler",
                3,
                "target candidates a position added to the counts; 1 = only the emitted token",
                minimum=1,
            ),
            toggle("reset_in_between", True, "forget the n-grams before each prompt"),
        ),
    ),
    Part(
        "prompt_lookup",
        "ngram_assisted.prompt_lookup:PromptLookupDrafter",
        "what followed the last tokens where they stood before is copied",
        "arXiv 2304.04487; transformers prompt_lookup_num_tokens, `ngram` in serving engines",
        (
            integer("max_ngram_size", 3, "most last tokens to look up", minimum=1, maximum=16),
            integer("min_ngram_size", 1, "fewest last tokens to look up", minimum=1, maximum=16),
            choice("lookup_occurrence", "latest", "which earlier place is copied from", ("latest", "first")),
        ),
    ),
    Part(
        "suffix",
        "ngram_assisted.suffix:SuffixDrafter",
        "suffix trees of this text and of earlier responses draft",
        "arXiv 2411.04975",
        (
            integer("max_tree_depth", 64, "longest substring that the suffix trees count", minimum=2, maximum=1024),
            integer("max_cached_requests", -1, "responses remembered; -1 = all, 0 = none", minimum=-1),
            number("max_spec_factor", 1.0, "drafts a matched token", above=0.0),
            number("min_token_prob", 0.1, "stop at a draft rarer than this", minimum=0.0, maximum=1.0),
            toggle("use_tree_spec", False, "draft alternatives as well, as a tree"),
        ),
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
        (integer("num_speculative_tokens", 10, "most drafts a round that are copied", minimum=0),),
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
    Part("greedy", "sampling.verifier:GreedyVerifier", "a draft must be the argmax of p; lossless only under greedy"),
)

PROCESSORS = Registry[Part](
    "processor",
    Part(
        "greedy",
        "utils.logits_processor:Greedy",
        "always the most likely token",
        parameters=(number("temperature", 1.0, "accepted, has no effect", above=0.0),),
    ),
    Part("multinomial", "utils.logits_processor:Multinomial", "the whole distribution", parameters=(TEMPERATURE,)),
    Part("topk", "utils.logits_processor:TopK", "the k most likely tokens", parameters=(TEMPERATURE, TOP_K)),
    Part(
        "nucleus",
        "utils.logits_processor:Nucleus",
        "the most likely tokens up to mass p",
        parameters=(TEMPERATURE, TOP_P),
    ),
    Part(
        "topknucleus",
        "utils.logits_processor:TopKNucleus",
        "top-k, then nucleus",
        parameters=(TEMPERATURE, TOP_K, TOP_P),
    ),
)


@dataclass(frozen=True, slots=True)
class Method:
    """A name for (drafter, controller, verifier) on one of the pair's models; `on` = enabled at start.

    `preset` fixes parameters of the parts, which are then no parameters of the method.
    """

    name: str
    title: str
    help: str
    drafter: str = "none"
    controller: str = "fixed"
    verifier: str = "rejection"
    runs: Literal["target", "drafter"] = "target"
    on: bool = False
    preset: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Part, Part, Part]:
        """Its lines in the tables: drafter, controller, verifier."""
        return DRAFTERS[self.drafter], CONTROLLERS[self.controller], VERIFIERS[self.verifier]

    @property
    def needs_drafter(self) -> bool:
        """Whether it runs only where a drafter model is loaded."""
        return self.drafter == "model" or self.runs == "drafter"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What a user may set, from all its parts."""
        return tuple(p for part in self.parts for p in part.parameters if p.name not in self.preset)


METHODS = Registry[Method](
    "method",
    Method("target", "AR", "target model, plain autoregression: the reference row", on=True, preset={"gamma": 0}),
    Method("drafter", "AR drafter", "drafter model alone, plain autoregression", runs="drafter", preset={"gamma": 0}),
    Method("speculative", "SD", "speculative decoding with the drafter model, fixed gamma", "model", on=True),
    Method("egag", "SD EGAG", "speculative decoding with entropy-adaptive gamma", "model", "egag"),
    Method("ngram", "NASD", "n-gram assisted speculative decoding", "ngram", on=True),
    Method("prompt_lookup", "Prompt lookup", "copies what followed the same tokens", "prompt_lookup", "budget"),
    Method("suffix", "Suffix", "suffix decoding: copies from this text and earlier responses", "suffix", "budget"),
)
