"""N-gram assisted decoding as a plain function."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from egag.length_rule import FixedGamma
from ngram_assisted.nasd import NgramDrafter
from ngram_assisted.ngram_storage import NGramStorage
from sampling.api.arguments import check, check_switches
from sampling.api.generate import Model, StopTokens, account_of, rate, runners
from sampling.drafter import Drafter
from sampling.drafters.target_first import TargetFirst
from utils.errors import UserError
from utils.logits_processor import LogitsProcessor
from utils.text import quoted
from utils.token_ids import Ids


def ngram_assisted_speculative_generate(
    inputs: Ids,
    ngramstorage: NGramStorage,
    target: Model,
    tokenizer: Any = None,
    gamma: int = 5,
    filler_top_k: int = 3,
    logits_processor: LogitsProcessor | None = None,
    max_gen_len: int = 40,
    eos_tokens_id: StopTokens = None,
    pad_token_id: int | None = None,
    use_cache: bool = True,
    first_target: bool = True,
    stop_if_unknown: bool = False,
    debug: bool = False,
) -> tuple[list[int], float]:
    """The new ids of n-gram assisted decoding and the acceptance rate alpha, accepted / drafted.

    ngramstorage: the counts that draft. The prompt is added to its contents; call `reset()` for a fresh start. If the
    target is an encoder-decoder model, the prompt is the encoder's input, and drafts are copied from it too.
    filler_top_k: the number of the target's candidates that are counted per position; 1 = the emitted token only.
    stop_if_unknown: whether to draft nothing after an unknown context; otherwise the text's most frequent token is
    drafted. Other arguments: see `sampling.speculative_generate`.
    """
    if not isinstance(ngramstorage, NGramStorage):
        raise UserError(f"ngramstorage {quoted(ngramstorage)} given; expected an instance such as NGramStorage(3)")
    check(gamma=gamma, filler_top_k=filler_top_k)
    check_switches(use_cache=use_cache, first_target=first_target, stop_if_unknown=stop_if_unknown)
    kind = NgramDrafter if stop_if_unknown else _NeverAtALoss
    drafter: Drafter = kind(ngramstorage, filler_top_k, reset=False)
    with runners(use_cache, target) as (big,):
        account = account_of(
            big,
            TargetFirst(drafter) if first_target else drafter,
            FixedGamma(gamma),
            inputs,
            max_gen_len,
            logits_processor,
            eos_tokens_id,
            debug,
            tokenizer=tokenizer,
        )
    return account.output_ids, rate(account)


class _NeverAtALoss(NgramDrafter):
    """Drafts the most frequent token of the given text after an unknown context."""

    def fallback(self, tokens: Sequence[int]) -> int | None:
        return Counter(tokens).most_common(1)[0][0]
