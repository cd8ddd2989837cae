"""One family: built tiny with random weights, taken as loading takes it, its greedy ids against transformers' own.

Three runs must give the ids of `generate`: plain autoregression behind one prompt, and behind another one chains of
drafts and trees of drafts. The drafts are rehearsed: they come from the expected ids, with wrong ones among them, so
that every round accepts some, rejects some and rolls back, and a tree's right branch lies behind wrong ones.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from egag.length_rule import FixedGamma, LengthRule
from sampling.drafter import Drafter, NullDrafter
from sampling.forward.causal_model import CausalModel
from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner, prefill
from sampling.loading.adapt import adapted
from sampling.loading.families.configs import VOCABULARY, ModelFamily
from sampling.loading.refusals.checks import has_encoder, refuse_config
from sampling.loading.refusals.contents import auto_class
from sampling.loop import decode
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.verify.rejection import RejectionVerifier
from utils.errors import UserError
from utils.events import Round
from utils.logits_processor import GreedyProcessor

PROMPTS = ([5, 9, 17, 9, 5, 40, 9, 5], [77, 8, 50, 51, 52, 12])
LENGTH = 20
_SEEDS = range(8)
# Of a decoder with an encoder: its own words and places must not drown in the source.
_SPREAD = {
    "embed_positions": 3.0, "relative": 1.0, "shared": 3.0, "embed_tokens": 3.0, "lm_head": 1.0, "encoder_attn": 0.1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """What the page says of a family. result: `equal`, `equal, chains only` or `refused: ` and the reason.

    invariant: see `invariance_of`; empty where that was not asked.
    """

    family: str
    setting: str
    forward: str
    result: str
    invariant: str = ""


class RehearsedDrafter(Drafter):
    """Drafts from ids that are known to come, with wrong ones among them. right: how many of them were right so far."""

    def __init__(self, said: list[int], tree: bool) -> None:
        self._said, self._tree = said, tree
        self._start = self._round = self.right = 0

    @classmethod
    def build(cls, pair: object, values: Mapping[str, Any]) -> Self:
        raise NotImplementedError

    def begin(self, seq: Sequence) -> None:
        self._start = len(seq.tokens)

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        place = len(seq.tokens) - self._start
        coming = self._said[place : place + 3]
        if limit < 3 or len(coming) < 3:
            return Proposal.empty(seq.device)
        first, second, third = coming
        self._round += 1
        self.right += 2 if self._tree else 1 + self._round % 2
        if self._tree:
            tokens = [_wrong(first, 1), first, _wrong(first, 5), _wrong(second, 1), second]
            return Proposal(torch.tensor(tokens), (-1, -1, 0, 1, 1), None, None)
        tokens = [first, second, _wrong(third, 1)] if self._round % 2 else [first, _wrong(second, 1)]
        return Proposal(torch.tensor(tokens), None, None, None)


def _wrong(token: int, step: int) -> int:
    return (token + step) % VOCABULARY


def judge(family: ModelFamily) -> FamilyResult:
    """The row of a family. Raises `AssertionError` where ours and transformers' ids differ."""
    config = family.config()
    try:
        refuse_config(family.model_type, config)
        assert family.built, f"{family.model_type} as published is not refused: build it"
        model, texts = _varied(config)
        ours, forward = _taken(family.model_type, copy.deepcopy(model))
    except UserError as error:
        reason = str(error).partition(": ")[2].rpartition("; expected")[0]
        return FamilyResult(family.model_type, family.setting, "", f"refused: {reason}")
    trees = getattr(ours, "trees", True)
    (plain, prompt), (expected, text) = PROMPTS, texts
    assert _said(ours, plain, NullDrafter())[0] == expected, f"{family}: other ids than transformers'"
    assert not trees or _branches_agree(ours, prompt, text), f"{family}: other logits in a tree than in a chain"
    for tree in (False, True) if trees else (False,):
        drafter = RehearsedDrafter(text, tree)
        said, accepted = _said(ours, prompt, drafter)
        assert said == text, f"{family}: other ids behind drafts{' in trees' if tree else ''}"
        assert accepted == drafter.right > LENGTH / 2, f"{family}: {accepted} of {drafter.right} accepted"
    return FamilyResult(family.model_type, family.setting, forward, "equal" if trees else "equal, chains only")


def _taken(name: str, model: PreTrainedModel) -> tuple[CausalModel, str]:
    """The model behind the forward that loading chooses, and what the page calls that."""
    if lean.fits(model):
        return lean.from_transformers(model), "lean"
    return adapted(name, model), "transformers' layers" if has_encoder(model.config) else "transformers'"


def _varied(config: PretrainedConfig) -> tuple[PreTrainedModel, list[list[int]]]:
    """A random model whose texts do not settle on one token, and these texts, one a prompt."""
    for seed in _SEEDS:
        model = random_model(config, seed)
        texts = [_generated(model, prompt) for prompt in PROMPTS]
        if min(len(set(text)) for text in texts) > 3 and texts[0] != texts[1]:
            return model, texts
    raise AssertionError(f"{config.model_type}: says the same over and over under every seed")


def random_model(config: PretrainedConfig, seed: int) -> PreTrainedModel:
    """A float32 model with weights wide enough that no two logits are near each other."""
    torch.manual_seed(seed)
    encodes = has_encoder(config)
    model = auto_class(config).from_config(copy.deepcopy(config), dtype=torch.float32).eval()
    if encodes:  # an output that is tied to the embedding says the last token again
        head = model.get_output_embeddings()
        model.set_output_embeddings(torch.nn.Linear(head.in_features, head.out_features, bias=False))
    spread = _SPREAD if encodes else {"embed": 0.2, "wte": 0.2}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                width = next((width for part, width in spread.items() if part in name), 0.2 if encodes else 0.15)
                weight.normal_(std=width)
            else:
                weight.add_(torch.randn_like(weight), alpha=1.0 if "sink" in name else 0.1)
    return model


def _generated(model: PreTrainedModel, prompt: list[int]) -> list[int]:
    """Greedy ids of transformers, without the prompt and without what a decoder's text begins with."""
    model = copy.deepcopy(model)
    start = getattr(model.config, "decoder_start_token_id", None)
    model.generation_config = GenerationConfig(pad_token_id=0, bos_token_id=1, decoder_start_token_id=start)
    ids = torch.tensor([prompt])
    made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=LENGTH, do_sample=False)
    text: list[int] = made[0, 1 if has_encoder(model.config) else len(prompt) :].tolist()
    return text


def _branches_agree(model: CausalModel, prompt: list[int], text: list[int]) -> bool:
    """Whether the rows of a branch that lies behind wrong drafts are those of a chain, to rounding."""
    runner = ModelRunner(model)
    start = runner.read(prompt).tokens
    prefill(runner, start)
    first, second, third = text[:3]
    chain = runner.forward([first, second, third]).logits
    runner.crop(len(start))
    drafts = [_wrong(second, 1), second, _wrong(third, 5), _wrong(third, 1), third]
    tree = runner.forward([first, *drafts], (-1, -1, 0, 1, 1)).logits
    return torch.allclose(chain, tree[[0, 2, 5]], rtol=1e-3, atol=1e-3)


def _said(model: CausalModel, prompt: list[int], drafter: Drafter) -> tuple[list[int], int]:
    """Ids of our loop, and how many of them were accepted drafts."""
    rounds = [
        event
        for event in decode(
            ModelRunner(model),
            drafter,
            FixedGamma(5),
            RejectionVerifier(),
            GreedyProcessor(),
            prompt,
            max_new_tokens=LENGTH,
            seed=0,
        )
        if isinstance(event, Round)
    ]
    return [token for round in rounds for token in round.emitted][:LENGTH], sum(round.accepted for round in rounds)


def known_to_transformers() -> set[str]:
    """Every `model_type` that transformers has a causal or an encoder-decoder language model for."""
    mappings = (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING)
    return {config.model_type for mapping in mappings for config in mapping}
