"""docs/api-reference.md from the docstrings of what is public; `scripts/generate_docs.py` writes it."""

import inspect
import re
from pathlib import Path
from typing import Any

OTHER_REPOSITORIES = Path(__file__).with_name("other_repositories.md")

HEAD = """# API reference

`uv sync` installs the packages, so that any script of its environment imports them. What is drawn comes from torch's
generator: `torch.manual_seed` repeats it. Models are transformers models as they are (from `AutoModelForCausalLM` or
`AutoModelForSeq2SeqLM`) or the runners of a loaded pair (`sampling.loading.pairs`), which are faster; prompts and
answers are lists of ids.

Methods side by side on the embedded default, each measured against plain decoding (`target`). `control` is plain
decoding once more. [The tutorial](tutorial.ipynb) goes on from here, and [examples](examples/README.md) are short:

```python
from sampling import LoadOptions, compare, load_pair

pair = load_pair(LoadOptions(dtype="float32"))
runs = compare(pair, "Say the numbers from 1 to 40.", ["mtp", "ngram"], length=16, gamma=2)
for run in runs.values():
    print(run.label, run.speedup, run.verdict)
assert runs["mtp"].text == runs["target"].text
```

On transformers models:

```python
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sampling import autoregressive_generate, speculative_generate

shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
torch.manual_seed(0)
target = LlamaForCausalLM(LlamaConfig(num_hidden_layers=3, **shape))
drafter = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, **shape))

plain = autoregressive_generate([1, 5, 9], target, max_gen_len=16)
ids, acceptance = speculative_generate([1, 5, 9], drafter, target, gamma=4, max_gen_len=16)
assert ids == plain
```

Round by round, with any drafter, rule and verifier. `runner_for` makes the target of a transformers model;
`load_pair(LoadOptions()).target` of `sampling.loading.pairs` is one too:

```python
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from egag.length_rule import FixedGamma
from ngram_assisted.prompt_lookup import PromptLookupDrafter
from sampling import decode, runner_for
from sampling.verify.rejection import RejectionVerifier
from utils.logits_processor import GreedyProcessor

shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
target = runner_for(LlamaForCausalLM(LlamaConfig(num_hidden_layers=3, **shape)))
for event in decode(
    target,
    PromptLookupDrafter(),
    FixedGamma(4),
    RejectionVerifier(),
    GreedyProcessor(),
    [1, 5, 9, 1, 5],
    max_new_tokens=12,
    seed=0,
):
    print(event)
```

From transformers' own `generate`:

```python
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sampling.api.custom_generate import speculative

shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
target = LlamaForCausalLM(LlamaConfig(num_hidden_layers=3, **shape)).eval()
drafter = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, **shape)).eval()
output = target.generate(
    torch.tensor([[1, 5, 9]]),
    max_new_tokens=16,
    do_sample=False,
    pad_token_id=0,
    custom_generate=speculative(drafter, gamma=4),
    return_dict_in_generate=True,
)
print(output.sequences, output.metrics.acceptance_rate)
```

`speculative(drafter, streamer=TextStreamer(tokenizer))` shows the text while it is written, a round at a time.
Penalties and cut-offs of `generate` are taken over ([processors.md](processors.md)).

Any causal transformers model that passes a few trial forwards runs: it must say behind our cache what it says by
itself. Refused with the reason are models that read in both directions (BERT without `is_decoder`,
`use_bidirectional_attention`) and those that keep anything but rows of keys and values. A model whose attention counts
rows and not positions, as GPT-Neo's local layers do, runs chains of drafts; trees and beams raise a `UserError`.
Rotary embeddings: `default`, `linear`, `llama3` and `yarn` never change. With `longrope` (Phi-3 with 128k tokens) a
text that grows beyond `original_max_position_embeddings` is read anew there, so that every token is what the model says
of the whole text without a cache. With `dynamic` texts end where the embedding would begin to change, at
`max_position_embeddings`, which is exact as well.
"""


def sections() -> list[tuple[str, list[Any]]]:
    """What is public, in the order of the page."""
    import ngram_assisted
    import sampling
    from sampling.api.compare import ComparedRun
    from sampling.api.custom_generate import SpeculativeOutput, speculative
    from sampling.measure.metrics import RunMetrics
    from utils import logits_processor as processors
    from utils.events import Finished, Prefilled, Round

    return [
        ("Functions", [*(getattr(sampling, name) for name in sampling.__all__ if name != "decode"), speculative]),
        ("N-grams", [getattr(ngram_assisted, name) for name in ngram_assisted.__all__]),
        (
            "Processors",
            [
                processors.GreedyProcessor,
                processors.MultinomialProcessor,
                processors.TopKProcessor,
                processors.NucleusProcessor,
                processors.TopKNucleusProcessor,
            ],
        ),
        (
            "The loop and its events",
            [sampling.decode, Prefilled, Round, Finished, RunMetrics, ComparedRun, SpeculativeOutput],
        ),
    ]


def api_page() -> str:
    """The whole page."""
    parts = [HEAD, OTHER_REPOSITORIES.read_text(encoding="utf-8")]
    for title, things in sections():
        parts += [f"## {title}\n", *(entry(thing) for thing in things)]
    return "\n".join(parts)


def entry(thing: Any) -> str:
    """Name, signature, text, and for a class its public methods."""
    lines = [f"### `{thing.__module__}.{thing.__name__}`\n", f"```text\n{_signature(thing)}\n```\n", _text(thing)]
    if inspect.isclass(thing):
        for name, member in vars(thing).items():
            shown = member.fget if isinstance(member, property) else member
            if not name.startswith("_") and inspect.isfunction(shown) and shown.__doc__:
                call = "" if isinstance(member, property) else _one_line(shown)
                lines.append(f"- `{name}{call}`: {' '.join(_text(shown).split())}")
        lines.append("")
    return "\n".join(lines)


def _signature(thing: Any) -> str:
    lines, keywords = [], False
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            lines.append("*")
            keywords = True
        lines.append(str(parameter))
    result = inspect.signature(thing).return_annotation
    returns = "" if inspect.isclass(thing) or result is inspect.Signature.empty else f" -> {_name(result)}"
    return _short(f"{thing.__name__}(\n" + "".join(f"    {line},\n" for line in lines) + f"){returns}")


def _one_line(member: Any) -> str:
    return _short(str(inspect.signature(member)).replace("self, ", "").replace("(self)", "()"))


def _name(annotation: Any) -> str:
    plain = inspect.isclass(annotation) and not hasattr(annotation, "__args__")
    return annotation.__name__ if plain else str(annotation)


def _short(text: str) -> str:
    """Types without the modules they come from, and without quotes; functions by their names."""
    text = re.sub(r": '(.*?)'", r": \1", text)
    text = re.sub(r"<function (\w+) at \w+>", r"\1", text)
    return re.sub(r"\b(?:[a-z_]+\.|_C\.)+(?=[A-Z])", "", text).replace("<factory>", "...")


def _text(thing: Any) -> str:
    return (inspect.getdoc(thing) or "") + "\n"
