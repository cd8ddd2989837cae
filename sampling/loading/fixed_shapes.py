"""Which models of a pair run over fixed shapes, and which of those in one width."""

from dataclasses import replace
from typing import cast

from sampling.forward.causal_model import CausalModel, Shareable
from sampling.forward.graphs.one_width import WIDTH
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, WholeRunner
from sampling.pair.model_info import ModelInfo, checked_in_one_width, kernels_of_our_own
from sampling.pair.pair import Pair
from utils.errors import UserError


def on_graphs(pair: Pair, wanted: str, why: str | None) -> Pair:
    """The pair with runners of fixed shapes, where `LoadOptions.graphs` or `batch_invariant` wants them.

    why: the target is not batch-invariant by itself. Raises `UserError`.
    """
    made = _on_graphs(pair, wanted, why)
    made = replace(made, target_info=replace(made.target_info, own_kernels=kernels_of_our_own(made.target)))
    if made.drafter is None or made.drafter_info is None:
        return made
    return replace(made, drafter_info=replace(made.drafter_info, own_kernels=kernels_of_our_own(made.drafter)))


def _on_graphs(pair: Pair, wanted: str, why: str | None) -> Pair:
    if pair.batch_invariant == "on" and why:
        target, info, note = _in_one_width(pair, wanted, why)
    else:
        target, info, note = _fixed(pair.target, pair.target_info, wanted)
    pair = replace(pair, target=target, target_info=info, notes=(*pair.notes, *note))
    if pair.drafter is None or pair.drafter_info is None:
        return pair
    drafter, info, note = _fixed(pair.drafter, pair.drafter_info, wanted)
    return replace(pair, drafter=drafter, drafter_info=info, notes=(*pair.notes, *note))


def _in_one_width(pair: Pair, graphs: str, why: str) -> tuple[WholeRunner, ModelInfo, tuple[str, ...]]:
    """A runner for the target whose forwards all have one width, and a note that says so. Raises `UserError`."""
    model, info = pair.target.model, pair.target_info
    no = "graphs are off" if graphs == "off" else _why_not_fixed(model)
    if no is not None:
        raise UserError(
            f"batch_invariant on given, and {info.name} {why}; forwards of one width cannot be had either: {no}; "
            "expected auto or off"
        )
    runner = ModelRunner.with_one_width(cast(Shareable, model), pair.target.vocab_size)
    note = f"{info.name} {why}. So each of its forwards computes {WIDTH} rows: what plain decoding, too, has to pay."
    return runner, checked_in_one_width(runner, info, pair.tokenizer), (note,)


def _fixed(runner: WholeRunner, info: ModelInfo, wanted: str) -> tuple[WholeRunner, ModelInfo, tuple[str, ...]]:
    """A runner of fixed shapes for the same model, where it is wanted and can be had, else why not in a sentence."""
    model = runner.model
    if wanted == "off" or (wanted == "auto" and model.device.type != "cuda"):
        return runner, info, ()
    why = _why_not_fixed(model)
    if why is None:
        fixed = ModelRunner.with_graphs(cast(Shareable, model), runner.vocab_size)
        return fixed, replace(info, graphs=True), ()
    if wanted == "on":
        raise UserError(f"graphs on given, and {info.name} cannot have them: {why}; expected auto or off")
    return runner, info, (f"{info.name} runs without graphs: {why}.",)


def _why_not_fixed(model: CausalModel) -> str | None:
    if isinstance(model, LeanModel):
        if any(layer.experts for layer in model.layers):
            return "which of its experts run is decided on the host"
        return "it is batch-invariant, and its shapes follow the text" if model.batch_invariant else None
    from sampling.forward.models.adapter import TransformersModel  # with transformers' model code, which costs seconds
    from sampling.forward.numerics_check import probe_tokens
    from sampling.loading.refusals.probe import why_not_fixed

    if type(model) is TransformersModel:
        return why_not_fixed(model, probe_tokens(model.hf.config))
    return "its rows are more than keys and values of a text"
