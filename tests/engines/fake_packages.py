"""The parts of other engines that our workers call, written out as packages: engines that say the same six tokens."""

from pathlib import Path

VLLM = {
    "vllm/__init__": '__version__ = "fake"\n',
    "vllm/engine/arg_utils": """
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        for name in ("--model", "--dtype", "--speculative-config", "--per-request-spec-decode-metrics"):
            parser.add_argument(name)

    @classmethod
    def from_cli_args(cls, given):
        return given
""",
    "vllm/sampling_params": """
from types import SimpleNamespace

RequestOutputKind = SimpleNamespace(DELTA="delta")


class SamplingParams(SimpleNamespace):
    pass
""",
    "vllm/utils/argparse_utils": "from argparse import ArgumentParser as FlexibleArgumentParser\n",
    "vllm/v1/engine/llm_engine": """
import json
from types import SimpleNamespace

STEPS = ([7], [8, 9], [10, 11, 12])


class LLMEngine:
    def __init__(self, given):
        self.drafts, self.under_way = bool(given.speculative_config), {}

    @classmethod
    def from_engine_args(cls, given):
        return cls(given)

    def add_request(self, name, prompt, params):
        if len(prompt["prompt_token_ids"]) > 50:
            raise ValueError("the prompt is too long")
        self.under_way[name] = 0

    def step(self):
        return [self._stepped(name) for name in list(self.under_way)]

    def _stepped(self, name):
        place = self.under_way[name]
        self.under_way[name] += 1
        last = place == len(STEPS) - 1
        if last:
            del self.under_way[name]
        told = SimpleNamespace(to_dict=self._told) if last and self.drafts else None
        reason = "length" if last else None
        one = SimpleNamespace(text="x", token_ids=STEPS[place], finish_reason=reason, spec_decode_metrics=told)
        one.logprobs = None
        return SimpleNamespace(request_id=name, finished=last, outputs=[one])

    def _told(self):
        return dict(
            num_accepted_draft_tokens=3, num_draft_tokens=8, num_spec_steps=2, acceptance_histogram=[0, 1, 1],
            per_step_accepted=[1, 2], per_step_drafted=[4, 4],
        )
""",
}
OPENVINO = {
    "openvino/__init__": """
from types import SimpleNamespace

opset13 = SimpleNamespace(parameter=lambda shape, kind: shape)


def Model(results, parameters):
    return results


def Tensor(content):
    return content


class Core:
    def compile_model(self, model, device, properties):
        told = {"INFERENCE_NUM_THREADS": 2, "INFERENCE_PRECISION_HINT": "f16", "KV_CACHE_PRECISION": "u8", **properties}
        return SimpleNamespace(
            get_property=lambda name: told[name] if name.endswith("THREADS") else SimpleNamespace(
                to_string=lambda: told[name]
            )
        )
""",
    "openvino_genai/__init__": """
from types import SimpleNamespace

STEPS = ([7], [8, 9], [10, 11, 12])
StreamingStatus = SimpleNamespace(RUNNING="on", CANCEL="off")
SchedulerConfig = SimpleNamespace


class StreamerBase:
    pass


def get_version():
    return "fake"


def draft_model(model, device):
    return model


class LLMPipeline:
    def __init__(self, model, device, *, scheduler_config=None, prompt_lookup=False, draft_model="", **properties):
        if not model.endswith(".gguf"):
            raise RuntimeError(f"{model}: neither a GGUF file nor an exported model")
        assert device == "CPU" and properties.get("INFERENCE_NUM_THREADS", 2) == 2
        self.drafts = bool(prompt_lookup or draft_model)
        assert not self.drafts or not scheduler_config.enable_prefix_caching

    def get_generation_config(self):
        return SimpleNamespace(num_assistant_tokens=None)

    def generate(self, prompt, config, streamer):
        assert (config.num_assistant_tokens == 10) == self.drafts and prompt.shape[0] == 1
        if prompt.shape[1] > 50:
            raise ValueError("the prompt is too long")
        ids = sum(STEPS, [])
        for step in STEPS if self.drafts else [[token] for token in ids]:
            assert streamer.write(step) == "on"
        streamer.end()
        raw = SimpleNamespace(m_batch_sizes=[len(step) for step in STEPS])
        reason = SimpleNamespace(name="LENGTH")
        metrics = SimpleNamespace(raw_metrics=raw)
        return SimpleNamespace(tokens=[ids], finish_reasons=[reason], perf_metrics=metrics)
""",
}


def write_packages(folder: Path) -> Path:
    """The folder, now with packages `vllm`, `openvino` and `openvino_genai` in it."""
    for name, content in {**VLLM, **OPENVINO}.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder
