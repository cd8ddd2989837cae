"""Tables for settings whose value is a name with arguments, as in `nucleus 0.8 0.9`. No torch is imported here."""

from dataclasses import replace
from typing import TYPE_CHECKING

from sampling.methods.part import Part
from utils.parameter import ChosenPart, Parameter, integer
from utils.registry import Registry
from utils.sampling_parameters import (
    BANNED,
    EPSILON,
    ETA,
    FORCED,
    FREQUENCY,
    LOGIT_BIAS,
    MIN_P,
    MIN_TOKENS,
    NO_REPEAT_NGRAM,
    PRESENCE,
    REPETITION,
    TEMPERATURE,
    TOP_K,
    TOP_N_SIGMA,
    TOP_P,
    TYPICAL_P,
)

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


def _option(parameter: Parameter, path: str) -> Part:
    return Part(parameter.name, f"sampling.processors.{path}", parameter.help, parameters=(parameter,))


CUTOFFS = Registry[Part](
    "cut-off",
    _option(TOP_N_SIGMA, "cutoffs:TopNSigma"),
    _option(MIN_P, "cutoffs:MinP"),
    _option(TYPICAL_P, "cutoffs:TypicalP"),
    _option(EPSILON, "cutoffs:Epsilon"),
    _option(ETA, "cutoffs:Eta"),
)
"""What may follow a processor that samples, in the order in which they cut: behind temperature, top-k and top-p."""

TEXT_PROCESSORS = Registry[Part](
    "processor of the text",
    _option(LOGIT_BIAS, "text_processors:LogitBias"),
    _option(REPETITION, "text_processors:Repetition"),
    _option(FREQUENCY, "text_processors:Frequency"),
    _option(PRESENCE, "text_processors:Presence"),
    _option(NO_REPEAT_NGRAM, "text_processors:NoRepeatNGram"),
    _option(MIN_TOKENS, "text_processors:MinTokens"),
    _option(BANNED, "text_processors:Banned"),
    _option(FORCED, "text_processors:Forced"),
)
"""What may follow any processor, in the order in which they change the logits: before the temperature."""

OPTIONS = {part.name: part.parameters[0] for part in (*CUTOFFS.values(), *TEXT_PROCESSORS.values())}


def make_processor(chosen: ChosenPart) -> "LogitsProcessor":
    """The processor behind a setting such as `nucleus 0.8 0.9 repetition=1.1`."""
    from sampling.processors.cutoffs import CutProcessor
    from sampling.processors.with_text import WithText

    processor: LogitsProcessor = PROCESSORS[chosen.name].load()(*chosen.arguments)
    options = dict(chosen.options)
    cutoffs = [part.load()(options[name]) for name, part in CUTOFFS.items() if name in options]
    if cutoffs and not processor.greedy:  # the most likely token stays whatever is cut
        processor = CutProcessor(processor, cutoffs)
    changes = [part.load()(options[name]) for name, part in TEXT_PROCESSORS.items() if name in options]
    return WithText(processor, changes) if changes else processor
