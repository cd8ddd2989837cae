"""What can be asked of loading, declared once for command lines, plans and Python code. No torch is imported."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from utils.option import option, parameters

DEVICES = ("auto", "cpu", "cuda", "cuda:1", "mps")
KERNELS = ("auto", "own", "packed", "plain")
DTYPES = ("auto", "float32", "bfloat16", "float16")
EVERYWHERE = ("full", "int8", "int4")  # formats that CPUs have, too
WEIGHTS = (*EVERYWHERE, "fp8")
COMPILE = ("auto", "on", "off")
GRAPHS = ("auto", "on", "off")
BATCH_INVARIANT = ("auto", "on", "off")
SELF = "self:"  # a drafter that is the target in another of these
RANDOM = "random:"  # a model of a shape, with random weights


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to load and where, as a user writes it; each field is an option of the commands and a key of `[pair]`.

    target, drafter: hub id, folder or FILE.gguf; a drafter may also be a distilled one trained here. target
    None: the embedded default. `random:llama-135m`, `-1b`, `-8b` or `random:config.json`: a model of that shape with
    random weights, for what forwards cost. drafter None: the distilled drafter in models/ for this target, else
    none.
    drafter_device None: the target's.
    drafter_tp: under torchrun the target is cut over all processes, and the drafter is whole in the first one; this
    cuts it, too.
    heads: hub ids or folders of trained heads, with commas between, beside those in models/.
    head_window: positions that heads draft for, up to the target's window; None: all of them where a head's rotary
    embedding is the same whatever the length, else what its config.json says.
    kernel: what computes products on a CPU; auto: what was found to be faster on this machine.
    compile: whether what lies between the products is compiled, once for a model; auto: where weights are rounded on a
    CPU, a C++ compiler is found, and blocks are not ours. Unless it is off, our own kernels compute what they can: on a
    CPU with a compiler whole blocks, products and attention, and on CUDA what docs/gpu.md says.
    graphs: forwards of fixed shapes and addresses, captured as CUDA graphs; auto: on CUDA. On a CPU `on` calls the same
    forwards as they are, which is slower and shows that they give the same answers.
    batch_invariant: whether a row of the target has the same bits whatever is fed with it, so that greedy output is
    plain decoding's in every number format; auto: on CPUs, where the products of this machine allow it and it costs at
    most 10 %.
    target_weights: the format of the target's weights; the rounded model is the target, of plain decoding too. The
    command `run` and plans take several, with commas between.
    """

    target: str | None = option(None, "Target model; default: the embedded one.", "ID|DIR|FILE.gguf")
    drafter: str | None = option(None, "Drafter; self:int8 or self:int4: the target.", "ID|DIR|FILE.gguf")
    device: str = option("auto", f"{', '.join(DEVICES)}; default: auto.")
    drafter_device: str | None = option(None, "The drafter's device, if different.")
    dtype: str = option("auto", f"{', '.join(DTYPES)}; default: auto.", allowed=DTYPES)
    kernel: str = option("auto", f"Kernel: {', '.join(KERNELS)}; default: auto.", allowed=KERNELS)
    target_weights: str = option("full", f"Weights: {', '.join(WEIGHTS)}; default: full.", allowed=WEIGHTS)
    compile: str = option("auto", f"Compiled steps: {', '.join(COMPILE)}; default: auto.", allowed=COMPILE)
    graphs: str = option("auto", f"CUDA graphs: {', '.join(GRAPHS)}; default: auto.", allowed=GRAPHS)
    batch_invariant: str = option(
        "auto", f"Invariant rows: {', '.join(BATCH_INVARIANT)}; default: auto.", allowed=BATCH_INVARIANT
    )
    trust_remote_code: bool = option(False, "Run code from a model's repository.")
    drafter_tp: bool = option(False, "Under torchrun: shard the drafter, too.")
    heads: str | None = option(None, "Trained heads, besides those in models/.", "ID|DIR,...")
    head_window: int | None = option(None, "Positions heads draft for; default: all.", "N", minimum=1)


LOAD = parameters(LoadOptions)


def load_options(values: Mapping[str, Any]) -> LoadOptions:
    """The options given by name, the others at their defaults. Raises `UserError` for a text that does not fit."""
    return LoadOptions(
        **{name: LOAD[name].parse(value) if isinstance(value, str) else value for name, value in values.items()}
    )
