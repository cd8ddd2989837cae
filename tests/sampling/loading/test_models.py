"""Loading pairs from tiny checkpoints: what is refused, what is mended, what is the same as transformers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM, GenerationConfig, WhisperConfig

from sampling.forward.caches.cache import RollbackCache
from sampling.forward.models.adapter import TransformersModel
from sampling.forward.models.lean import LeanModel
from sampling.loading import devices, origin
from sampling.loading.origin import ALLOWED
from sampling.loading.pairs import LoadOptions, Pair, load_pair
from sampling.loading.refusals.checks import ROLLS_BACK, common_vocabulary, compare_tokenizers, refuse_config
from sampling.loading.refusals.probe import refuse_no_rollback
from sampling.loading.refusals.reasons import known_reason
from sampling.loading.stop import stop_ids
from tests import tiny
from tests.conformance.toy import ToyModel
from tests.refusals import refused
from utils.errors import UnknownName

pytestmark = pytest.mark.usefixtures("packed_products")
TEXT = (7, 90, 12, 200, 33, 5, 150, 61)
END_OF_TURN, END = tiny.SPECIALS.index("<|im_end|>"), tiny.SPECIALS.index("<|end|>")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of checkpoints by name."""
    folder = tmp_path_factory.mktemp("hub")
    for make in (tiny.llama, tiny.qwen2, tiny.gpt2, tiny.mistral, tiny.mamba):
        tiny.save_checkpoint(folder / make.__name__, make())
    return folder


def pair(target: Path | str, drafter: Path | str | None = None, **options: Any) -> Pair:
    given = None if drafter is None else str(drafter)
    return load_pair(LoadOptions(str(target), given, device="cpu", dtype="float32", **options))


@pytest.mark.parametrize(("name", "kind"), [("llama", LeanModel), ("qwen2", LeanModel), ("gpt2", TransformersModel)])
def test_logits_are_those_of_transformers(hub: Path, name: str, kind: type) -> None:
    loaded = pair(hub / name)
    assert isinstance(loaded.target.model, kind)
    assert loaded.drafter is None
    with torch.inference_mode():
        expected = AutoModelForCausalLM.from_pretrained(hub / name)(torch.tensor([TEXT])).logits[0]
    torch.testing.assert_close(loaded.target.forward(TEXT).logits, expected, rtol=1e-4, atol=1e-4)


def test_a_model_that_drafts_for_itself_is_loaded_once(hub: Path) -> None:
    loaded = pair(hub / "llama", hub / "llama")
    assert loaded.drafter is not None
    assert loaded.drafter.model is loaded.target.model
    assert loaded.drafter is not loaded.target


def test_padded_vocabularies_are_cut_to_the_common_rows(hub: Path, tmp_path: Path) -> None:
    wide = tiny.save_checkpoint(tmp_path / "wide", tiny.qwen2(vocab_size=tiny.TOKENS + 30))
    less = tiny.save_checkpoint(tmp_path / "less", tiny.qwen2(vocab_size=tiny.TOKENS + 10))
    loaded = pair(wide, less)
    assert loaded.drafter is not None
    assert loaded.target.vocab_size == loaded.drafter.vocab_size == tiny.TOKENS + 10
    assert loaded.target.forward(TEXT).logits.shape == (len(TEXT), tiny.TOKENS + 10)
    (note,) = loaded.notes
    assert f"{tiny.TOKENS + 30} rows" in note and f"{tiny.TOKENS + 10} rows" in note


def test_a_vocabulary_is_never_cut_below_the_tokenizer() -> None:
    assert common_vocabulary("ab", (50, 40), tokens=40)[0] == 40
    assert common_vocabulary("ab", (40, 40), tokens=41) == (40, None)
    with refused("a", 50, "b", 40, 41):
        common_vocabulary("ab", (50, 40), tokens=41)


def test_a_drafter_with_another_tokenizer_crosses_from_its_vocabulary(hub: Path, tmp_path: Path) -> None:
    other = tiny.save_checkpoint(tmp_path / "other", tiny.llama(), tiny.tiny_tokenizer(swapped=True))
    ours = tiny.tiny_tokenizer().get_vocab()
    loaded = pair(hub / "llama", other)
    assert loaded.crossing is not None and loaded.crossing.own_of[ours["A"]] == ours["B"]
    (note,) = loaded.notes
    assert "100.0% of the target's vocabulary" in note and "(tli)" in note
    assert loaded.drafter_info is not None and "another tokenizer" in loaded.drafter_info.detail
    assert pair(hub / "llama", hub / "llama").crossing is None


def test_different_tokenizers_are_told_with_an_example() -> None:
    """Of encoder-decoder models, whose source the drafter would have to read anew."""
    ours, theirs = tiny.tiny_tokenizer(), tiny.tiny_tokenizer(swapped=True)
    a, b = (ours.get_vocab()[token] for token in "AB")
    with refused("a", "b", "'A'", f"id {a}", f"id {b}", 2):
        compare_tokenizers("ab", ours, theirs, tiny.TOKENS)


def test_tokens_without_logits_are_not_compared() -> None:
    plain, more = tiny.tiny_tokenizer(), tiny.tiny_tokenizer()
    more.add_tokens(["<|beyond|>"])
    assert compare_tokenizers("ab", plain, more, rows=tiny.TOKENS) == tiny.TOKENS
    with refused("'<|beyond|>'"):
        compare_tokenizers("ab", plain, more, rows=tiny.TOKENS + 1)


@pytest.mark.parametrize(("name", "trees"), [("mistral", True), ("mamba", False)])
def test_windows_and_states_run_as_targets_and_as_drafters(hub: Path, name: str, trees: bool) -> None:
    loaded = pair(hub / name, hub / name)
    assert loaded.target.model.trees is trees
    assert pair(hub / "llama", hub / name).drafter is not None


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (WhisperConfig(), known_reason(WhisperConfig())),
        (transformers.SeamlessM4TConfig(), "encoder-decoder"),
        (transformers.DeepseekV4Config(), "compressed_sparse_attention"),
        (transformers.RecurrentGemmaConfig(), known_reason(transformers.RecurrentGemmaConfig())),
        (transformers.SwitchTransformersConfig(), known_reason(transformers.SwitchTransformersConfig())),
        (transformers.MvpConfig(use_prompt=True), "use_prompt"),
        (transformers.PretrainedConfig(), "num_hidden_layers"),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_unfit_configurations_are_refused(config: Any, reason: str) -> None:
    with refused(f"it ({config.model_type})", reason, ROLLS_BACK):
        refuse_config("it", config)


class Forgetful(ToyModel):
    """A model with a running sum instead of a cache: what a rollback cannot undo."""

    state = 0.0

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: RollbackCache,
        hidden: Sequence[int],
        rows: int,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        self.state += float(tokens.sum())
        return torch.full((rows, self.vocab_size), self.state), {}


def test_a_cache_that_does_not_roll_back_is_noticed(hub: Path) -> None:
    with refused("it", ROLLS_BACK):
        refuse_no_rollback("it", Forgetful(torch.zeros(16, 16)), range(6))
    refuse_no_rollback("it", TransformersModel(AutoModelForCausalLM.from_pretrained(hub / "gpt2")), TEXT[:6])


def test_a_shorter_drafter_window_is_noted(hub: Path, tmp_path: Path) -> None:
    short = tiny.save_checkpoint(tmp_path / "short", tiny.llama(max_position_embeddings=64))
    assert "sees 64 tokens" in pair(hub / "llama", short).notes[0]
    assert pair(short, hub / "llama").notes == ()


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_generation_settings_are_neutralised_and_noted(hub: Path, tmp_path: Path, name: str) -> None:
    folder = tiny.save_checkpoint(tmp_path / name, getattr(tiny, name)())
    GenerationConfig(repetition_penalty=1.3, eos_token_id=[END, 9]).save_pretrained(folder)
    loaded = pair(folder)
    assert "repetition_penalty=1.3" in loaded.notes[0]
    assert {END, 9} <= loaded.stop
    if isinstance(loaded.target.model, TransformersModel):
        settings = loaded.target.model.hf.generation_config
        assert (settings.repetition_penalty or 1.0) == 1.0 and settings.eos_token_id == [END, 9]
    assert pair(hub / name).notes == ()


def test_the_end_of_turn_of_the_template_stops(hub: Path) -> None:
    assert pair(hub / "llama").stop == {END, END_OF_TURN}
    tokenizer = tiny.tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}[{{ m['content'] }}]<|im_start|>{% endfor %}"
    assert stop_ids("it", tokenizer, tiny.TOKENS) == ({END, tiny.SPECIALS.index("<|im_start|>")}, ())
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    assert stop_ids("it", tokenizer, tiny.TOKENS, GenerationConfig(eos_token_id=[5, 6]))[0] == {END, 5, 6}


def test_paths_that_lead_nowhere(hub: Path, tmp_path: Path) -> None:
    with refused(hub / "lama", ALLOWED, hub / "llama"):
        pair(hub / "lama")
    with refused(hub / "model.gguf", ALLOWED):
        pair(hub / "model.gguf")
    with refused(hub, "config.json", ALLOWED, hub / "gpt2"):
        pair(hub)
    (tmp_path / "weights.bin").write_bytes(b"x")
    with refused(tmp_path / "weights.bin", ".gguf", ALLOWED):
        pair(tmp_path / "weights.bin")


def test_a_folder_without_weights(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((hub / "llama" / "config.json").read_text())
    for file in hub.glob("llama/tokenizer*"):
        (tmp_path / file.name).write_text(file.read_text())
    with refused(tmp_path, "model.safetensors"):
        pair(tmp_path)


def test_a_hub_id_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sampling.loading.checkpoint.hub_answers", lambda: False)
    with refused("nobody/nothing-at-all", ".gguf"):
        pair("nobody/nothing-at-all")


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no route")

    monkeypatch.setattr(origin, "getproxies", dict)
    monkeypatch.setattr(origin.socket, "create_connection", refuse)
    assert not origin.hub_answers()


def test_code_of_its_own_is_refused_until_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once trusted, transformers knows its kind for as long as the process runs: here for this test."""
    monkeypatch.setattr(MODEL_FOR_CAUSAL_LM_MAPPING, "_extra_content", {})
    folder = tiny.save_checkpoint(tmp_path / "own", tiny.llama())
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "own"
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
        "class OwnForCausalLM(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    with refused(folder.name, "--trust-remote-code"):
        pair(folder)
    assert pair(folder, trust_remote_code=True).target.forward(TEXT).logits.shape == (len(TEXT), tiny.TOKENS)


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_out_of_memory_says_how_much_is_needed(hub: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", full)
    with refused("llama", "0.0 GiB", "float32"):
        pair(hub / "llama")


def test_a_wrong_way_to_compile_is_refused_before_anything_is_loaded() -> None:
    with refused("compile", "'often'", "auto", "on", "off", error=UnknownName):
        load_pair(LoadOptions("a target that is not there", device="cpu", compile="often"))


def test_devices_and_dtypes(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("device", "'cpux'", error=UnknownName) as caught:
        load_pair(LoadOptions(str(hub / "llama"), device="cpux"))
    assert caught.value.near == "cpu"
    with refused("dtype", "'bfloat'", error=UnknownName) as caught:
        load_pair(LoadOptions(str(hub / "llama"), dtype="bfloat"))
    assert caught.value.near == "bfloat16"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refused("'cuda:1'", "auto", "cpu"):
        load_pair(LoadOptions(str(hub / "llama"), drafter_device="cuda:1"))
    loaded = load_pair(LoadOptions(str(hub / "llama"), device="cpu", dtype="bfloat16"))
    assert loaded.target.model.dtype == torch.bfloat16 and loaded.target_info.dtype == "bfloat16"


@pytest.mark.parametrize(("faster", "chosen"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_dtype_takes_bfloat16_where_it_computes_faster(
    monkeypatch: pytest.MonkeyPatch, faster: bool, chosen: torch.dtype
) -> None:
    monkeypatch.setattr(devices, "computes_bfloat16", lambda: faster)
    assert devices.choose_dtype("auto", torch.device("cpu")) == chosen
