"""THE tables of engines: one line a dialect."""

from engines.dialect import Dialect
from engines.dialects.fastdeploy import FastDeploy
from engines.dialects.llamacpp import LlamaCpp
from engines.dialects.sglang import Sglang
from engines.dialects.trtllm import TensorRtLlm
from engines.dialects.vllm import Vllm
from engines.dialects.workbench import Workbench
from utils.registry import Registry

DIALECTS = Registry[Dialect]("dialect", Workbench(), Vllm(), Sglang(), LlamaCpp(), FastDeploy(), TensorRtLlm())
