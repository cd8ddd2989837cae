"""Heads in published formats: read as they are, they compute what their sources say, and output stays the target's."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, PreTrainedModel
from transformers.modeling_layers import MtpLayer
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

from sampling.forward.models import lean
from sampling.forward.requests import run_single
from sampling.forward.runner import ModelRunner, prefill
from sampling.heads.published.eagle import read_eagle3
from sampling.heads.published.files import HeadFiles
from sampling.heads.published.formats import FORMATS, kind_of
from sampling.loading.heads import heads_for
from sampling.loading.options import LoadOptions
from sampling.loading.refusals.lacking import refuse_lacking
from sampling.measure.comparison import Comparison
from sampling.methods.settings import Settings
from sampling.methods.tables import DRAFTERS
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests import published, published_reference
from tests.published import SIZE, Made, linear, random, write
from tests.published_reference import Text
from tests.refusals import refused
from tests.sequences import sequence
from tests.tiny_models import VOCAB, ids, make
from utils.errors import UserError

DRAFTS = (17, 65)


@dataclass(frozen=True)
class Case:
    """A layout: who writes it, what it computes, the file its weights are in, the base that it names."""

    kind: str
    make: Callable[[], Made]
    reference: Callable[[Text, Mapping[str, Any], Mapping[str, Tensor]], Tensor]
    file: str
    base: str = ""


CASES = {
    "medusa": Case("medusa", published.medusa, published_reference.medusa, "medusa_lm_head.safetensors", "some/vicuna"),
    "medusa, legacy": Case(
        "medusa", partial(published.medusa, False), published_reference.medusa, "medusa_lm_head.pt", "some/vicuna"
    ),
    "hydra": Case("hydra", published.hydra, published_reference.hydra, "hydra_lm_head.pt", "some/vicuna"),
    "eagle": Case("eagle", partial(published.eagle, False), published_reference.eagle, "pytorch_model.bin"),
    "eagle, biases": Case("eagle", partial(published.eagle, True), published_reference.eagle, "model.safetensors"),
    "eagle3": Case("eagle", published.eagle3, published_reference.eagle3, "pytorch_model.bin"),
    "eagle3, layers": Case("eagle", published.eagle3_with_layers, published_reference.eagle3, "model.safetensors"),
    "eagle3, narrow": Case("eagle", published.eagle3_narrow, published_reference.eagle3, "model.safetensors"),
    "eagle3, of a target's depth": Case(
        "eagle", published.eagle3_of_target_depth, published_reference.eagle3, "model.safetensors"
    ),
    "eagle3, two layers": Case(
        "eagle", partial(published.eagle3_counted, 2), published_reference.eagle3, "model.safetensors.index.json"
    ),
    "eagle3, hidden norms": Case(
        "eagle", partial(published.eagle3_counted, 3, "hidden_norm"), published_reference.eagle3, "pytorch_model.bin"
    ),
    "speculators, eagle3 of three layers": Case(
        "eagle", published.speculators_eagle3_layers, published_reference.eagle3, "model.safetensors", "some/llama"
    ),
    "eagle4": Case("eagle", published.eagle4, published_reference.eagle3, "model.safetensors"),
    "eagle3.1, each": Case(
        "eagle", partial(published.eagle31, "fc_norm"), published_reference.eagle3, "model.safetensors"
    ),
    "eagle3.1, joined": Case(
        "eagle", partial(published.eagle31, "norm_before_fc"), published_reference.eagle3, "model.safetensors"
    ),
    "speculators, eagle": Case(
        "eagle",
        partial(published.speculators_eagle, False),
        published_reference.speculators_eagle,
        "model.safetensors",
        "some/llama",
    ),
    "speculators, norms": Case(
        "eagle",
        partial(published.speculators_eagle, True),
        published_reference.speculators_eagle,
        "model.safetensors",
        "some/llama",
    ),
    "speculators, eagle3": Case(
        "eagle", published.speculators_eagle3, published_reference.eagle3, "model.safetensors", "some/llama"
    ),
    "parallel_eagle": Case(
        "parallel_eagle", published.parallel, published_reference.parallel_eagle, "model.safetensors"
    ),
    "speculators, peagle": Case(
        "parallel_eagle",
        published.speculators_parallel,
        published_reference.parallel_eagle,
        "model.safetensors",
        "some/llama",
    ),
    "speculators, peagle with a window": Case(
        "parallel_eagle",
        published.speculators_parallel_windows,
        published_reference.parallel_eagle,
        "model.safetensors",
        "some/llama",
    ),
    "mtp, deepseek": Case("mtp", published.mtp_deepseek, published_reference.mtp, "model.safetensors.index.json"),
    "mtp, mimo": Case("mtp", published.mtp_mimo, published_reference.mtp, "model.safetensors"),
    "mtp, qwen": Case("mtp", published.mtp_qwen, published_reference.mtp, "pytorch_model.bin"),
    "dflash": Case("dspark", published.dflash, published_reference.one_pass, "model.safetensors"),
    "dspark": Case("dspark", published.dspark, published_reference.one_pass, "model.safetensors.index.json"),
    **{
        f"speculators, {kind}": Case(
            "dspark",
            partial(published.speculators_one_pass, kind),
            published_reference.one_pass,
            "model.safetensors",
            "some/llama",
        )
        for kind in ("dflash", "dspark")
    },
}


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return make("llama")


def pair_of(model: PreTrainedModel, heads: dict[str, Path]) -> Pair:
    target = ModelRunner(lean.from_transformers(model))
    return Pair(target, None, None, frozenset(), ModelInfo("tiny", "cpu", "float32"), heads=heads)  # type: ignore[arg-type]


def written(case: Case, folder: Path) -> tuple[Path, Made]:
    torch.manual_seed(5)
    made = case.make()
    return write(folder, made, case.file), made


@pytest.mark.parametrize("name", CASES)
def test_a_published_head_computes_what_its_source_says(name: str, model: PreTrainedModel, tmp_path: Path) -> None:
    case, tokens = CASES[name], ids(12, seed=3)
    folder, (config, weights) = written(case, tmp_path / "head")
    assert kind_of(folder) == case.kind
    with torch.no_grad():
        expected = case.reference(Text(model, tokens, DRAFTS), config, weights)
    head = pair_of(model, {case.kind: folder}).head(case.kind)
    assert head.config.base == (case.base or ("head" if case.kind == "mtp" else ""))
    assert_drafted(model, folder, case.kind, tokens, expected)


def assert_drafted(model: PreTrainedModel, folder: Path, kind: str, tokens: list[int], expected: Tensor) -> None:
    """The drafter's logits `[n, V]` for a chain of n drafts are these; where they are -inf it never drafts."""
    pair = pair_of(model, {kind: folder})
    drafter = DRAFTERS[kind].build(pair, {**Settings(), "draft_weights": "full"})
    seq = sequence(tokens, pair.target)
    seq.hidden = prefill(pair.target, tokens[:-1], drafter.needs_hidden)
    drafter.begin(seq)
    with torch.inference_mode():
        logits = [run_single(drafter.root(seq))]
        logits += [run_single(drafter.feed(seq, torch.tensor([draft]))) for draft in DRAFTS[: len(expected) - 1]]
    drafted = expected.isfinite()
    assert drafted.sum() > len(expected) * 80
    torch.testing.assert_close(torch.cat(logits)[drafted], expected[drafted], rtol=1e-4, atol=2e-4)
    assert (torch.cat(logits)[~drafted] < -1e30).all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tree", ["chain", "dynamic"])
def test_greedy_output_is_the_targets(name: str, tree: str, model: PreTrainedModel, tmp_path: Path) -> None:
    case = CASES[name]
    folder, _ = written(case, tmp_path)
    values = Settings()
    values.assign_all([("length", "16"), ("draft_tree", tree), ("processor", "greedy")])
    comparison = Comparison(PairEngine(pair_of(model, {case.kind: folder})), values, ids(9, seed=1))
    found = {}
    for method in ("target", case.kind):
        for _ in comparison.run(method):
            pass
        found[method] = comparison.metrics[method].output_ids
    assert found[case.kind] == found["target"]


def changed(made: Made, config: Mapping[str, Any], **weights: Tensor | None) -> Made:
    """Another config, and weights replaced, added or, where None, left out; a name's dots are written `__`."""
    own = made[1] | {name.replace("__", "."): weight for name, weight in weights.items()}
    return made[0] | dict(config), {name: weight for name, weight in own.items() if weight is not None}


def mla() -> Made:
    config, weights = published.mtp_deepseek()
    return config | {"model_type": "deepseek_v3"}, weights | linear("model.layers.3.self_attn.kv_a_proj_with_mqa", 9, 9)


def moe() -> Made:
    config, weights = published.mtp_deepseek()
    return config | {"model_type": "glm4_moe"}, weights | linear("model.layers.3.mlp.experts.0.up_proj", 9, 9)


REFUSED: dict[str, tuple[str, Callable[[], Made], tuple[object, ...]]] = {
    "unknown": ("eagle", lambda: ({"model_type": "bert"}, {}), ("config.json", "medusa_num_heads", "EAGLE-3")),
    "another size": (
        "eagle",
        lambda: changed(published.speculators_eagle(False), {}, fusion_fc__weight=random(SIZE, 2)),
        ("fusion_fc.weight", [48, 2], [48, 96], "config.json"),
    ),
    "another vocabulary": (
        "eagle",
        lambda: changed(
            published.speculators_eagle(False),
            {"transformer_layer_config": published.LLAMA | {"vocab_size": 500}},
        ),
        ("some/llama", 48, 500, "tiny", 131),
    ),
    "a nameless base": (
        "eagle",
        lambda: changed(published.eagle(False), {"vocab_size": 500}, embed_tokens__weight=random(500, SIZE)),
        (48, 500, "tiny", 131),
    ),
    "a weight too many": (
        "eagle",
        lambda: changed(published.eagle(False), {}, layers__0__input_layernorm__weight=random(SIZE)),
        ("layers.0.input_layernorm.weight",),
    ),
    "a weight too few": (
        "eagle",
        lambda: changed(published.eagle(False), {}, fc__weight=None),
        ("fc.weight", "embedding.weight"),
    ),
    "a layer too few": (
        "eagle",
        lambda: changed(published.eagle3_counted(2), {"num_hidden_layers": 3}),
        ("layers 0, 1", "num_hidden_layers 3"),
    ),
    "one layer more": (
        "eagle",
        lambda: changed(published.eagle3_counted(2), {"num_hidden_layers": 1}),
        ("layers 0, 1", "num_hidden_layers 1"),
    ),
    "a gap": (
        "eagle",
        lambda: changed(
            published.eagle3_counted(1), {"num_hidden_layers": 2}, layers__2__input_layernorm__weight=random(SIZE)
        ),
        ("layers 0, 2", "num_hidden_layers 2"),
    ),
    "two layers of EAGLE-1": (
        "eagle",
        lambda: changed(
            published.speculators_eagle(False),
            {"transformer_layer_config": published.LLAMA | {"num_hidden_layers": 2}},
        ),
        ("2 layers", "one"),
    ),
    "a later layer that reads the embedding": (
        "eagle",
        lambda: changed(published.eagle3_counted(2), {}, layers__1__hidden_norm__weight=random(SIZE)),
        ("layer 1", "layers.1.input_layernorm.weight", "layers.1.hidden_norm.weight", "one norm"),
    ),
    "a later layer that is wide": (
        "eagle",
        lambda: changed(published.eagle3_counted(2), {}, layers__1__self_attn__q_proj__weight=random(SIZE, 2 * SIZE)),
        ("layers.1.self_attn.q_proj.weight", [48, 96], [48, 48]),
    ),
    "a later layer without its norm": (
        "eagle",
        lambda: changed(published.eagle3_counted(2), {}, layers__1__input_layernorm__weight=None),
        ("layer 1", "input_layernorm.weight"),
    ),
    "another window": (
        "eagle",
        lambda: changed(published.eagle3_counted(1), {"layer_types": ["chunked_attention"]}),
        ("chunked_attention", "full_attention", "sliding_attention"),
    ),
    "types of other layers": (
        "eagle",
        lambda: changed(published.eagle3_counted(1), {"layer_types": ["sliding_attention"] * 4, "sliding_window": 8}),
        ("layer_types", "4 entries", "1 layers"),
    ),
    "a window of no size": (
        "eagle",
        lambda: changed(published.eagle3_counted(1), {"layer_types": ["sliding_attention"], "sliding_window": None}),
        ("sliding_window", None, "1 or more"),
    ),
    "half a candidate head": (
        "eagle",
        lambda: changed(published.eagle4(), {}, efficient_lm_head__weight=None),
        ("candidates_up.weight",),
    ),
    "candidates of another rank": (
        "eagle",
        lambda: changed(published.eagle4(), {"efficient_lm_head_config": {"rank": 6, "num_candidates": 9}}),
        ("efficient_lm_head_config", 6, "rank 7", "num_candidates"),
    ),
    "no number of candidates": (
        "eagle",
        lambda: changed(published.eagle4(), {"efficient_lm_head_config": {"rank": 7}}),
        ("candidates", None),
    ),
    "candidates that nothing says": (
        "eagle",
        lambda: changed(published.eagle4(), {"efficient_lm_head_config": None}),
        ("efficient_lm_head_config", None, "num_candidates"),
    ),
    "a norm that is not asked for": (
        "eagle",
        lambda: changed(published.eagle31("fc_norm"), {"fc_norm": False}),
        ("fc_norm.0.weight", "norm_before_fc"),
    ),
    "dynamic rope": (
        "eagle",
        lambda: changed(published.eagle3(), {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
        ("dynamic", "default", "linear", "llama3", "yarn"),
    ),
    "a window": (
        "mtp",
        lambda: changed(published.mtp_qwen(), {"model_type": "mistral", "sliding_window": 16}),
        ("windowed", "full attention"),
    ),
    "one state": (
        "eagle",
        lambda: changed(published.eagle3(), {"eagle_config": {"use_aux_hidden_state": False}}),
        ("eagle_config.use_aux_hidden_state", "false"),
    ),
    "both norms": (
        "eagle",
        lambda: changed(published.eagle31("fc_norm"), {"norm_before_fc": True}),
        ("norm_before_fc", "fc_norm"),
    ),
    "a missing norm": (
        "eagle",
        lambda: changed(published.eagle31("fc_norm"), {}, **{"fc_norm.2.weight": None}),
        ("state_norms.2.weight",),
    ),
    "missing ids": ("eagle", lambda: changed(published.eagle3(), {}, d2t=None), (90, 131, "d2t")),
    "a deeper target": (
        "eagle",
        lambda: changed(published.eagle3(), {"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}),
        ((2, 16, 29), 0, 2),
    ),
    "another speculator": (
        "eagle",
        lambda: changed(published.speculators_eagle3(), {"speculators_model_type": "mlp"}),
        ("speculators_model_type", "mlp", "eagle", "eagle3", "peagle"),
    ),
    "no mask state": (
        "parallel_eagle",
        lambda: changed(published.parallel(), {}, mask_hidden=None),
        ("mask_hidden",),
    ),
    "a narrow mask state": (
        "parallel_eagle",
        lambda: changed(published.parallel(), {}, mask_hidden=random(1, SIZE)),
        ("mask_hidden", [48], [144]),
    ),
    "no mask token": (
        "parallel_eagle",
        lambda: changed(published.speculators_parallel(), {"mask_token_id": None}),
        (None, "mask_token_id", "ptd_token_id", "pard_token", 130),
    ),
    "a layer too many": (
        "parallel_eagle",
        lambda: changed(
            published.speculators_parallel(), {"transformer_layer_config": published.LLAMA | {"num_hidden_layers": 1}}
        ),
        ("layers 0, 1", "num_hidden_layers 1"),
    ),
    "one midlayer of two": (
        "parallel_eagle",
        lambda: changed(published.parallel(), {"num_hidden_layers": 2}),
        ("layers 0", "num_hidden_layers 2"),
    ),
    "a layer without its norm": (
        "parallel_eagle",
        lambda: changed(published.speculators_parallel(), {}, layers__1__input_layernorm__weight=None),
        ("layer 1", "input_layernorm.weight"),
    ),
    "a norm in front of fc": (
        "parallel_eagle",
        lambda: changed(published.speculators_parallel(), {"norm_before_fc": True}),
        ("norm_before_fc", True),
    ),
    "prefix attention": (
        "hydra",
        lambda: changed(published.hydra(), {"hydra_head_arch": "prefix-mlp"}),
        ("hydra_head_arch", "prefix-mlp", "mlp"),
    ),
    "ungrounded": (
        "hydra",
        lambda: changed(published.hydra(), {"grounded_heads": False}),
        ("grounded_heads", "false", "true"),
    ),
    "latent attention": ("mtp", mla, ("MLA", "deepseek_v3")),
    "experts": ("mtp", moe, ("mixture of experts", "glm4_moe")),
    "another block": (
        "mtp",
        lambda: changed(published.mtp_qwen(), {"model_type": "qwen3_next"}),
        ("qwen3_next", "llama", "mimo"),
    ),
    "gated": (
        "dspark",
        lambda: changed(published.dspark(), {"markov_head_type": "gated"}),
        ("markov_head_type", "gated", "vanilla"),
    ),
    "another projector": (
        "dspark",
        lambda: changed(published.dflash(), {"dflash_config": {"projector_type": "domino", "target_layer_ids": [1]}}),
        ("projector_type", "domino", "dflash"),
    ),
    "a window a layer": (
        "dspark",
        lambda: changed(published.dflash(), {"layer_types": ["sliding_attention"] * 2}),
        ("sliding_attention", "full attention"),
    ),
    "a selector": (
        "dspark",
        lambda: changed(published.dflash(), {"selector_rank": 4}),
        ("selector_rank", 4, 0),
    ),
    "a block too few": (
        "dspark",
        lambda: changed(published.dflash(), {"num_hidden_layers": 3}),
        ("self_attn.q_proj.weight", "mlp.gate_proj.weight"),
    ),
    "a block too many": (
        "dspark",
        lambda: changed(published.dflash(), {"num_hidden_layers": 1}),
        ("blocks.1.self_attn.q_proj.weight", 1, "config.json"),
    ),
    "the last state": (
        "dspark",
        lambda: changed(published.dspark(), {"target_layer_ids": [0, 2]}),
        ((1, 3), 0, 2),
    ),
    "a deeper one": (
        "dspark",
        lambda: changed(published.dspark(), {"num_target_layers": 36}),
        (36, 3),
    ),
    "no mask": (
        "dspark",
        lambda: changed(published.dspark(), {"mask_token_id": 131}),
        ("mask_token", 131, -1),
    ),
    "no module": (
        "mtp",
        lambda: (published.target_config(), {"a.weight": random(2)}),
        ("config.json", "model.layers.3."),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_computed_is_refused(name: str, model: PreTrainedModel, tmp_path: Path) -> None:
    kind, make_it, quoted = REFUSED[name]
    files = {"hydra": "hydra_lm_head.pt"}
    folder = write(tmp_path / "head", make_it(), files.get(kind, "pytorch_model.bin"))
    with refused(folder, *quoted):
        pair_of(model, {kind: folder}).head(kind)


@pytest.mark.parametrize(("layers", "usual"), [(4, (2, 2, 1)), (5, (2, 2, 2)), (6, (2, 3, 3))])
def test_a_target_of_few_layers_is_told_why_three_states_are_fewer(
    layers: int, usual: tuple[int, ...], tmp_path: Path
) -> None:
    folder, (config, _) = written(CASES["eagle3"], tmp_path / "head")
    files = HeadFiles(folder, config, layers, VOCAB, torch.zeros(VOCAB, SIZE))
    with refused(folder, "fc.weight", [SIZE, 3 * SIZE], f"{layers} layers", *usual):
        read_eagle3(files)
    with refused(folder, "fc.weight", [SIZE, 2 * SIZE], "config.json"):
        read_eagle3(replace(files, config={**config, "eagle_aux_hidden_state_layer_ids": [0, 1]}))


def test_only_tensors_are_unpickled(model: PreTrainedModel, tmp_path: Path) -> None:
    folder = write(tmp_path, (published.eagle(False)[0], {}), "pytorch_model.bin")
    torch.save({"fc.weight": Path("a class")}, folder / "pytorch_model.bin")
    with refused(folder / "pytorch_model.bin", "Weights only load failed"):
        pair_of(model, {"eagle": folder}).head("eagle")
    torch.save([random(2)], folder / "pytorch_model.bin")
    with refused(folder / "pytorch_model.bin", "tensors"):
        pair_of(model, {"eagle": folder}).head("eagle")
    (folder / "pytorch_model.bin").unlink()
    with refused(folder, "model.safetensors", "pytorch_model.bin"):
        pair_of(model, {"eagle": folder}).head("eagle")


def test_a_module_in_deepseeks_layout_is_that_of_transformers(model: PreTrainedModel, tmp_path: Path) -> None:
    """The first draft is that of transformers' own `MtpLayer` around a Llama block."""
    folder, (config, weights) = written(CASES["mtp, deepseek"], tmp_path)
    like, tokens = LlamaConfig(**config, attn_implementation="eager"), torch.tensor([ids(12, seed=3)])
    layer = MtpLayer(like, LlamaDecoderLayer, LlamaRMSNorm, 0)
    block = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
    own = published_reference.part(weights, "model.layers.3.")
    named = {f"mtp_block.{name}" if name.split(".")[0] in block else name: weight for name, weight in own.items()}
    named["post_norm.weight"] = named.pop("shared_head.norm.weight")
    output, embedding = named.pop("shared_head.head.weight"), named.pop("embed_tokens.weight")
    layer.load_state_dict(named)
    with torch.no_grad():
        feature = model(tokens[:, :-1], output_hidden_states=True).hidden_states[-1]
        places = torch.arange(11)[None]
        turns = LlamaRotaryEmbedding(like)(feature, places)
        mask = torch.full((11, 11), float("-inf")).triu(1)[None, None]
        expected = layer(embedding[tokens[:, 1:]], feature, turns, mask, places, None)[0, -1:] @ output.T
    assert_drafted(model, folder, "mtp", tokens[0].tolist(), expected)


def test_heads_are_found_by_their_format(tmp_path: Path) -> None:
    cases = [CASES[name] for name in ("medusa", "hydra", "eagle3", "mtp, mimo", "parallel_eagle")]
    folders = {case.kind: written(case, tmp_path / case.kind)[0] for case in cases}
    assert heads_for("tiny", ",".join(map(str, folders.values()))) == folders
    assert {case.kind for case in CASES.values()} == {one.kind for one in FORMATS}


def test_a_model_is_no_head(model: PreTrainedModel, tmp_path: Path) -> None:
    model.save_pretrained(folder := tmp_path / "model")
    with refused(folder, "LlamaForCausalLM", "not a head", "--target", "--drafter"):
        heads_for("tiny", str(folder))


def test_a_hub_id_is_fetched_as_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = (CASES[name] for name in ("eagle3",))
    folder, *_ = written(case, tmp_path / "fetched")
    asked: list[tuple[str, bool]] = []

    def fetch(place: str, *, allow_patterns: list[str], local_files_only: bool) -> str:
        asked.append((place, local_files_only))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    monkeypatch.setattr("sampling.loading.heads.hub_answers", lambda: True)
    monkeypatch.chdir(tmp_path)
    assert heads_for("tiny", "owner/eagle3-head") == {"eagle": folder}
    assert asked == [("owner/eagle3-head", False)]
    with refused("nowhere/at/all"):
        heads_for("tiny", "nowhere/at/all")


@pytest.mark.parametrize(
    ("needed", "lacks"),
    [("model", False), ("mtp", False), ("dspark", True), ("drafter's mtp", False), (None, False)],
)
def test_what_a_call_lacks_is_known_before_weights_are_read(needed: str | None, lacks: bool) -> None:
    with pytest.raises(UserError, match="dspark") if lacks else nullcontext():
        refuse_lacking(LoadOptions(), [needed])


def test_a_target_of_nobody_has_what_is_named_for_it(tmp_path: Path) -> None:
    folder, *_ = written(CASES["eagle3"], tmp_path / "head")
    for given in ({"heads": str(folder)}, {"drafter": "owner/name"}):
        kind = "eagle" if "heads" in given else "model"
        refuse_lacking(LoadOptions(target="owner/target", **given), [kind])
        with pytest.raises(UserError):
            refuse_lacking(LoadOptions(target="owner/target"), [kind])
