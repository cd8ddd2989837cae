"""What users read where something is refused: the sentences are in `messages.txt`, a line each, and nowhere else.

Who improves a sentence changes its line there. `uv run python -m tests.test_messages` writes the file anew.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DeepseekV4Config, Gemma3Config

from ablation.plan.choice import choose_names
from ablation.plan.prompts.file import read_prompts
from ablation.plan.shard import Shard
from ablation.plan.slo import Slo
from ablation.run.results_file import check_output
from ablation.run.workers import read_devices
from engines.spec import read_launch
from ngram_assisted import NGramStorage
from repl.files import script
from sampling.api.custom_generate import speculative
from sampling.forward.kernels.formats import refuse_format
from sampling.handover import other_text
from sampling.loading.options import LoadOptions
from sampling.loading.origin import resolve
from sampling.loading.pairs import load_pair
from sampling.loading.refusals.checks import common_vocabulary, refuse_config, refuse_two_kinds
from sampling.loading.refusals.contents import reads_more
from sampling.methods.chat_template import TemplateVariables
from sampling.methods.settings import Settings
from sampling.pair import pair_messages
from sampling.prefilled.wire import Address
from utils.device.graphed import CaptureBroken
from utils.errors import NoDistribution, UserError, checked_text
from utils.files import checked_name

MESSAGES = Path(__file__).with_name("messages.txt")


def setting(name: str, value: str) -> Callable[[], object]:
    return lambda: Settings().assign(name, value)


def loaded(**options: Any) -> Callable[[], object]:
    return lambda: load_pair(LoadOptions("a target", **options))


REFUSED: Mapping[str, Callable[[], object]] = {
    "integer": setting("gamma", "-1"),
    "number": setting("min_token_prob", "2"),
    "on or off": setting("cache", "maybe"),
    "one of names": setting("verify_strategy", "tipical"),
    "object of variables": setting("chat_template_kwargs", "[1]"),
    "no switch for thinking": lambda: TemplateVariables("off").chosen("tiny", ()),
    "variable that no template reads": lambda: TemplateVariables(named={"enable": 1}).chosen(
        "tiny", ["enable_thinking"]
    ),
    "variables that contradict": lambda: TemplateVariables("on", {"thinking": False}).chosen("tiny", ["thinking"]),
    "text alone": lambda: reads_more("tiny", Gemma3Config()),
    "lower above upper": setting("egag_gamma_min", "9"),
    "processor without a value": setting("processor", "nucleus 0.8"),
    "processor with too many": setting("processor", "greedy 1 2"),
    "unknown processor": setting("processor", "nuclus 1 1"),
    "method twice": lambda: choose_names("mtp, mtp"),
    "half a character": lambda: checked_text("half \udcff", "--prompt"),
    "name for files": lambda: checked_name("../a", "name"),
    "device": loaded(device="cpux"),
    "dtype": loaded(dtype="bfloat"),
    "kernel": loaded(kernel="fast"),
    "compile": loaded(compile="often"),
    "target that is nowhere": lambda: resolve("no/such/model.gguf", lambda *_: None),
    "unknown layers": lambda: refuse_config("it", DeepseekV4Config()),
    "two kinds": lambda: refuse_two_kinds(("t5", "llama"), (True, False)),
    "two vocabularies": lambda: common_vocabulary(("a", "b"), (50, 40), 41),
    "format without products": lambda: refuse_format("int4", torch.device("meta"), "target_weights int4"),
    "logits": lambda: NoDistribution("model"),
    "order of n-grams": lambda: NGramStorage(1),
    "token beyond the vocabulary": lambda: NGramStorage(2, 10).update([1], 10),
    "text for ids": lambda: NGramStorage(2).initialize("a b"),  # type: ignore[arg-type]
    "no model": lambda: speculative("gpt2"),
    "shard": lambda: Shard.parse("3/2"),
    "no shard": lambda: Shard.parse("3"),
    "devices": lambda: read_devices("cuda"),
    "device twice": lambda: read_devices("cuda:0,cuda:0"),
    "slo": lambda: Slo.parse("ttft"),
    "results in no .csv": lambda: check_output(Path("new.txt"), False, False),
    "results in no folder": lambda: check_output(Path("no/new.csv"), False, False),
    "prompts that are not there": lambda: read_prompts(Path("none.jsonl")),
    "script that is not there": lambda: script.read(Path("none.txt")),
    "launch": lambda: read_launch("vllm serve"),
    "address": lambda: Address.parse("a:70000", "--from"),
    "state of another prompt": lambda: other_text([1, 2, 3], [1, 5]),
    "no drafter model": lambda: pair_messages.NO_DRAFTER_MODEL,
    "no int8 drafter": lambda: pair_messages.NO_INT8_DRAFTER,
    "no head": lambda: pair_messages.no_head("eagle", "tiny", "", encoder=False),
    "no head of the drafter": lambda: pair_messages.no_head("eagle", "tiny", "big", encoder=False),
    "no head of an encoder": lambda: pair_messages.no_head("eagle", "t5", "", encoder=True),
    "no trees": lambda: pair_messages.no_trees("suffix", "tiny"),
    "one tokenizer": lambda: pair_messages.one_tokenizer("tli"),
    "other tokenizer": lambda: pair_messages.other_tokenizer("drafter", alone=True, drafter="small"),
    "rounded already": lambda: pair_messages.rounded_already("target_weights int4", "tiny", "int8"),
    "cut up": lambda: pair_messages.cut_up("target_weights int8", "tiny", 2),
    "capture": lambda: CaptureBroken("out of resources", "2.11.0"),
    "own layers": lambda: pair_messages.own_layers("target_weights int8", "gpt2"),
}


def message(name: str) -> str:
    """What is said; some of the product return it and some raise it."""
    try:
        return str(REFUSED[name]())
    except UserError as error:
        return str(error)


def known() -> dict[str, str]:
    return dict(line.split(" | ", 1) for line in MESSAGES.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_what_was_given_and_what_is_expected(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message(name) == known()[name]


def test_no_line_is_left_over() -> None:
    assert [*known()] == [*REFUSED]


if __name__ == "__main__":
    MESSAGES.write_text("".join(f"{name} | {message(name)}\n" for name in REFUSED), encoding="utf-8")
