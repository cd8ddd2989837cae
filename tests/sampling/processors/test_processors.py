"""Cut-offs and processors of the text are transformers' own, row by row along each path."""

from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner
from sampling.loop import decode
from sampling.methods.choices import make_processor
from sampling.methods.settings import PARAMETERS
from sampling.processors.with_text import WithText, changes_of, rows_of
from sampling.proposal import Proposal
from tests.processors import theirs
from tests.refusals import refused
from tests.tiny import llama, random_model
from utils.events import Round
from utils.logits_processor import LogitsProcessor

CUTS = [
    "min_p=0.1",
    "min_p=0.9",
    "typical_p=0.6",
    "typical_p=1e-9",
    "epsilon=0.02",
    "eta=0.02",
    "eta=0.3",
    "top_n_sigma=1",
]
TEXTS = [
    "logit_bias=3:-4/5:2.5", "repetition=1.3", "repetition=0.7", "frequency=0.6", "presence=-0.8", "no_repeat_ngram=1",
    "no_repeat_ngram=2", "no_repeat_ngram=3", "banned=2/9", "min_tokens=3", "min_tokens=40", "forced=4/4/1",
]  # fmt: skip
MANY = "repetition=1.2 frequency=0.3 presence=0.2 no_repeat_ngram=3 min_p=0.02 logit_bias=3:1 banned=2"
ALL = f"topknucleus 0.8 9 0.95 {MANY}"
STOP = (0, 7)


def made(text: str) -> LogitsProcessor:
    return make_processor(PARAMETERS["processor"].parse(text))


def rows(count: int, seed: int = 0, vocabulary: int = 12) -> torch.Tensor:
    return torch.randn(count, vocabulary, generator=torch.Generator().manual_seed(seed)).double() * 2


@pytest.mark.parametrize("base", ["multinomial 0.7", "nucleus 1.3 0.9", "topk 1 5", "topknucleus 0.8 6 0.9"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_off_is_that_of_transformers(base: str, cut: str) -> None:
    for row in rows(20).split(1):
        assert torch.allclose(made(f"{base} {cut}")(row).double(), theirs(f"{base} {cut}", row, (), 0), atol=1e-6)


def test_cut_offs_follow_each_other() -> None:
    text = "nucleus 1 0.97 eta=0.1 top_n_sigma=2 min_p=0.01 epsilon=0.01 typical_p=0.9"
    for row in rows(20).split(1):
        assert torch.allclose(made(text)(row).double(), theirs(text, row, (), 0), atol=1e-6)


def test_equal_logits_all_stay() -> None:
    for cut in CUTS:
        probs = made(f"multinomial 1 {cut}")(torch.zeros(1, 4))
        assert (probs.sum() == 1 and (probs > 0).all()) or cut.startswith("typical_p=1e-9")


@pytest.mark.parametrize("options", [*TEXTS, MANY])
@pytest.mark.parametrize(
    ("drafts", "parents"), [((), None), ((3, 3, 5, 3), None), ((3, 5, 3, 9, 3, 3), (-1, -1, 0, 0, 2, 1))]
)
def test_each_row_is_changed_by_its_own_path(options: str, drafts: tuple[int, ...], parents: Any) -> None:
    """The root's row, a draft's behind the drafts before it, a node's behind its ancestors; a text that grows."""
    text, stop = f"multinomial 1 {options}", STOP
    processor = made(text)
    prompt, output = [3, 8, 5, 3, 8], [5, 3, 9, 3, 8]
    for committed in (0, 1, 5):
        tokens = [*prompt, *output[:committed]]
        changes = changes_of(processor, prompt, 12, torch.device("cpu"), stop)
        assert changes is not None
        changes.of_round(prompt, Proposal.empty(torch.device("cpu")), rows(1))
        proposal = Proposal(torch.tensor(drafts, dtype=torch.long), parents)
        logits = rows(len(drafts) + 1, committed)
        kept = logits.clone()
        found = rows_of(processor)(changes.of_round(tokens, proposal, logits)).double()
        assert torch.equal(logits, kept), "the target's own logits stay as they are"
        for row, path in enumerate(paths(proposal)):
            expected = theirs(text, logits[row : row + 1], [*tokens, *path], len(prompt), stop)
            assert torch.allclose(found[row : row + 1], expected, atol=1e-6), (committed, row)


def paths(proposal: Proposal) -> list[list[int]]:
    """The drafts in front of each row, by walking up."""
    found: list[list[int]] = [[]]
    for token, parent in zip(proposal.tokens.tolist(), proposal.parent_rows, strict=True):
        found.append([*found[parent + 1], token])
    return found


def test_a_drafter_reads_its_logits_by_its_own_drafts() -> None:
    prompt, text = [3, 8, 5], "multinomial 1 repetition=1.5 no_repeat_ngram=2"
    changes = changes_of(made(text), prompt, 12, torch.device("cpu"), STOP)
    assert changes is not None
    drafts, on_path = torch.tensor([8, 5, 8]), torch.tensor([[True, False, True], [True, True, False]])
    found = rows_of(made(text))(changes.of_drafts(prompt, drafts, on_path, rows(2))).double()
    for row, path in enumerate(([8, 8], [8, 5])):
        assert torch.allclose(
            found[row : row + 1], theirs(text, rows(2)[row : row + 1], [*prompt, *path], 3), atol=1e-6
        )


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.4},
        {"no_repeat_ngram_size": 2},
        {"sequence_bias": {(5,): 4.0, (9,): -8.0}},
        {"suppress_tokens": [4, 6, 8]},
        {"min_new_tokens": 12},
        {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "suppress_tokens": [1]},
    ],
)
def test_greedy_ids_are_those_of_generate(options: dict[str, Any]) -> None:
    from egag.length_rule import FixedGamma
    from sampling.drafters.model import ModelDrafter
    from sampling.verify.rejection import RejectionVerifier

    model, small = (random_model(llama(vocab_size=24), seed) for seed in (3, 4))
    ids = [5, 9, 17, 9, 5, 9]
    config = GenerationConfig(pad_token_id=0, eos_token_id=[7, 11], max_new_tokens=24, do_sample=False, **options)
    generated = model.generate(torch.tensor([ids]), generation_config=config)[0, len(ids) :].tolist()
    target, drafter = ModelRunner(lean.from_transformers(model)), ModelRunner(lean.from_transformers(small))
    events = list(
        decode(
            target,
            ModelDrafter(drafter),
            FixedGamma(4),
            RejectionVerifier(),
            made(f"greedy {ours(options)}"),
            ids,
            max_new_tokens=24,
            stop=(7, 11),
            seed=0,
        )
    )
    assert [token for event in events if isinstance(event, Round) for token in event.emitted] == generated


def ours(options: dict[str, Any]) -> str:
    names = {
        "repetition_penalty": "repetition",
        "no_repeat_ngram_size": "no_repeat_ngram",
        "min_new_tokens": "min_tokens",
    }
    words = [f"{names[name]}={value}" for name, value in options.items() if name in names]
    if bias := options.get("sequence_bias"):
        words.append("logit_bias=" + "/".join(f"{token}:{value:g}" for (token,), value in bias.items()))
    if banned := options.get("suppress_tokens"):
        words.append("banned=" + "/".join(map(str, banned)))
    return " ".join(words)


def test_a_token_outside_the_vocabulary_is_refused_before_anything_is_generated() -> None:
    with refused("token 12 given to a processor", "0 to 11"):
        changes_of(made("greedy banned=12"), [1], 12, torch.device("cpu"), ())


@pytest.mark.parametrize("text", ["greedy banned=", "greedy logit_bias=3", "greedy logit_bias=3:x", "greedy forced=-1"])
def test_what_cannot_be_read_says_what_is_allowed(text: str) -> None:
    with refused("expected ID"):
        made(text)


@pytest.mark.parametrize(
    "text",
    [
        ALL,
        "greedy logit_bias=3:-0.5/4:100 forced=1/2 min_tokens=3",
        "topk 1 5 min_p=0.05",
        "greedy logit_bias=3:0.12345678",
    ],
)
def test_a_setting_reads_back(text: str) -> None:
    parameter = PARAMETERS["processor"]
    value = parameter.parse(text)
    assert parameter.parse(parameter.show(value)) == value


def test_greedy_keeps_what_a_cut_off_would_leave() -> None:
    assert made("greedy min_p=0.5").greedy and isinstance(made("greedy repetition=2"), WithText)
    assert made("greedy repetition=2").greedy
