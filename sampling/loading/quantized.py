"""Checkpoints whose weights are quantised already (GPTQ, AWQ, FP8, ...): what they are called, and who runs them."""

from copy import deepcopy
from typing import Any

import torch

from sampling.forward.kernels.formats import FULL
from utils.errors import UserError
from utils.text import first_line

_EXPECTED = "expected a machine that has it, a GGUF file of the model, or weights that are not quantised"
_FAILURES = (ImportError, RuntimeError, ValueError, TypeError, AttributeError, LookupError, NotImplementedError)


def method_of(config: Any) -> str | None:
    """How the weights of a configuration are quantised, as its config.json calls it; None where they are not."""
    quantized = _described(config)
    if quantized is None:
        return None
    method = quantized.get("quant_method") or "a method that it does not name"
    return str(getattr(method, "value", method))  # once loaded, a member of an enumeration


def stored_as(model: Any) -> str | None:
    """The same of a loaded transformers model: None, too, where its weights were de-quantised while they were read."""
    return method_of(model.config) if getattr(model, "is_quantized", False) else None


def refuse_quantized(name: str, config: Any, device: torch.device, weights: str) -> None:
    """Raise `UserError` where a quantised checkpoint needs a package or a device that is not here.

    What a method needs is asked of transformers' quantizers, which load it. weights: the format that is asked for,
    which must be full unless the checkpoint is de-quantised while it is read.
    """
    quantized, method = _described(config), method_of(config)
    if quantized is None:
        return
    try:
        read = _quantizer(quantized, device).quantization_config
    except _FAILURES as error:
        raise UserError(
            f"{name}: its weights are quantised ({method}), which does not run here: {first_line(error).rstrip('.')}; "
            f"{_EXPECTED}"
        ) from error
    if weights != FULL and not getattr(read, "dequantize", False):
        raise UserError(
            f"target_weights {weights} given, and the weights of {name} are quantised already ({method}); expected full"
        )


def _described(config: Any) -> dict[str, Any] | None:
    config_quantized = getattr(config, "quantization_config", None)
    if config_quantized is None:
        config_quantized = getattr(config.get_text_config(decoder=True), "quantization_config", None)
    return (
        config_quantized
        if config_quantized is None or isinstance(config_quantized, dict)
        else dict(config_quantized.to_dict())
    )


def _quantizer(quantized: dict[str, Any], device: torch.device) -> Any:
    """What transformers would read these weights with. Raises one of `_FAILURES` where it cannot on this machine."""
    from transformers.quantizers import AutoHfQuantizer

    quantizer = AutoHfQuantizer.from_config(deepcopy(quantized), pre_quantized=True)
    quantizer.validate_environment(device_map=None if device.type == "cpu" else {"": str(device)}, weights_only=True)
    return quantizer
