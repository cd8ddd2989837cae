"""What a kernel takes of a card, by the code that Triton makes for it: no card is needed."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sampling.forward.triton.launch import Launch

_TYPES = {
    torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int64: "i64", torch.int32: "i32",
    torch.int8: "i8", torch.float8_e4m3fn: "fp8e4nv",
}  # fmt: skip
_ALIGNED = [["tt.divisibility", 16]]


@dataclass(frozen=True)
class Code:
    """registers: of a thread. spilled: bytes of its stack. shared: bytes of a block. ptx: the assembly."""

    registers: int
    spilled: int
    shared: int
    threads: int
    ptx: str


def compiled(launch: Launch, capability: int, folder: Path) -> Code:
    """The kernel for cards of this compute capability (90: an H100), specialised as a call with these arguments is."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    options = {name: value for name, value in launch.constants.items() if name.islower()}
    constants = {name: value for name, value in launch.constants.items() if name not in options}
    types, aligned = dict.fromkeys(constants, "constexpr"), dict[tuple[int, ...], Any]()
    for place, argument in enumerate(launch.arguments):
        parameter = launch.kernel.params[place]
        if isinstance(argument, int) and argument == 1 and not parameter.do_not_specialize:
            types[parameter.name], constants[parameter.name] = "constexpr", 1
            continue
        types[parameter.name] = _type(argument)
        if isinstance(argument, Tensor) or (not parameter.do_not_specialize and argument % 16 == 0):
            aligned[place,] = _ALIGNED
    ordered = {name: types[name] for name in launch.kernel.arg_names}
    source = ASTSource(launch.kernel, ordered, constants, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    file = folder / "kernel.cubin"
    file.write_bytes(made.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    told = subprocess.run([tool, "-res-usage", file], capture_output=True, text=True, check=True, timeout=120)
    registers, spilled = (int(found) for found in re.findall(r"(?:REG|STACK):(\d+)", told.stdout + told.stderr))
    return Code(registers, spilled, made.metadata.shared, 32 * made.metadata.num_warps, made.asm["ptx"])


def _type(argument: Any) -> str:
    if isinstance(argument, Tensor):
        return f"*{_TYPES[argument.dtype]}"
    return "fp32" if isinstance(argument, float) else "i32"
