"""States in files: whole, their own, and refused where they are not of use."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sampling.handover import Handover
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.pair.pair import Pair
from sampling.prefilled.files import StateFiles, write_state
from sampling.prefilled.packed import PrefillMaker, packed, seconds_in, unpacked
from sampling.prefilled.reading import read_apart
from tests.refusals import refused
from tests.tiny import llama, save_checkpoint, tiny_pair

PROMPT = [9, 8, 7, 6, 5, 40, 41, 42]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


def written(pair: Pair, path: Path, prompt: list[int] = PROMPT, layers: tuple[int, ...] = (3,)) -> Handover:
    handover = read_apart(pair.target, prompt, layers)
    write_state(path, handover, PrefillMaker.of(pair), '{"prompt": "a"}')
    return handover


def equal(one: Handover, other: Handover) -> bool:
    a, b = packed(one.state), packed(other.state)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_state_comes_back_to_the_bit(pair: Pair, tmp_path: Path) -> None:
    expected = written(pair, tmp_path / "s.safetensors")
    files = StateFiles(tmp_path / "s.safetensors")
    files.refuse_other(pair)
    found = files.find(pair, PROMPT, (3,))
    assert equal(found, expected) and found.prefill_s == expected.prefill_s and found.transfer_s > 0
    assert files.files[0].layers == {3}
    with refused(tmp_path / "s.safetensors", "layers 1", "--methods"):
        files.check(PROMPT, (1, 3))
    assert files.files[0].prompt == '{"prompt": "a"}'
    assert [path.name for path in tmp_path.iterdir()] == ["s.safetensors"], "no scratch is left"


def test_numbers_of_two_bytes_come_back(pair: Pair) -> None:
    state = read_apart(pair.target, PROMPT, ()).state
    halves = {name: one.bfloat16() if one.is_floating_point() else one for name, one in packed(state).items()}
    assert {one.dtype for rows in unpacked(halves, "it").rows.values() for one in rows} == {torch.bfloat16}


def test_a_folder_holds_the_states_of_many(pair: Pair, tmp_path: Path) -> None:
    other = [1, 2, 3]
    expected = {tuple(one): written(pair, tmp_path / f"{len(one)}.safetensors", one) for one in (PROMPT, other)}
    files = StateFiles(tmp_path)
    for prompt, handover in expected.items():
        assert equal(files.find(pair, prompt, ()), handover)
    with refused("2 states", tmp_path / "8.safetensors", "8 tokens", 3, "token 1"):
        files.find(pair, [9, 1, 1], ())


def test_the_states_of_another_target_are_refused(pair: Pair, tmp_path: Path) -> None:
    written(pair, tmp_path / "s.safetensors")
    files = StateFiles(tmp_path)
    with refused(tmp_path / "s.safetensors", "tiny", "weights"):
        files.refuse_other(tiny_pair(seed=1))
    here = PrefillMaker.of(pair)
    for name, value, option in (("weights", "int8", "--target-weights"), ("dtype", "bfloat16", "--dtype")):
        other = PrefillMaker(**{**here.as_dict(), name: value})
        with refused("a state", "tiny", f"{option} {value}"):
            other.refuse_other(here, "a state")


def test_weights_that_differ_where_heads_do_not_look_are_others(tmp_path: Path) -> None:
    """Embedding and norms of a fine-tune may be those of its base; its keys and values are not."""
    base, tuned = (save_checkpoint(tmp_path / name, llama()) for name in ("base", "tuned"))
    weights = load_file(tuned / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"] += 0.1
    save_file(weights, tuned / "model.safetensors", {"format": "pt"})
    one, other = (load_pair(LoadOptions(target=str(folder), dtype="float32")) for folder in (base, tuned))
    assert one.digest == other.digest and not PrefillMaker.of(one).fits(PrefillMaker.of(other))
    written(one, tmp_path / "s.safetensors")
    with refused(tmp_path / "s.safetensors", "base", "tuned", "weights"):
        StateFiles(tmp_path / "s.safetensors").refuse_other(other)


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("config.json", "rope_parameters", {"rope_theta": 50.0, "rope_type": "default"}),
        ("generation_config.json", "eos_token_id", 5),
        ("tokenizer_config.json", "chat_template", "{{ messages[0]['content'] }}"),
    ],
)
def test_the_same_weights_under_another_config_are_another_model(
    tmp_path: Path, file: str, key: str, value: object
) -> None:
    """All methods would agree on a text that the model does not write."""
    base, other = (save_checkpoint(tmp_path / name, llama()) for name in ("base", "other"))
    path = other / file
    about = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**about, key: value}))
    one, another = (load_pair(LoadOptions(target=str(folder), dtype="float32")) for folder in (base, other))
    assert PrefillMaker.of(one).digest == PrefillMaker.of(another).digest
    assert not PrefillMaker.of(one).fits(PrefillMaker.of(another))
    written(one, tmp_path / "s.safetensors")
    StateFiles(tmp_path / "s.safetensors").refuse_other(one)
    with refused(tmp_path / "s.safetensors", "base", "other", "config"):
        StateFiles(tmp_path / "s.safetensors").refuse_other(another)


def changed(path: Path, tensors: dict[str, torch.Tensor], **about: object) -> None:
    """A state's file with other tensors, or that says something else of itself."""
    with safe_open(path, "pt") as file:
        metadata, known = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    said = json.loads(metadata["about"]) | about
    save_file({**known, **tensors}, path, {**metadata, "about": json.dumps(said)})


def test_what_was_changed_since_is_refused_before_it_is_used(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    written(pair, path)
    whole, tensors = path.read_bytes(), load_file(path)
    other = {
        "doubled": {"keys.1": tensors["keys.1"] * 2},
        "exchanged": {"keys.0": tensors["values.0"], "values.0": tensors["keys.0"]},
        "state": {"hidden.3": tensors["hidden.3"] + 1},
        "another layer": {"hidden.2": tensors["hidden.3"]},
    }
    for planted in other.values():
        changed(path, {name: tensor.contiguous() for name, tensor in planted.items()})
        with refused(path, "checksum"):
            StateFiles(path).find(pair, PROMPT, (3,))
        path.write_bytes(whole)
    ids = tensors["tokens"].clone()
    ids[2] += 1
    for tampered, about in (
        ({"tokens": ids}, {}),
        ({}, {"prompt": "b"}),
        ({}, {"prefill_s": 9.0}),
        ({}, {"dtype": "x"}),
    ):
        changed(path, tampered, **about)
        with refused(path, "checksum"):
            StateFiles(path)
        path.write_bytes(whole)
    flipped = bytearray(whole)
    flipped[-3] ^= 1
    path.write_bytes(flipped)
    with refused(path, "checksum"):
        StateFiles(path).find(pair, PROMPT, (3,))


def test_a_state_of_an_older_version_cannot_be_compared(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    written(pair, path)
    save_file(load_file(path), path, {"format": "prefilled-state-1", "about": "{}"})
    with refused(path, "version", "infer.py prefill"):
        StateFiles(path)


@pytest.mark.parametrize("seconds", [-5.0, "x", None, True, 1e400, 1e300])
def test_times_that_cannot_be_are_refused(pair: Pair, seconds: object) -> None:
    with refused("it", "prefill_s", repr(seconds)):
        seconds_in(seconds, "it")
    with refused("it", "prefill_s", 2.0):
        seconds_in(2.0, "it", most=1.0)


def test_what_is_no_state_is_refused(pair: Pair, tmp_path: Path) -> None:
    good = tmp_path / "good.safetensors"
    written(pair, good)
    (tmp_path / "cut.safetensors").write_bytes(good.read_bytes()[:-100])
    (tmp_path / "text.safetensors").write_text("no tensors")
    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors")
    odd = replace(read_apart(pair.target, PROMPT, ()), prefill_s="x")  # type: ignore[arg-type]
    write_state(tmp_path / "odd.safetensors", odd, PrefillMaker.of(pair))
    for name, quoted in (
        ("cut", "infer.py prefill"),
        ("text", "infer.py prefill"),
        ("other", "infer.py prefill"),
        ("odd", "prefill_s: 'x'"),
        ("none", os.strerror(errno.ENOENT)),
    ):
        with refused(tmp_path / f"{name}.safetensors", quoted):
            StateFiles(tmp_path / f"{name}.safetensors")
    (tmp_path / "empty").mkdir()
    with refused(tmp_path / "empty", "*.safetensors"):
        StateFiles(tmp_path / "empty")


def test_tensors_that_do_not_fit_together_are_refused(pair: Pair) -> None:
    whole = packed(read_apart(pair.target, PROMPT, (3,)).state)
    rows = len(PROMPT) - 1
    for changed, quoted in (
        ({"tokens": whole["tokens"][:-1]}, ("keys.0", tuple(whole["keys.0"].shape), rows - 1)),
        ({"hidden.3": whole["hidden.3"][:-1]}, ("hidden.3", (rows - 1, 32), rows)),
        ({"keys.7": whole["keys.0"]}, ("keys", "values", "layers")),
        ({"more": whole["keys.0"]}, ("'more'",)),
        ({"tokens": whole["tokens"].float()}, ("tokens", "ids")),
        ({"tokens": whole["tokens"].unsqueeze(0)}, ("tokens", "ids")),
    ):
        with refused("it", *quoted):
            unpacked({**whole, **changed}, "it")
