"""Tables for settings whose value is a name with arguments, as in `nucleus 0.8 0.9`. No torch is imported here."""

from dataclasses import replace
from typing import TYPE_CHECKING

from sampling.methods.part import Part
from utils.parameter import ChosenPart, integer
from utils.registry import Registry
from utils.sampling_parameters import TEMPERATURE, TOP_K, TOP_P

if TYPE_CHECKING:
    from utils.logits_processor import LogitsProcessor

ORDER = integer("n", None, "order of the n-grams", minimum=2, maximum=16)

STORAGES = Registry[Part](
    "n-gram storage",
    Part(
        "basic",
        "ngram_assisted.ngram_storage:NGramStorage",
        "k-grams of every order k in [2, n], longest first",
        parameters=(ORDER,),
    ),
    Part(
        "onelevel", "ngram_assisted.ngram_storage:OneLevelNGramStorage", "n-grams of order n only", parameters=(ORDER,)
    ),
)

PROCESSORS = Registry[Part](
    "processor",
    Part(
        "greedy",
        "utils.logits_processor:GreedyProcessor",
        "always the most likely token",
        parameters=(replace(TEMPERATURE, default=1.0, help="accepted, has no effect"),),
    ),
    Part(
        "multinomial",
        "utils.logits_processor:MultinomialProcessor",
        "samples from the whole distribution",
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


def make_processor(chosen: ChosenPart) -> "LogitsProcessor":
    """The processor behind a setting such as `nucleus 0.8 0.9`."""
    processor: LogitsProcessor = PROCESSORS[chosen.name].load()(*chosen.arguments)
    return processor
