"""What users are told where a pair cannot do what is asked of it."""

import torch

from sampling.forward.kernels.formats import FULL
from sampling.methods.parameters import VOCABULARY
from sampling.vocabularies.crossing import AUTO
from utils.text import first_line

NO_DRAFTER_MODEL = "no drafter model is loaded; start with --drafter ID, DIR or FILE.gguf"
NO_INT8_DRAFTER = (
    "draft_weights int8: the drafter does not run on the lean forward, or is cut over several processes; "
    "expected auto or full"
)
_SELVES = "--drafter self:int8 or self:int4"


def no_head(kind: str, target: str, drafts_for: str, encoder: bool) -> str:
    """No trained head of a kind is known. drafts_for: the target of which `target` is the drafter; empty for none."""
    if drafts_for and not encoder:
        return (
            f"no {kind} head for the drafter model {target} is known, and heads of "
            f"{drafts_for} read other states; start with {_SELVES}, which they serve as well, or a drafter "
            "model with a head in models/, or choose a staged_drafter that copies"
        )
    if encoder:
        return (
            f"{kind} heads continue decoder-only models, and {target} is an encoder-decoder "
            "model; choose methods without a head"
        )
    return (
        f"no {kind} head for {target} is known; start with --heads DIR (in a session: /model ID heads=DIR), "
        f"or train one: uv run scripts/train_drafter.py --method {kind}"
    )


def no_grammar(method: str) -> str:
    """A grammar is set, and a search asks no processor."""
    return f"{method} searches without a processor, which a grammar needs; expected grammar off, or another method"


def no_trees(method: str, target: str) -> str:
    """A method drafts trees, and the target takes chains."""
    return (
        f"{method} works with trees of drafts, and {target} runs chains only (docs/models.md); "
        "choose methods and values without trees"
    )


def one_tokenizer(wanted: str) -> str:
    """A way to cross vocabularies is asked for where there is one."""
    return f"{VOCABULARY.name} {wanted} given, and target and drafter have one tokenizer; expected {AUTO}"


def other_tokenizer(method: str, alone: bool, drafter: str) -> str:
    """A method that cannot run with a drafter of another tokenizer. alone: whether it runs that model alone."""
    what = "runs the drafter model alone" if alone else "has drafts judged by the drafter model"
    return (
        f"{method} {what}, and {drafter} writes with another tokenizer than the target; expected a "
        "drafter of the target's tokenizer, or --target with the drafter's name to see it alone"
    )


def rounded_already(asked: str, target: str, stored: str) -> str:
    """A target whose weights are rounded is asked for in another format."""
    return f"{asked} given, and {target} is loaded in {stored}; expected {stored}"


def cut_up(asked: str, target: str, processes: int) -> str:
    """A format is asked for of a target that several processes hold."""
    return f"{asked} given, and {target} is cut over {processes} processes; expected full"


def own_layers(asked: str, target: str) -> str:
    """A format is asked for of a target without a lean forward."""
    return (
        f"{asked} given, and {target} runs on transformers' own layers, whose weights are left as they are; "
        "expected full, or a model with a lean forward (docs/models.md)"
    )


def out_of_memory(device: torch.device, error: Exception, stored: str, graphs: bool) -> str:
    """Memory ran out on a device. stored: the format of the target's weights."""
    less = "" if stored != FULL else ", --target-weights int8"
    ungraphed = ", --graphs off" if graphs else ""
    return (
        f"out of memory on {device} ({first_line(error)}): expected a shorter text, "
        f"--dtype bfloat16{less}{ungraphed}, a smaller model, or another --device"
    )
