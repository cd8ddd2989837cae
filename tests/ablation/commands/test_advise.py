"""`infer.py advise`: what it chooses, what it expects, how it checks, and in which forms it says so."""

import io
import json
import math
import signal
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import infer
from ablation.advise.advice import Advice, advise, halves
from ablation.advise.candidates import CandidateDrafter, bases
from ablation.advise.choose import AdvisedChoice, ExpectedSpeedup, choose
from ablation.advise.sample import SampleRuns
from ablation.commands.shared.written import command_line, plan_text
from ablation.plan.choice import choose_runs
from ablation.plan.file import read_experiment
from ablation.plan.grid import Configuration
from ablation.plan.overrides import Overrides
from ablation.plan.prompts.file import Prompt
from egag.cost_model import CostModel
from egag.rollback_price import NOTHING_TAKEN, RollbackPrice, TakenBack
from engines.speculative_config import parse_speculative_config, written_config
from sampling.forward.runner import ModelRunner
from sampling.logits_probe import LogitsProbe
from sampling.measure.replay.walk import depth
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.ablation.conftest import objects, write_lines
from tests.tiny import tiny_llama, tiny_pair
from utils.events import Event, Round

CHEAP = CostModel(((1, 0.010), (17, 0.012)), first_s=0.001, step_s=0.0005, rest_s=0.0001)
DEAR = CostModel(((1, 0.010), (17, 0.170)), first_s=0.05, step_s=0.05, rest_s=0.0001)
WORDS = ("a b a b a", "one two three", "x y z x y", "hello", "1 2 3 1 2", "so it goes")


class Priced(PairEngine):
    """An engine whose rounds take what a price says, on any machine."""

    def __init__(self, pair: Pair, price: CostModel) -> None:
        super().__init__(pair)
        self.times, self.owed = price, NOTHING_TAKEN

    def stream(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], run: str | None = None
    ) -> Iterator[Event]:
        return map(self._timed, super().stream(name, values, prompt, run))

    def walked(
        self,
        name: str,
        values: Mapping[str, Any],
        prompt: Sequence[int],
        most: int,
        raw: LogitsProbe,
        run: str | None = None,
    ) -> Iterator[Event]:
        return map(self._timed, super().walked(name, values, prompt, most, raw, run))

    def _timed(self, event: Event) -> Event:
        if not isinstance(event, Round):
            return event
        count, times = len(event.drafts), self.times
        draft_s = times.draft_s(depth(event.parents, count))
        verify_s = times.verify_s(count)
        if times.rollback:
            taken = self.owed if event.number else NOTHING_TAKEN
            self.owed, verify_s = TakenBack.of_round(event), verify_s + times.rollback_s(taken)
            event = replace(event, reread=int(taken.reread))
        return replace(event, draft_s=draft_s, verify_s=verify_s, other_s=times.rest_s)


def common(length: int = 16) -> Settings:
    settings = Settings()
    settings.assign("length", str(length))
    return settings


def prompts(count: int = 6) -> list[Prompt]:
    return [Prompt(place, (text,)) for place, text in enumerate(WORDS[:count])]


def untold(done: int, total: int, note: str) -> None:
    pass


def advised(price: CostModel, count: int = 6, pair: Pair | None = None, tell: Callable[..., None] = untold) -> Advice:
    return advise(Priced(pair or tiny_pair(), price), prompts(count), common(), 5.0, tell)


@pytest.fixture
def few_drafters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that drafts, and n-grams: enough where it is told how prompts are played, and not what with."""

    def few(pair: Pair, common: Mapping[str, Any]) -> list[CandidateDrafter]:
        return [base for base in bases(pair, common) if base.method in ("speculative", "ngram")]

    monkeypatch.setattr("ablation.advise.sample.bases", few)
    monkeypatch.setattr("ablation.advise.sample.run_as_they_are", lambda pair, common: [])


def test_a_choice_is_expected_to_bring_less_than_it_seems_to() -> None:
    """Two candidates that are equal but for luck: whichever wins on four prompts, its luck is taken off."""
    logs = {"a": [0.5, -0.5, 0.5, -0.4], "b": [-0.5, 0.5, -0.4, 0.5]}
    found, alone = choose(logs), choose({"a": logs["a"]})
    assert found is not None and alone is not None and found.name == "a"
    assert found.expected.ratio < alone.expected.ratio == pytest.approx(math.exp(0.025))
    assert found.expected.low < found.expected.ratio < found.expected.high and not found.expected.pays


def test_a_clear_winner_is_expected_to_bring_what_it_brought() -> None:
    found = choose({"a": [0.69, 0.70, 0.69, 0.70], "b": [0.1, 0.0, 0.1, 0.0]})
    assert (
        found is not None and found.expected.ratio == pytest.approx(math.exp(0.695), rel=1e-3) and found.expected.pays
    )
    assert found.expected.prompts == 4 and found.expected.low == pytest.approx(
        math.exp(0.695 - 3.182 * 0.01 / 12**0.5), rel=1e-4
    )


def test_one_prompt_has_no_interval_and_none_no_choice() -> None:
    one = choose({"a": [0.1], "b": [0.2]})
    assert one is not None and one.name == "b" and math.isnan(one.expected.low) and one.expected.pays
    assert str(one.expected) == "1.22 on 1 prompt"
    assert choose({}) is None and choose({"a": []}) is None


def test_halves_are_of_all_kinds_and_share_nothing() -> None:
    played = [Prompt(place, ("a",), "ab"[place // 4]) for place in range(8)]
    sample, held_out = halves(played)
    assert {one.id for one in sample} == {0, 2, 4, 6} and {one.id for one in held_out} == {1, 3, 5, 7}
    assert {one.task for one in sample[:2]} == {"a", "b"}


def test_a_drafter_that_is_the_target_is_recommended_and_checked() -> None:
    """It accepts everything and costs little: long drafts, and the check brings what was expected."""
    model = tiny_llama()
    own = replace(tiny_pair(), target=ModelRunner(model), drafter=ModelRunner(model))
    found = advised(CHEAP, pair=own)
    assert found.speculate and found.best is not None and found.measured is not None
    assert found.final.method == "speculative" and not found.contradicted
    assert found.best.expected.ratio > 3.0 and found.measured.low > 2.0 and found.measured.prompts == 3
    assert found.measured.ratio == pytest.approx(found.best.expected.ratio, rel=0.3)
    ratios = [ratio for _, ratio in found.candidates]
    assert ratios == sorted(ratios, reverse=True) and found.candidates[0][0].name == found.best.name


def test_worthless_drafts_are_not_recommended() -> None:
    """A draft costs five forwards of the target and each row one more: no length pays, on either half."""
    found = advised(DEAR)
    assert not found.speculate and found.final == Configuration("target")
    assert found.best is not None and found.best.expected.ratio <= 1.0 + 1e-9, "a rule that knows costs drafts nothing"
    assert found.measured is not None and not found.measured.pays


@pytest.mark.usefixtures("few_drafters")
def test_what_taking_tokens_back_costs_is_foreseen_and_said() -> None:
    """Drafts that a crop takes back for nothing pay; with 30 ms and 5 ms a token for each rejection they do not."""
    free, dear = advised(CHEAP), advised(replace(CHEAP, rollback=RollbackPrice(0.030, 0.005)))
    said = [[note for note in one.notes if "taking tokens back costs" in note] for one in (free, dear)]
    assert said[0] == [] and "ms a round here" in said[1][0]
    assert free.best is not None and dear.best is not None
    assert free.best.expected.ratio > 1.2 > 1.0 + 1e-9 > dear.best.expected.ratio and not dear.speculate
    speedups = [{run.name: ratio for run, ratio in found.candidates}["ngram gamma=2"] for found in (free, dear)]
    assert speedups[1] < 0.8 * speedups[0]


@pytest.mark.usefixtures("few_drafters")
def test_a_check_that_contradicts_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The expectation is put above 1 by hand: what is measured on the other half is not."""
    seems = AdvisedChoice("ngram gamma=8", ExpectedSpeedup(1.5, 1.4, 1.6, 3))
    monkeypatch.setattr("ablation.advise.advice.choose", lambda logs: choose(logs) if len(logs) == 1 else seems)
    found = advised(DEAR)
    assert found.best == seems and found.contradicted and found.final == Configuration("target")
    assert any("contradicts" in note for note in found.notes)


class Listening(Priced):
    """Writes down what it is asked to tokenise, and has no memory for one prompt."""

    heard: list[tuple[tuple[str, ...], str | None]]

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        self.heard.append((tuple(turns), system))
        if turns[-1] == "too long":
            raise RuntimeError("out of memory")
        return super().tokenise(turns, chat, system, variables)


@pytest.mark.usefixtures("few_drafters")
def test_a_conversation_is_asked_with_all_that_stands_before_it() -> None:
    engine = Listening(tiny_pair(), CHEAP)
    engine.heard = []
    spoken = Prompt("a", ("and again",), system="be short", given=(("hello", "hi"),))
    found = advise(engine, [spoken, replace(spoken, id="b")], {**Settings(), "length": 12}, 1.0, untold)
    assert found.sampled == 1 and found.measured is not None
    assert {one for one in engine.heard if "again" in one[0][-1]} == {(("hello", "hi", "and again"), "be short")}


@pytest.mark.usefixtures("few_drafters")
def test_a_prompt_that_fails_costs_itself_alone() -> None:
    engine = Listening(tiny_pair(), CHEAP)
    engine.heard = []
    several = prompts(6)
    several[2] = replace(several[2], turns=("too long",))
    several[3] = replace(several[3], turns=("too long",))
    found = advise(engine, several, common(), 1.0, untold)
    assert found.sampled == 2 and found.measured is not None and found.measured.prompts == 2
    assert sum("out of memory" in note for note in found.notes) == 2
    assert any("2 prompts checked it" in note for note in found.notes)


@pytest.mark.usefixtures("few_drafters")
def test_answers_of_two_tokens_stand_among_longer_ones() -> None:
    """No rule can be replayed on them; lengths can, on all."""
    several = [replace(one, max_new_tokens=2 if place == 2 else None) for place, one in enumerate(prompts(6))]
    found = advise(Priced(tiny_pair(), CHEAP), several, common(), 1.0, untold)
    assert found.sampled == 3 and found.candidates


def test_all_the_time_there_is_gives_the_whole_length() -> None:
    assert SampleRuns(Priced(tiny_pair(), CHEAP), common()).length_for(math.inf, 0.01, 4) == 16


@pytest.mark.usefixtures("few_drafters")
def test_one_prompt_is_too_few_to_check() -> None:
    found = advised(CHEAP, count=1)
    assert found.sampled == 1 and found.measured is None and found.best is not None
    assert any("too few" in note for note in found.notes) and any("no second prompt" in note for note in found.notes)


def test_without_a_drafter_copies_are_what_there_is() -> None:
    found = advised(CHEAP, pair=replace(tiny_pair(), drafter=None, drafter_info=None))
    methods = {one.method for one, _ in found.candidates}
    assert methods and methods <= {"suffix", "prompt_lookup", "ngram", "recycling", "auto"} and found.sampled == 3


def test_rules_are_candidates_and_a_replay_is_what_a_run_would_be() -> None:
    """Under a price that every round follows, what is predicted of a candidate is what running it measures."""
    engine = Priced(tiny_pair(), CHEAP)
    runs = SampleRuns(engine, common())
    ids = engine.tokenise([WORDS[0]], True)
    assert runs.play(ids, 16, lambda done: False)
    predicted = runs.logs()
    assert any("draft_rule=egag" in name for name in predicted)
    plain = CHEAP.seconds(0)
    for name in (
        "speculative gamma=3",
        "speculative draft_rule=heuristic",
        "ngram gamma=2",
        "suffix num_speculative_tokens=10",
    ):
        one = runs.candidates[name]
        rounds = [event for event in engine.stream(one.method, {**common(), **dict(one.parameters)}, ids, "own")
                  if isinstance(event, Round)]  # fmt: skip
        seconds = sum(one.draft_s + one.verify_s + one.other_s for one in rounds)
        assert math.exp(predicted[name][0]) == pytest.approx(plain * 16 / seconds, rel=0.06), name


@pytest.mark.usefixtures("few_drafters")
@pytest.mark.parametrize("during", ["measuring", "checking"])
def test_ctrl_c_keeps_what_there_is(during: str) -> None:
    """It comes while the second prompt is played; what was finished is advised from."""

    def tell(done: int, total: int, note: str) -> None:
        if note.startswith(during) and done == 1:
            signal.raise_signal(signal.SIGINT)

    found = advised(CHEAP, tell=tell)
    assert found.stopped and found.best is not None
    assert found.sampled == (1 if during == "measuring" else 3)
    assert (found.measured is None) == (during == "measuring")


def test_the_end_of_the_time_ends_it_once_there_is_something() -> None:
    found = advise(Priced(tiny_pair(), CHEAP), prompts(), common(), 1e-6, untold)
    assert found.sampled == 1 and found.best is not None and found.measured is None
    assert len({one.method for one, _ in found.candidates} - {"auto"}) == 1


EXPRESSED = [
    ("mtp", {"gamma": 2}, {"method": "mtp", "num_speculative_tokens": 2}),
    ("speculative", {"gamma": 5}, {"method": "draft_model", "num_speculative_tokens": 5}),
    ("prompt_lookup", {"num_speculative_tokens": 4}, {"method": "ngram", "num_speculative_tokens": 4}),
    ("suffix", {"num_speculative_tokens": 6}, {"method": "suffix", "num_speculative_tokens": 6}),
    ("target", {}, {"method": "naive"}),
    (
        "extended",
        {"hybrid_model": "mtp", "num_model_steps": 2, "num_speculative_tokens": 8},
        {"method": "mtp", "mtp_strategy": "with_ngram", "num_model_steps": 2, "num_speculative_tokens": 8},
    ),
]


@pytest.mark.parametrize(("method", "values", "entry"), EXPRESSED)
def test_servers_json_is_read_back(method: str, values: dict[str, Any], entry: dict[str, Any]) -> None:
    assert written_config(method, values, {}) == entry
    config = parse_speculative_config(json.dumps(entry))
    assert config.methods[-1] == method and dict(config.assignments) == {k: str(v) for k, v in values.items()}


def test_a_drafter_that_was_named_is_named_for_servers() -> None:
    entry = written_config("speculative", {"gamma": 2}, {"drafter": "small", "heads": "h"})
    assert entry is not None and entry["model"] == "small"
    assert parse_speculative_config(json.dumps(entry)).models == {"drafter": "small"}


@pytest.mark.parametrize(
    ("method", "values"),
    [("mtp", {"draft_rule": "egag"}), ("suffix_or_model", {"hybrid_model": "mtp"}), ("ngram", {"gamma": 2}),
     ("mtp", {"draft_tree": "dynamic", "gamma": 3, "tree_tokens": 8}), ("extended", {"num_speculative_tokens": 4})],
)  # fmt: skip
def test_what_servers_cannot_say_is_not_said(method: str, values: dict[str, Any]) -> None:
    assert written_config(method, values, {}) is None


def test_the_command_line_and_the_plan_ask_for_the_same(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "p.jsonl", {"prompt": "a"})
    (one,) = choose_runs("ngram gamma=2 set_ngramstorage='onelevel 4'", Settings())
    models = {"dtype": "float32", "trust_remote_code": True, "drafter": "a b"}
    words = command_line(one, str(file), models, {"length": "32"})
    assert words.startswith(
        "uv run infer.py run --methods target,ngram --set 'set_ngramstorage=onelevel 4' --set gamma=2"
    )
    assert words.endswith(f"--prompts {file} --length 32 --dtype float32 --trust-remote-code --drafter 'a b'")
    text = plan_text(one, [str(file)], models, {"length": "32"})
    tomllib.loads(text)
    plan = tmp_path / "p.toml"
    plan.write_text(text)
    experiment = read_experiment(str(plan), Overrides())
    assert one in experiment.plan.configurations and experiment.plan.values["length"] == 32
    assert dict(experiment.pair) == models


def call(*words: object) -> Any:
    return CliRunner().invoke(infer.app, ["advise", *map(str, words)])


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablation.commands.advise.load_chosen", lambda given: tiny_pair())


def test_the_command_advises_in_words_and_in_json(loaded: None, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "p.jsonl", *({"prompt": text} for text in WORDS[:4]))
    result = call("--prompts", file, "--length", 12, "--json")
    assert result.exit_code == 0, result.output
    (found,) = objects(result.stdout)
    assert found["sampled"] == 2 and found["expected"]["prompts"] == 2
    assert found["speculate"] == (found["configuration"] != "target")
    assert found["command"].startswith("uv run infer.py run --methods target") and "[[methods]]" in found["plan"]
    if found["speculative_config"]:
        assert parse_speculative_config(found["speculative_config"])
    words = call("--prompts", file, "--length", 12)
    assert words.exit_code == 0 and "uv run infer.py run --methods target" in words.stdout
    assert "--speculative-config" in words.stdout or "servers have no words" in words.stdout


@pytest.mark.parametrize(
    ("lines", "said"),
    [(['{"prompt": 3}'], "prompt"), (["nonsense"], "line 1"), ([], "holds no prompt")],
)
def test_a_nonsense_file_is_refused_before_a_model_is_loaded(lines: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    result = call("--prompts", tmp_path / "p.jsonl")
    assert result.exit_code == 2 and said in result.stderr


def test_wrong_calls_are_refused() -> None:
    assert "--prompts: nothing given" in call().stderr
    assert "unknown prompt set" in call("--prompts", "dialogues").stderr
    assert "--minutes" in call("--prompts", "code", "--minutes", "-1").stderr


def test_prompts_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    long = [Prompt("long", ("x " * 700,)), Prompt("short", ("a",))]
    with redirect_stderr(io.StringIO()):
        found = advise(Priced(tiny_pair(), CHEAP), long, common(), 5.0, untold)
    assert found.sampled == 0 and any("long is left out" in note for note in found.notes)
