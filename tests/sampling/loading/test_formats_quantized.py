"""Checkpoints that come quantised: loaded as transformers runs them, and never called full where they are not."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.integrations.bitnet import pack_weights

from sampling.forward.models.adapter import TransformersModel
from sampling.forward.models.lean import LeanModel
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.loading.quantized import method_of, refuse_quantized, stored_as
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.refusals import refused
from tests.tiny import llama, save_checkpoint
from tests.tiny_models import ids
from utils.events import Round

BLOCK = 32
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}


def loaded(folder: Path, weights: str = "full") -> Pair:
    return load_pair(LoadOptions(str(folder), device="cpu", dtype="float32", target_weights=weights, kernel="plain"))


def rewritten(folder: Path, quantization: dict[str, Any], change: Any) -> dict[str, Tensor]:
    """Quantise every projection of a tiny checkpoint: `change` gives the tensors of a name and weight, and its value.

    Gives the values that the quantised weights stand for.
    """
    save_checkpoint(folder, llama(**SIZES))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    stored, values = {}, {}
    for name, weight in load_file(folder / "model.safetensors").items():
        tensors, value = change(name, weight) if "_proj" in name else ({name: weight}, weight)
        stored |= tensors
        values[name] = value
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return values


def in_fp8(name: str, weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """e4m3 in blocks of 32 by 32, each with its scale, as DeepSeek publishes weights."""
    blocks = weight.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    scale = blocks.abs().amax((1, 3), keepdim=True) / 448
    short = (blocks / scale).to(torch.float8_e4m3fn)
    stored = {name: short.flatten(2).flatten(0, 1), f"{name}_scale_inv": scale[:, 0, :, 0].contiguous()}
    return stored, (short.float() * scale).flatten(2).flatten(0, 1)


def in_three_values(name: str, weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """-1, 0 and 1 with one scale, four a byte, as BitNet b1.58 publishes weights."""
    mean = weight.abs().mean()
    ternary = (weight / mean).round().clamp(-1, 1)
    stored = {name: pack_weights(ternary.clone()), f"{name}_scale": 1 / mean.view(1)}
    return stored, ternary * mean


FP8 = {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK], "activation_scheme": "dynamic"}


def test_an_fp8_checkpoint_is_de_quantised_where_there_is_no_card(tmp_path: Path) -> None:
    values = rewritten(tmp_path / "it", FP8, in_fp8)
    save_checkpoint(tmp_path / "dense", llama(**SIZES))
    save_file(values, tmp_path / "dense" / "model.safetensors", metadata={"format": "pt"})
    pair, dense = loaded(tmp_path / "it"), loaded(tmp_path / "dense")
    assert isinstance(pair.target.model, LeanModel) and pair.target_info.stored == "full"
    mine, theirs = (one.target.forward(ids(9)).logits for one in (pair, dense))
    torch.testing.assert_close(mine, theirs, rtol=0.05, atol=0.05)  # transformers de-quantises into bfloat16
    assert loaded(tmp_path / "it", "int8").target_info.stored == "int8"


@torch.compiler.set_stance("force_eager")  # its layers compile a function, which takes a minute
def test_a_bitnet_checkpoint_runs_quantised_and_is_called_so(tmp_path: Path) -> None:
    rewritten(tmp_path / "it", {"quant_method": "bitnet"}, in_three_values)
    pair = loaded(tmp_path / "it")
    assert isinstance(pair.target.model, TransformersModel) and pair.target_info.stored == "bitnet"
    settings = Settings()
    settings.assign_all([("length", "24"), ("processor", "greedy")])
    said = [
        [
            token
            for one in PairEngine(pair).stream(method, settings, ids(9))
            if isinstance(one, Round)
            for token in one.emitted
        ]
        for method in ("target", "prompt_lookup")
    ]
    assert len(said[0]) == 24 and said[0] == said[1]
    for weights in ("int8", "int4"):
        with refused(f"target_weights {weights}", "it", "bitnet", "full"):
            loaded(tmp_path / "it", weights)


def config(quantization: Any) -> SimpleNamespace:
    return SimpleNamespace(quantization_config=quantization, get_text_config=lambda decoder: SimpleNamespace())


def test_a_method_is_found_wherever_a_configuration_has_it() -> None:
    inner = SimpleNamespace(quantization_config={"quant_method": "awq"})
    outer = SimpleNamespace(get_text_config=lambda decoder: inner)
    assert method_of(outer) == "awq" and method_of(config({"quant_method": "gptq"})) == "gptq"
    assert method_of(config(None)) is None
    assert method_of(config({"bits": 4})) == "a method that it does not name"
    kept = SimpleNamespace(config=config({"quant_method": "gptq"}), is_quantized=True)
    assert stored_as(kept) == "gptq" and stored_as(SimpleNamespace(config=kept.config)) is None


def test_the_device_is_told_to_what_checks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """hqq and torchao ask where a model goes; a card's place has its number."""
    asked: list[Any] = []

    class Quantizer:
        quantization_config = SimpleNamespace()

        def validate_environment(self, device_map: Any, weights_only: bool) -> None:
            asked.append(device_map)

    monkeypatch.setattr(
        "transformers.quantizers.AutoHfQuantizer.from_config", lambda quantized, pre_quantized: Quantizer()
    )
    for device in ("cpu", "cuda:1"):
        refuse_quantized("it", config({"quant_method": "hqq"}), torch.device(device), "full")
    assert asked == [None, {"": "cuda:1"}]
    with refused("target_weights int4", "it", "hqq", "full"):
        refuse_quantized("it", config({"quant_method": "hqq"}), torch.device("cuda:1"), "int4")
