"""THE tables of engines: one line a dialect, and one a kind of process."""

from engines.dialect import Dialect
from engines.dialects.fastdeploy import FastDeploy
from engines.dialects.llamacpp import LlamaCpp
from engines.dialects.openvino import Openvino
from engines.dialects.sglang import Sglang
from engines.dialects.trtllm import TensorRtLlm
from engines.dialects.vllm import Vllm
from engines.dialects.workbench import Workbench
from utils.registry import Registry

DIALECTS = Registry[Dialect]("dialect", Workbench(), Vllm(), Sglang(), LlamaCpp(), FastDeploy(), TensorRtLlm())
PROCESSES = Registry[Dialect]("kind", DIALECTS["vllm"], Openvino())
"""Kinds that run in a process of their own Python; `server/KIND_worker.py` loads each and answers in this dialect."""
