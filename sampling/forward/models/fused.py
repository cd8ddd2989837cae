"""The steps between the products, compiled by torch when they are first called: on CUDA, inside a captured graph."""

from dataclasses import replace

import torch
from torch import Tensor

from sampling.forward.models.blocks import Blocks
from sampling.forward.models.flat import Call, CompiledSteps, Formulas, Key, Run, examples, near
from utils.errors import UserError
from utils.text import first_line

_PROGRAMS = 1024


@torch.inference_mode()
def fused(blocks: Blocks, backend: str = "inductor") -> Blocks:
    """The same blocks with steps that torch compiles when they are first called, each into a kernel or a few.

    For CUDA, where a graph then holds the calls. backend: of `torch.compile`. Raises `UserError` where that fails, or
    what it made is not right.
    """
    from torch._dynamo import config as dynamo

    formulas = examples(blocks)
    # The steps are one function to torch, which counts every program of any of them: one row, and several, for each.
    dynamo.recompile_limit = max(dynamo.recompile_limit, _PROGRAMS)
    dynamo.accumulated_recompile_limit = max(dynamo.accumulated_recompile_limit, _PROGRAMS)
    runs: dict[Key, Run] = {}
    for key, call in formulas.seen.items():
        runs[key] = run = _when_called(formulas, call, backend)
        try:
            outputs = run(call.tensors)
        except Exception as error:  # compilers raise anything
            raise UserError(f"the step {call.step!r} cannot be compiled: {first_line(error)}") from error
        if not all(near(a, b) for a, b in zip(outputs, formulas.result(call), strict=True)):
            raise UserError(f"the compiled step {call.step!r} does not give what its formula gives")
    return replace(blocks, compiled=CompiledSteps(formulas.shape, runs))


def _when_called(formulas: Formulas, call: Call, backend: str) -> Run:
    """A step for any number of rows."""

    def flat(*tensors: Tensor) -> list[Tensor]:
        return formulas.result(call.filled(tensors))

    made = torch.compile(flat, backend=backend, fullgraph=True, dynamic=True)
    return lambda tensors: made(*tensors)
