"""A transformers model behind the engine's forward, tried before it is trusted."""

from collections.abc import Iterator

from transformers import PreTrainedModel

from sampling.forward.causal_model import CausalModel
from sampling.forward.kernels.numerics_check import probe_tokens
from sampling.forward.models.adapter import TransformersModel
from sampling.forward.models.encoder_decoder import AnswerOpening, EncoderDecoderModel
from sampling.forward.models.longrope import LongRopeModel, border_of
from sampling.forward.models.packed_modules import pack_modules
from sampling.loading.refusals.checks import has_encoder
from sampling.loading.refusals.probe import own_logits, refuse_no_rollback, rows_aside, runs_trees
from utils.errors import UserError


def adapted(name: str, model: PreTrainedModel) -> CausalModel:
    """The model as a runner runs it; `refuse_config` has passed its configuration.

    name: what errors call it. Raises `UserError` for one that cannot take tokens back, for one that says something
    else than by itself, and for an encoder-decoder model that does not say how answers begin or which token comes next.
    """
    tokens = probe_tokens(model.config)
    if has_encoder(model.config):
        causal: CausalModel = _with_encoder(name, model)
        refuse_no_rollback(name, causal, tokens)
        return causal
    logits = own_logits(name, model.eval(), tokens)
    packed = pack_modules(model, model.dtype)
    decoder = _decoder(model)
    decoder.kernel = ("packed" if packed else "plain") if model.device.type == "cpu" else None
    refuse_no_rollback(name, decoder, tokens, logits)
    decoder.trees = runs_trees(decoder, tokens, logits, rows_aside(model.config))
    return decoder


def limits(model: CausalModel) -> Iterator[str]:
    """What to know of an adapted model before it is used, in parts of sentences."""
    if not isinstance(model, TransformersModel):
        return
    if not model.trees:
        yield (
            "its attention counts rows of the cache and not positions, so it runs chains of drafts only; recycling, "
            "logitspec, beam search, draft_tree and use_tree_spec are refused"
        )
    if isinstance(model, LongRopeModel):
        yield f"a text is read anew where it grows beyond {model.border} tokens (longrope)"
    rope = getattr(model.hf.config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "dynamic":
        yield f"texts end at {model.window} tokens, where its rotary embedding would begin to change (dynamic)"


def _decoder(model: PreTrainedModel) -> TransformersModel:
    border = border_of(model.config)
    return TransformersModel(model) if border is None else LongRopeModel(model, border)


def _with_encoder(name: str, model: PreTrainedModel) -> CausalModel:
    if model.get_output_embeddings() is None:
        raise UserError(f"{name}: it has no output over tokens; expected a model for conditional generation")
    return EncoderDecoderModel(model, AnswerOpening.of(name, model))
