"""Checkpoints that are quantised already, by methods whose package or device is not here, or which nobody knows."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from tests.hostile.checkpoints import configured, row
from tests.hostile.row import Row

_HERE = "which does not run here"
_EXPECTED = "or weights that are not quantised"
_METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gptq": ("optimum", {"bits": 4, "group_size": 32}),
    "awq": ("gptqmodel", {"bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}),
    "bitsandbytes": ("bitsandbytes", {"load_in_4bit": True}),
    "compressed-tensors": ("compressed-tensors", {"format": "int-quantized", "config_groups": {}}),
    "torchao": ("torchao", {"quant_type": "int8_weight_only"}),
    "hqq": ("hqq", {"quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}),
    "quanto": ("optimum-quanto", {"weights": "int8"}),
    "eetq": ("kernels", {"weights": "int8"}),
    "aqlm": ("aqlm", {}),
    "vptq": ("vptq", {}),
    "auto-round": ("auto-round", {"bits": 4}),
}


def _quantized(method: str, says: tuple[object, ...], given: Mapping[str, Any], name: str) -> Row:
    return row(configured(quantization_config={"quant_method": method, **given}), *says, name=name)


ROWS = [
    *(
        _quantized(method, (f"({method})", _HERE, package, _EXPECTED), given, f"{method} without {package}")
        for method, (package, given) in _METHODS.items()
        if find_spec(package.replace("-", "_")) is None
    ),
    _quantized("zzz", ("(zzz)", _HERE, "Unknown quantization type", _EXPECTED), {}, "quantised in an unknown way"),
    row(configured(quantization_config={"bits": 4}), "a method that it does not name", _EXPECTED, name="quantised"),
    row(configured(quantization_config={}), "a method that it does not name", _EXPECTED, name="quantised by nothing"),
    row(configured(quantization_config=[1]), "config.json", "'list'", name="quantised by a list"),
    row(configured(quantization_config="gptq"), "config.json", "'str'", name="quantised by a word"),
    _quantized("gptq", (_HERE, _EXPECTED), {"bits": "four"}, "quantised to a word of bits"),
]
