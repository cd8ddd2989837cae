"""Tokenizers of a few tokens that overlap, and toy pairs whose models write with two of them."""

from collections.abc import Mapping, Sequence

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from sampling.forward.runner import ModelRunner
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.vocabularies.crossing import Crossing
from sampling.vocabularies.tokens import Vocabulary
from tests.conformance.toy import WINDOW, ToyModel

G, S = "\u0120", "\u2581"
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def byte_level(tokens: Sequence[str], specials: Sequence[str], eos: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE whose ids are the places of the tokens, specials first; longer tokens are merged from halves."""
    vocab = {token: place for place, token in enumerate((*specials, *tokens))}
    backend = Tokenizer(models.BPE(vocab, _merges(vocab)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return _fast(backend, specials, eos)


def sentence_piece(tokens: Sequence[str], specials: Sequence[str], eos: str) -> PreTrainedTokenizerFast:
    """A BPE as SentencePiece writes it: a mark for spaces, one more at the begin, and bytes to fall back to."""
    vocab = {token: place for place, token in enumerate((*specials, *BYTES, *tokens))}
    backend = Tokenizer(models.BPE(vocab, _merges(vocab), byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(S), normalizers.Replace(" ", S)])
    parts = (decoders.Replace(S, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0))
    backend.decoder = decoders.Sequence([*parts])
    return _fast(backend, specials, eos)


def alphabet() -> list[str]:
    """All bytes as byte-level tokens."""
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def crossing(target: PreTrainedTokenizerFast, drafter: PreTrainedTokenizerFast) -> Crossing:
    """Between two tokenizers whose models have a row for each token."""
    return Crossing(Vocabulary("big", target, len(target)), Vocabulary("small", drafter, len(drafter)))


def crossed_pair(window: int = WINDOW, stop: frozenset[int] = frozenset()) -> Pair:
    """Six tokens and seven: four ordinary ones and the end are shared, under other ids."""
    target = byte_level(["a", "b", G, "c", "ab"], ["<end>"], "<end>")
    drafter = byte_level(["c", G, "bc", "a", "d", "b"], ["<stop>"], "<stop>")
    return _pair(target, drafter, _random(0, len(target)), _random(1, len(drafter)), window, stop)


def thin_pair() -> Pair:
    """The same target, and a drafter most of whose tokens are its own."""
    target = byte_level(["a", "b", G, "c", "ab"], ["<end>"], "<end>")
    drafter = byte_level(["c", *"defghijklmnop", G, "a", "b"], ["<stop>"], "<stop>")
    return _pair(target, drafter, _random(0, len(target)), _random(1, len(drafter)), WINDOW, frozenset())


def twin_pair() -> Pair:
    """A drafter that is the target under other ids: all tokens are shared, and none is merged from others."""
    names = ["a", "b", G, "c", "d"]
    order = [3, 0, 4, 1, 2]
    target = byte_level(names, ["<end>"], "<end>")
    drafter = byte_level([names[place] for place in order], ["<stop>"], "<stop>")
    ids = torch.tensor([0, *(place + 1 for place in order)])
    weights = _random(0, len(target))
    return _pair(target, drafter, weights, weights[ids][:, ids], WINDOW, frozenset())


def _pair(
    target: PreTrainedTokenizerFast,
    drafter: PreTrainedTokenizerFast,
    target_weights: torch.Tensor,
    drafter_weights: torch.Tensor,
    window: int,
    stop: frozenset[int],
) -> Pair:
    info = ModelInfo("toy", "cpu", "float32")
    runners = (ModelRunner(ToyModel(target_weights, window=window)), ModelRunner(ToyModel(drafter_weights)))
    return Pair(*runners, target, stop, info, info, crossing=crossing(target, drafter))


def _random(seed: int, size: int) -> torch.Tensor:
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed))


def _fast(backend: Tokenizer, specials: Sequence[str], eos: str) -> PreTrainedTokenizerFast:
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos)


def _merges(vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    """For each token the first cut into two others, short tokens first."""
    plain = [token for token in vocab if not token.startswith("<") and len(token) > 1]
    halves = ([(token[:at], token[at:]) for at in range(1, len(token))] for token in sorted(plain, key=len))
    return [next(pair for pair in pairs if pair[0] in vocab and pair[1] in vocab) for pairs in halves]
