"""States in files: whole, their own, and refused where they are not of use."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sampling.handover import Handover
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.pair.pair import Pair
from sampling.prefilled.files import StateFiles, write_state
from sampling.prefilled.packed import Maker, packed, seconds_in, unpacked
from sampling.prefilled.reading import read_apart
from tests.tiny import llama, save_checkpoint, tiny_pair
from utils.errors import UserError

PROMPT = [9, 8, 7, 6, 5, 40, 41, 42]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


def written(pair: Pair, path: Path, prompt: list[int] = PROMPT, layers: tuple[int, ...] = (3,)) -> Handover:
    handover = read_apart(pair.target, prompt, layers)
    write_state(path, handover, Maker.of(pair), '{"prompt": "a"}')
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
    with pytest.raises(UserError, match="lacks the target's states of layers 1, from which"):
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
    with pytest.raises(
        UserError,
        match=r"of 2 states the nearest, .*8\.safetensors.*8 tokens and the prompt has 3; they part at token 1",
    ):
        files.find(pair, [9, 1, 1], ())


def test_the_states_of_another_target_are_refused(pair: Pair, tmp_path: Path) -> None:
    written(pair, tmp_path / "s.safetensors")
    files = StateFiles(tmp_path)
    with pytest.raises(UserError, match="is of tiny, with other weights than the target here, tiny"):
        files.refuse_other(tiny_pair(seed=1))
    here = Maker.of(pair)
    for changed, says in ((("weights", "int8"), "--target-weights int8"), (("dtype", "bfloat16"), "--dtype bfloat16")):
        other = Maker(**{**here.as_dict(), changed[0]: changed[1]})
        with pytest.raises(UserError, match=says):
            other.refuse_other(here, "a state")


def test_weights_that_differ_where_heads_do_not_look_are_others(tmp_path: Path) -> None:
    """Embedding and norms of a fine-tune may be those of its base; its keys and values are not."""
    base, tuned = (save_checkpoint(tmp_path / name, llama()) for name in ("base", "tuned"))
    weights = load_file(tuned / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"] += 0.1
    save_file(weights, tuned / "model.safetensors", {"format": "pt"})
    one, other = (load_pair(LoadOptions(target=str(folder), dtype="float32")) for folder in (base, tuned))
    assert one.digest == other.digest and not Maker.of(one).fits(Maker.of(other))
    written(one, tmp_path / "s.safetensors")
    with pytest.raises(UserError, match="with other weights than"):
        StateFiles(tmp_path / "s.safetensors").refuse_other(other)


@pytest.mark.parametrize("seconds", [-5.0, "x", None, True, 1e400])
def test_times_that_cannot_be_are_refused(pair: Pair, seconds: object) -> None:
    with pytest.raises(UserError, match="seconds that reading a prompt can take"):
        seconds_in(seconds, "it")
    with pytest.raises(UserError, match="seconds that reading a prompt can take"):
        seconds_in(2.0, "it", most=1.0)


def test_what_is_no_state_is_refused(pair: Pair, tmp_path: Path) -> None:
    good = tmp_path / "good.safetensors"
    written(pair, good)
    (tmp_path / "cut.safetensors").write_bytes(good.read_bytes()[:-100])
    (tmp_path / "text.safetensors").write_text("no tensors")
    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors")
    about = {**Maker.of(pair).as_dict(), "prefill_s": "x", "prompt": ""}
    save_file(
        load_file(good), tmp_path / "odd.safetensors", {"format": "prefilled-state-1", "about": json.dumps(about)}
    )
    for name, says in (
        ("cut", "cannot be read"),
        ("text", "cannot be read"),
        ("other", "is no prefilled state"),
        ("odd", "prefill_s"),
        ("none", "cannot be read: No such file"),
    ):
        with pytest.raises(UserError, match=says):
            StateFiles(tmp_path / f"{name}.safetensors")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no prefilled state"):
        StateFiles(tmp_path / "empty")


def test_tensors_that_do_not_fit_together_are_refused(pair: Pair) -> None:
    whole = packed(read_apart(pair.target, PROMPT, (3,)).state)
    for changed, says in (
        ({"tokens": whole["tokens"][:-1]}, "has the shape"),
        ({"hidden.3": whole["hidden.3"][:-1]}, "has the shape"),
        ({"keys.7": whole["keys.0"]}, "not of the same layers"),
        ({"more": whole["keys.0"]}, "a tensor 'more'"),
        ({"tokens": whole["tokens"].float()}, "no tokens"),
        ({"tokens": whole["tokens"].unsqueeze(0)}, "no tokens"),
    ):
        with pytest.raises(UserError, match=says):
            unpacked({**whole, **changed}, "it")
