"""The choice of a kernel: right on a machine that is busy, made once, and kept for what it holds for."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch

from sampling.forward.kernels import autotune_cache, autotuning
from sampling.forward.kernels import probe as kernels
from sampling.forward.kernels.autotune_cache import TunedChoice, choose, made, store_path
from sampling.forward.kernels.autotuning import Times, TrialVerdict, autotune
from sampling.forward.kernels.int8 import decided, pays, rough_wins
from sampling.forward.kernels.linear import DenseLinear, PackedLinear
from sampling.forward.kernels.probe import always_faster, computes_bfloat16, first_wins, kernel, use_kernel
from sampling.loading.options import KERNELS
from sampling.loading.pairs import LoadOptions, load_pair
from tests import tiny
from tests.refusals import refused
from utils.device import machine
from utils.errors import UnknownName
from utils.files import CACHE_VARIABLE

Turn = Callable[[], Sequence[Times]]
PACKED, PLAIN = (0.0010, 0.0011), (0.0018, 0.0026)
needs_packed = pytest.mark.skipif(not kernels.packs(torch.float32), reason="torch has no oneDNN here")


class BusyMachine:
    """Passes that take so long on a free machine, most of them inflated up to tenfold, and the clock they move."""

    def __init__(self, *sides: Times, seed: int = 0, busy: float = 0.7) -> None:
        self.sides, self.busy, self.now, self.turns = sides, busy, 0.0, 0
        self._chance = random.Random(seed)

    def clock(self) -> float:
        return self.now

    def turn(self) -> Sequence[Times]:
        self.turns += 1
        times = [[self._pass(seconds) for seconds in side] for side in self.sides]
        self.now += sum(map(sum, times))
        return times

    def _pass(self, seconds: float) -> float:
        disturbed = self._chance.random() < self.busy
        return seconds * (self._chance.uniform(1.0, 10.0) if disturbed else self._chance.uniform(1.0, 1.03))


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that is empty, a process that has asked nothing yet, and a machine that is free."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(autotune_cache, "_made", {})
    monkeypatch.setattr(autotune_cache, "_given", {})
    monkeypatch.setattr(machine, "_busy_s", lambda: 0.0)
    monkeypatch.setattr(autotune_cache, "_LOOK_S", 0.0)
    monkeypatch.setattr(machine, "_SHORTEST_S", 0.0)
    return store_path()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("packed", "plain", "chosen"), [(PACKED, PLAIN, True), (PLAIN, PACKED, False)])
def test_the_faster_kernel_wins_on_a_busy_machine(packed: Times, plain: Times, chosen: bool, seed: int) -> None:
    noisy = BusyMachine(packed, plain, seed=seed)
    verdict = autotune(noisy.turn, lambda fastest: first_wins(*fastest), otherwise=not chosen, clock=noisy.clock)
    assert verdict == TrialVerdict(chosen, settled=True)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("rough", "full", "chosen"), [(PACKED, PLAIN, True), (PACKED, (0.0011, 0.0012), False)])
def test_int8_has_to_be_clearly_faster_on_a_busy_machine(rough: Times, full: Times, chosen: bool, seed: int) -> None:
    noisy = BusyMachine(rough, full, seed=seed)
    verdict = autotune(noisy.turn, lambda fastest: rough_wins(*fastest), otherwise=not chosen, clock=noisy.clock)
    assert verdict == TrialVerdict(chosen, settled=True)


def test_a_draw_is_the_packed_kernels() -> None:
    assert first_wins((1.0, 1.04), (1.0, 1.0))
    assert not first_wins((1.0, 1.2), (1.0, 1.0))


@pytest.mark.parametrize(
    ("half", "chosen"), [((0.5, 0.5), True), ((0.5, 2.0), False), ((2.0, 0.5), False), ((1.0, 0.5), False)]
)
def test_bfloat16_has_to_win_at_every_row_count(half: Times, chosen: bool) -> None:
    assert always_faster(half, (1.0, 1.0)) is chosen


@pytest.mark.parametrize("known", [True, False])
def test_what_time_does_not_settle_is_left_to_what_is_known(known: bool) -> None:
    """No fastest pass is ever reached twice: each takes a tenth less than the last."""
    passed = iter(range(1000))

    def turn() -> Sequence[Times]:
        return [(0.9 ** next(passed),), (0.9 ** next(passed),)]

    ticks = iter(range(1000))
    verdict = autotune(turn, lambda fastest: True, known, clock=lambda: 0.01 * next(ticks))
    assert verdict == TrialVerdict(known, settled=False)
    assert next(ticks) < 210, "the time was up after two seconds"


@pytest.mark.parametrize("claimed", [True, False])
def test_undecided_bfloat16_is_left_to_what_the_cpu_claims(
    races: list[int], monkeypatch: pytest.MonkeyPatch, claimed: bool
) -> None:
    monkeypatch.setattr(kernels, "autotune", lambda turn, decide, otherwise: TrialVerdict(otherwise, settled=False))
    for claim in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, claim, lambda: claimed, raising=False)
    assert computes_bfloat16() is claimed


def test_both_kernels_take_turns_and_alternate_who_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def named(name: str) -> type[DenseLinear]:
        return type(name, (DenseLinear,), {"__call__": lambda self, x: order.append(type(self).__name__)})

    monkeypatch.setattr(autotuning, "_LAYERS", 1)
    monkeypatch.setattr(autotuning, "ROWS", (1,))
    contest = autotuning.KernelTrial([(named(name), torch.float32) for name in "AB"])
    assert [len(times) for times in contest.turn()] == [1, 1]
    contest.turn()
    assert sorted(order[:2]) == ["A", "B"] and order[2:] == order[1::-1]


def settled(answer: bool) -> Callable[[], TrialVerdict]:
    return lambda: TrialVerdict(answer, settled=True)


def unasked() -> TrialVerdict:
    raise AssertionError("a probe ran")


def ask(answer: Callable[[], TrialVerdict] = unasked, case: str = "float32") -> bool:
    """As a process does that has asked nothing before."""
    autotune_cache.forget()
    return choose("question", case, answer)


@pytest.mark.parametrize("answer", [True, False])
def test_a_stored_choice_is_used_without_a_probe(own_store: Path, answer: bool) -> None:
    assert ask(settled(answer)) is answer
    assert made() == {"question, float32": TunedChoice(answer, "measured now")}
    assert ask() is answer
    assert made() == {"question, float32": TunedChoice(answer, "as measured earlier")}


def test_another_dtype_torch_processor_or_thread_count_asks_anew(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(settled(True))
    assert ask(settled(False), "bfloat16") is False
    for place, name, value in (
        (torch, "__version__", "99.0"),
        (autotune_cache, "cpu_name", lambda: "Another CPU"),
        (torch, "get_num_threads", lambda: 77),
    ):
        with monkeypatch.context() as other:
            other.setattr(place, name, value)
            assert ask(settled(False)) is False
    assert ask() is True, "the first answer is still there"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '"kernels"',
        '{"format": 1}',
        '{"format": 1, "machines": []}',
        '{"format": 2, "machines": {}}',
        "\u00ff\ud83d".encode("utf-16", "surrogatepass"),
        "[" * 50_000,
    ],
)
def test_a_damaged_or_foreign_store_is_replaced(own_store: Path, text: str | bytes) -> None:
    own_store.parent.mkdir()
    own_store.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert ask(settled(True)) is True
    assert all("the file of earlier choices is damaged" in choice.origin for choice in made().values())
    assert ask() is True
    assert json.loads(own_store.read_text())["format"] == 1


@pytest.mark.parametrize("wrong", ['"yes"', "1", "null", "{}", "[]"])
def test_an_answer_that_is_none_is_asked_again(own_store: Path, wrong: str) -> None:
    ask(settled(True))
    own_store.write_text(own_store.read_text().replace("true", wrong))
    assert ask(settled(False)) is False
    assert ask() is False


def test_a_cache_folder_that_cannot_be_written_costs_a_probe(tmp_path: Path, own_store: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert ask(settled(True)) is True
    assert ask(settled(False)) is False


def test_what_was_not_settled_is_not_kept(own_store: Path) -> None:
    assert ask(lambda: TrialVerdict(True, settled=False)) is True
    assert "undecided" in made()["question, float32"].origin and not own_store.exists()
    assert ask(settled(False)) is False


def test_what_was_measured_beside_others_is_not_kept(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = count(0.0, 1e6)
    monkeypatch.setattr(machine, "_busy_s", lambda: next(busy))
    assert ask(settled(True)) is True
    assert "measured while other processes kept" in made()["question, float32"].origin and not own_store.exists()
    monkeypatch.setattr(machine, "_busy_s", lambda: 0.0)
    assert ask(settled(False)) is False


@pytest.fixture
def races(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of contenders of each race that was run; the first contender wins tenfold."""
    run: list[int] = []

    class Planted:
        def __init__(self, contenders: Sequence[object]) -> None:
            run.append(len(contenders))

        def turn(self) -> Sequence[Times]:
            return [(0.001, 0.001), (0.01, 0.01)]

    monkeypatch.setattr(kernels, "KernelTrial", Planted)
    monkeypatch.setattr("sampling.forward.kernels.int8.KernelTrial", Planted)
    return run


def test_a_warm_start_probes_nothing(races: list[int]) -> None:
    def start() -> tuple[object, ...]:
        autotune_cache.forget()
        races.clear()
        return kernel("cpu", torch.float32), computes_bfloat16(), pays(torch.float32), pays(torch.bfloat16)

    cold, probed = start(), len(races)
    assert probed >= 2
    assert start() == cold and not races


@needs_packed
def test_a_kernel_that_is_asked_for_is_used_and_never_probed(races: list[int]) -> None:
    for packed, kind in ((False, DenseLinear), (True, PackedLinear)):
        use_kernel("packed" if packed else "plain")
        assert kernel("cpu", torch.float32) is kind
        assert str(made()["packed kernel"]) == f"{'yes' if packed else 'no'}, as given"
    assert races == []
    use_kernel("auto")
    assert kernel("cpu", torch.float32) is PackedLinear and races == [2]
    with refused("kernel", "'pakced'", *KERNELS, error=UnknownName) as caught:
        load_pair(LoadOptions(kernel="pakced"))
    assert caught.value.near == "packed"
    assert kernel("cuda", torch.float32) is DenseLinear


def test_a_given_answer_of_int8_goes_before_a_probe(races: list[int]) -> None:
    use_kernel("plain")
    for answer in (True, False):
        with decided(answer):
            assert pays(torch.float32) is answer
    assert races == []
    with decided(None):
        assert pays(torch.float32) is True and races == [2]


@needs_packed
@pytest.mark.parametrize("name", [name for name in KERNELS if name != "own"])
def test_a_pair_says_which_kernel_it_computes_with(races: list[int], tmp_path: Path, name: str) -> None:
    folder = tiny.save_checkpoint(tmp_path / "llama", tiny.llama())
    pair = load_pair(LoadOptions(str(folder), str(folder), device="cpu", dtype="float32", kernel=name))
    chosen = "plain" if name == "plain" else "packed"
    assert pair.target_info.kernel == chosen and pair.drafter_info is not None and pair.drafter_info.kernel == chosen
    assert isinstance(pair.target.model.head, DenseLinear if name == "plain" else PackedLinear)  # type: ignore[attr-defined]


def test_packed_products_are_refused_where_there_are_none(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "packs", lambda dtype: False)
    options = LoadOptions(str(tmp_path), device="cpu", dtype="float32", kernel="packed")
    with refused("kernel", "'packed'", "float32", "cpu", "auto", "plain"):
        load_pair(options)
    with refused("kernel", "'packed'", "float32", "cuda"):
        kernels.refuse_kernel("packed", {torch.device("cuda"): torch.float32})
    with refused("kernel", "'own'", "float32", "cpu", "auto", "packed", "plain"):
        load_pair(replace(options, kernel="own"))  # no compiler is found in tests


def test_what_is_offered_is_what_can_be_chosen() -> None:
    assert tuple(kernels.KERNELS) == KERNELS


def test_questions_name_kernels_as_users_type_them(races: list[int]) -> None:
    """They are shown by /status and kept in manifests."""
    computes_bfloat16()
    pays(torch.float32)
    said = " ".join(made())
    assert "Linear" not in said and any(f"int8 drafts, float32 {name}" in said for name in KERNELS[1:])
