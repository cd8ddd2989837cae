"""Any transformers causal model as a runner's model: its own modules, our cache, our mask."""

from collections.abc import Sequence

from torch import Tensor
from transformers import PreTrainedModel

from sampling.forward import attention
from sampling.forward.cache import RollbackCache
from sampling.forward.runner import Reading


class TransformersWeights:
    """What any transformers model has that a runner or a head asks for, beside a forward."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.hf = model.eval()
        self.device, self.dtype = model.device, model.dtype

    @property
    def embedding(self) -> Tensor:
        """`[V, H]`."""
        weight: Tensor = self.hf.get_input_embeddings().weight
        return weight

    def output_rows(self, ids: Tensor) -> Tensor:
        """See `CausalModel.output_rows`."""
        weight: Tensor = self.hf.get_output_embeddings().weight
        return weight[ids]

    def landmarks(self) -> dict[str, Tensor]:
        """See `CausalModel.landmarks`."""
        norms = {
            name: weight for name, weight in self.hf.named_parameters() if weight.dim() == 1 and "bias" not in name
        }
        return {"embedding": self.embedding, **norms}


class TransformersModel(TransformersWeights):
    """Feeds positions, a ready mask and a `RollbackCache` to the model's own forward."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        config = model.config
        self.num_layers: int = config.num_hidden_layers
        self.window: int = config.max_position_embeddings
        self.vocab_size: int = config.vocab_size
        if getattr(model, "_supports_attention_backend", False):
            attention.register()
            model.set_attn_implementation(attention.FOLDED)

    def read(self, prompt: Sequence[int]) -> Reading:
        """See `CausalModel.read`."""
        return Reading(self, list(prompt))

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: RollbackCache,
        hidden: Sequence[int],
        rows: int,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`. transformers computes at least one row of logits; 0 rows drop it."""
        output = self.hf(
            input_ids=tokens.unsqueeze(0),
            position_ids=positions.unsqueeze(0),
            attention_mask=None if mask is None else mask[None, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=max(rows, 1),
            output_hidden_states=bool(hidden),
        )
        logits: Tensor = output.logits[0, -rows:] if rows else output.logits[0, :0]
        return logits, {layer: output.hidden_states[layer][0] for layer in hidden}
