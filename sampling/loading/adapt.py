"""A transformers model behind the engine's forward."""

from transformers import PreTrainedModel

from sampling.forward.adapter import TransformersModel
from sampling.forward.encoder_decoder import EncoderDecoderModel, Opening
from sampling.forward.runner import CausalModel
from sampling.loading.checks import has_encoder, refuse_no_rollback
from utils.errors import UserError


def adapted(name: str, model: PreTrainedModel) -> CausalModel:
    """The model as a runner runs it; `refuse_config` has passed its configuration.

    name: what errors call it. Raises `UserError` for one that cannot take tokens back, and for an encoder-decoder
    model that does not say how answers begin or which token comes next.
    """
    causal = _with_encoder(name, model) if has_encoder(model.config) else TransformersModel(model)
    refuse_no_rollback(name, causal)
    return causal


def _with_encoder(name: str, model: PreTrainedModel) -> CausalModel:
    if model.get_output_embeddings() is None:
        raise UserError(f"{name}: it has no output over tokens; expected a model for conditional generation")
    return EncoderDecoderModel(model, Opening.of(name, model))
