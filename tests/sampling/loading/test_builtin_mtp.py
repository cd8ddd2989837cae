"""A target whose own checkpoint brings a multi-token prediction module: one folder, given as target and as head."""

import json
from pathlib import Path

from safetensors.torch import load_file, save_file

from sampling.loading.pairs import LoadOptions, load_pair
from sampling.measure.comparison import Comparison
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.published import INNER, SIZE, block, linear, norms
from tests.tiny import llama, save_checkpoint


def with_module(folder: Path) -> Path:
    """A checkpoint that transformers wrote, with a module behind its last layer, as DeepSeek-V3 has it."""
    save_checkpoint(folder, llama(hidden_size=SIZE, intermediate_size=INNER))
    config = json.loads((folder / "config.json").read_text())
    own = f"model.layers.{config['num_hidden_layers']}."
    names = ("input_layernorm", "enorm", "hnorm", "shared_head.norm")
    module = block(own) | linear(f"{own}eh_proj", SIZE, 2 * SIZE) | norms(*(own + name for name in names))
    weights = load_file(folder / "model.safetensors")
    save_file(weights | module, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 1}))
    return folder


def test_a_target_drafts_with_its_own_module(tmp_path: Path) -> None:
    folder = str(with_module(tmp_path))
    pair = load_pair(LoadOptions(target=folder, device="cpu", dtype="float32", heads=folder))
    assert set(pair.heads) == {"mtp"}
    values = Settings()
    values.assign("length", "16")
    comparison = Comparison(PairEngine(pair), values, [1, 2, 3, 4])
    for method in ("target", "mtp"):
        for _ in comparison.run(method):
            pass
    found = {name: metrics.output_ids for name, metrics in comparison.metrics.items()}
    assert found["mtp"] == found["target"]
    assert comparison.metrics["mtp"].drafted
