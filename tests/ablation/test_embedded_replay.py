"""A full trace of the embedded default: replayed rounds are those that were run, and so are their seconds."""

from pathlib import Path

import pytest

from ablation.plan.choice import plain_plan
from ablation.plan.grid import Configuration
from ablation.plan.prompts.file import Prompt
from ablation.results.traces.generations import read_generations
from ablation.results.traces.replay import ReplayRequest, Replays
from ablation.run.results_file import Files
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.methods.settings import PARAMETERS, Settings
from sampling.pair.pair_engine import PairEngine
from tests.ablation.playing import play

SETTINGS = (
    ("target", {}),
    ("speculative", {"gamma": "2"}),
    ("egag", {}),
    ("mtp", {"draft_rule": "confidence", "confidence_threshold": "0.3", "confidence_gamma_max": "6"}),
    ("mtp", {"draft_tree": "dynamic", "tree_tokens": "6", "gamma": "3"}),
    ("prompt_lookup", {}),
    ("suffix", {}),
)


def test_recorded_settings_of_the_embedded_pair_are_replayed(tmp_path: Path) -> None:
    several = tuple(
        Configuration(name, tuple((key, PARAMETERS[key].parse(text)) for key, text in values.items()))
        for name, values in SETTINGS
    )
    prompt = Prompt("p", ("Repeat: the red fox, the blue fox, the red fox.",))
    plan = plain_plan((prompt,), several, {**Settings(), "length": 24}, repeats=1)
    pair = load_pair(LoadOptions(device="cpu", dtype="float32", compile="off"))
    play(tmp_path / "r.csv", plan, PairEngine(pair), trace="full")
    replays = Replays(read_generations(Files(tmp_path / "r.csv").trace))
    assert len(replays.generations) == len(SETTINGS)
    for one in replays.generations:
        again, was = replays.replay(one, ReplayRequest()), one.record
        for name in ("rounds", "accepted", "drafted", "tokens_by_round", "output_ids"):
            assert getattr(again, name) == getattr(was, name), (was.configuration, name)
        assert again.decode_s == pytest.approx(was.decode_s, rel=0.02)
