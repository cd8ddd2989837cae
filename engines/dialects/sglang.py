"""SGLang's own route `/generate` (0.5.23): ids in and out, counts of rounds in `meta_info`."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from engines.acceptance import with_draftless
from engines.dialect import OPENAI_SAMPLERS, AnswerPiece, Dialect, Event, Option, TextRequest, last_of, spoken
from utils.events import Acceptance

_TOKENS = "--speculative-num-draft-tokens"
_DRAFT = "--speculative-draft-model-path"
_CHAIN = ("--speculative-eagle-topk", "1")


class Sglang(Dialect):
    """A stream of it repeats the whole text in each event; the ids are those since the last one, or all of them."""

    name = "sglang"
    samplers = OPENAI_SAMPLERS
    version = ("/get_server_info", "version")
    path = "/generate"
    methods: ClassVar = {
        "naive": Option(),
        "ngram": Option(("--speculative-algorithm", "NGRAM"), {"num_speculative_tokens": _TOKENS}),
        "draft_model": Option(
            ("--speculative-algorithm", "STANDALONE", *_CHAIN),
            {"num_speculative_tokens": "--speculative-num-steps", "model": _DRAFT},
        ),
        "eagle": Option(
            ("--speculative-algorithm", "EAGLE", *_CHAIN),
            {"num_speculative_tokens": "--speculative-num-steps", "model": _DRAFT},
        ),
        "mtp": Option(
            ("--speculative-algorithm", "NEXTN", *_CHAIN), {"num_speculative_tokens": "--speculative-num-steps"}
        ),
    }

    def body(self, wanted: TextRequest, model: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `Dialect.body`."""
        sampling = {
            "max_new_tokens": wanted.length,
            "temperature": wanted.temperature,
            "top_p": wanted.top_p,
            "top_k": wanted.top_k or -1,
            "sampling_seed": wanted.seed,
            **spoken(wanted, self.samplers),
        }
        return {"input_ids": list(wanted.prompt), "sampling_params": sampling, "stream": True}

    def piece(self, event: Event) -> AnswerPiece:
        """See `Dialect.piece`."""
        about = event["meta_info"]
        reason, total = (about.get("finish_reason") or {}).get("type"), about.get("completion_tokens")
        return AnswerPiece(tuple(event.get("output_ids") or ()), event.get("text") or "", reason, total)

    def acceptance(self, events: Sequence[Event], new_tokens: int) -> Acceptance:
        """Its verifications leave out the forward over the prompt. Its drafts are the draft's width, every round's.

        Where its numbers do not add up to the tokens, as with trees or adaptive widths, only the rounds are taken.
        """
        meta = last_of(events, "meta_info") or {}
        if "spec_verify_ct" not in meta:
            return Acceptance()
        rounds, hist = meta["spec_verify_ct"] + 1, meta.get("spec_correct_drafts_histogram") or ()
        accepted = meta.get("spec_num_correct_drafts")
        if accepted is None or accepted + rounds < new_tokens:
            return Acceptance(rounds, None, new_tokens - rounds)
        whole = accepted + rounds == new_tokens
        acceptance_hist = with_draftless(hist, rounds) if hist and whole else None
        return Acceptance(rounds, meta.get("spec_num_proposed_drafts"), new_tokens - rounds, acceptance_hist)
