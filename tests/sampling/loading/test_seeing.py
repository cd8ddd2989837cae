"""Checkpoints that see or hear: said in a note, and what reads images or sound takes no memory."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForMultimodalLM, PreTrainedModel

from sampling.forward.models.adapter import TransformersModel
from sampling.forward.numerics_check import probe_tokens
from sampling.loading.adapt import adapted, let_towers_go
from sampling.loading.families.configs import DECODERS, ModelFamily
from sampling.loading.families.judge import random_model
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.loading.refusals.probe import own_logits
from tests.tiny import TOKENS, llama, save_checkpoint, tiny_tokenizer

SEEING = {str(family): family for family in DECODERS if family.text is not None}
_WHOLE = [name for name in SEEING if name not in ("llama4", "qwen3_5")]  # which transformers reads without towers
_IDS = torch.tensor([[5, 9, 17, 9, 5, 40]])


def logits_of(model: PreTrainedModel) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=_IDS).logits
    return logits


def parts(model: nn.Module) -> set[str]:
    """The modules that hold weights, by the first two parts of their names."""
    return {".".join(name.split(".")[:2]) for name, _ in model.named_parameters()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _WHOLE)
def test_towers_are_gone_and_texts_read_as_before(name: str) -> None:
    model = random_model(SEEING[name].config(), 0)
    whole = copy.deepcopy(model)
    assert len(parts(whole)) > 2, "there is something to let go"
    tokens = probe_tokens(model.config)
    let_towers_go(name, model, tokens, own_logits(name, model, tokens))
    assert torch.equal(logits_of(model), logits_of(whole))
    assert parts(model) == {"model.language_model", "lm_head.weight"} & parts(whole)
    text = sum(weight.numel() for key, weight in whole.named_parameters() if "vis" not in key and "modal" not in key)
    assert sum(weight.numel() for weight in model.parameters()) == text


@pytest.mark.filterwarnings("ignore")
def test_loading_lets_them_go() -> None:
    decoder = adapted("tiny", random_model(SEEING["gemma3"].config(), 0))
    assert isinstance(decoder, TransformersModel)
    assert not any("vision" in name or "projector" in name for name, _ in decoder.hf.named_modules())


class Needed(nn.Module):
    """The text model's own use of what is called a tower: it changes what is said."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *arguments: object, **named: object) -> object:
        made = self.inner(*arguments, **named)
        return made if self.vision_model is None else made + self.vision_model.weight


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fails", [False, True])
def test_a_tower_that_texts_need_stays(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(SEEING["qwen2_vl"].config(), 0)
    model.lm_head = Needed(model.lm_head)
    model.lm_head.vision_model = nn.Linear(128, 1, bias=False)
    if fails:
        monkeypatch.setattr(Needed, "forward", lambda self, x: self.inner(x) + self.vision_model.weight)
    tokens, before = probe_tokens(model.config), parts(model)
    said = own_logits("tiny", model, tokens)
    let_towers_go("tiny", model, tokens, said)
    assert parts(model) == before and torch.equal(own_logits("tiny", model, tokens), said)


def seeing(folder: Path, name: str, **changes: object) -> str:
    """A checkpoint of a family that sees, with a tokenizer, as `save_pretrained` writes it."""
    family = SEEING[name]
    assert family.text is not None
    text = ModelFamily(family.text.model_type, changes={**family.text.changes, "vocab_size": TOKENS})
    whole = ModelFamily(name, changes={**family.changes, **changes}, text=text)
    AutoModelForMultimodalLM.from_config(whole.config(), dtype=torch.float32).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.mark.filterwarnings("ignore")
def test_a_family_that_transformers_reads_without_towers_is_told_of_once(tmp_path: Path) -> None:
    pair = load_pair(LoadOptions(target=seeing(tmp_path / "sees", "llama4"), device="cpu", dtype="float32"))
    assert sum("sees also reads images" in note for note in pair.notes) == 1
    assert not any("no place for" in note for note in pair.notes)


@pytest.mark.filterwarnings("ignore")
def test_a_note_says_so(tmp_path: Path) -> None:
    pair = load_pair(LoadOptions(target=seeing(tmp_path / "sees", "qwen2_5_vl"), device="cpu", dtype="float32"))
    assert "sees also reads images; prompts here are text, so only its text model is used." in pair.notes
    assert isinstance(pair.target.model, TransformersModel)
    assert not any("visual" in key for key, _ in pair.target.model.hf.named_parameters())
    assert pair.target_info.name == "sees" and not any("no place for" in note for note in pair.notes)
    plain = load_pair(LoadOptions(target=str(save_checkpoint(tmp_path / "reads", llama())), device="cpu"))
    assert not any("also reads" in note for note in plain.notes)
