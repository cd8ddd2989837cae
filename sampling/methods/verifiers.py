"""The tables of verifiers and of acceptance policies. No torch is imported here."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sampling.methods import parameters
from sampling.methods.method import Method
from sampling.methods.part import Part, chosen_by, where
from utils.parameter import choice, number
from utils.registry import Registry

if TYPE_CHECKING:
    from sampling.verify.verifier import Verifier

VERIFIERS = Registry[Part](
    "verify strategy",
    Part(
        "rejection",
        "sampling.verify.rejection:RejectionVerifier",
        "speculative sampling",
        "arXiv 2211.17192, 2305.09781",
    ),
    Part(
        "block",
        "sampling.verify.block:BlockVerifier",
        "speculative sampling that judges a chain as a whole: accepts more",
        "arXiv 2403.10444",
    ),
    Part(
        "traversal",
        "sampling.verify.traversal:TraversalVerifier",
        "block verification on chains and trees, from the leaves upwards",
        "arXiv 2505.12398",
    ),
    Part("target_match", "sampling.verify.match:TargetMatchVerifier", "a draft must equal a token drawn from p"),
    Part(
        "greedy", "sampling.verify.match:GreedyVerifier", "a draft must be the argmax of p; LOSSY except under greedy"
    ),
    Part(
        "topp",
        "sampling.verify.lossy:TopPVerifier",
        "a draft must be in the target's top-p set; LOSSY except under greedy",
        "FastDeploy",
        (number("verify_top_p", 0.9, "mass of the set that topp accepts from", above=0.0, maximum=1.0),),
    ),
    Part(
        "unadjusted",
        "sampling.verify.lossy:UnadjustedVerifier",
        "speculative sampling that draws from p after a rejection; LOSSY except under greedy",
    ),
    Part(
        "typical",
        "sampling.verify.lossy:TypicalVerifier",
        "a draft's p must pass a threshold that falls with the entropy; LOSSY except under greedy",
        "arXiv 2401.10774",
        parameters.TYPICAL,
    ),
)

VERIFY_STRATEGY = choice("verify_strategy", "rejection", "how drafts are judged", tuple(VERIFIERS))

# Policies that replace the strategy: the bounds of acceptance, and synthetic acceptance.
POLICIES = Registry[Part](
    "accept policy",
    Part("normal", "", "drafts are judged", uses=(chosen_by(VERIFY_STRATEGY, VERIFIERS),)),
    Part("accept_all", "sampling.verify.lossy:AcceptAllVerifier", "every draft passes: the upper bound; LOSSY"),
    Part("reject_all", "sampling.verify.lossy:RejectAllVerifier", "no draft passes: the lower bound"),
    Part(
        "synthetic",
        "sampling.verify.synthetic:SyntheticVerifier",
        "drafts pass at chosen rates, independent of the models; LOSSY",
        "vLLM rejection_sample_method, llama.cpp --spec-synth-rates",
        parameters.SYNTHETIC,
        read={"accept_rates": where("accept_length", 0.0)},
    ),
)
ACCEPT_POLICY = choice(
    "accept_policy", "normal", "verify drafts, or accept all, none or a chosen share", tuple(POLICIES)
)

# The third part of every method that drafts.
JUDGING = Part(
    "judging",
    "",
    "how drafts are judged",
    parameters=(VERIFY_STRATEGY, ACCEPT_POLICY),
    uses=(chosen_by(ACCEPT_POLICY, POLICIES),),
)


def make_verifier(method: Method, values: Mapping[str, Any]) -> "Verifier":
    """The verifier of a method. A method without drafts has rejection sampling, which then draws from p."""
    part = JUDGING if method.drafts else VERIFIERS["rejection"]
    verifier: Verifier = part.build(None, values)
    return verifier
