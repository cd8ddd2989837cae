"""The parts of vLLM that our worker calls, written out as a package: an engine that says the same six tokens."""

from pathlib import Path

PARTS = {
    "__init__": '__version__ = "fake"\n',
    "engine/arg_utils": """
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        for name in ("--model", "--dtype", "--speculative-config", "--per-request-spec-decode-metrics"):
            parser.add_argument(name)

    @classmethod
    def from_cli_args(cls, given):
        return given
""",
    "sampling_params": """
from types import SimpleNamespace

RequestOutputKind = SimpleNamespace(DELTA="delta")


class SamplingParams(SimpleNamespace):
    pass
""",
    "utils/argparse_utils": "from argparse import ArgumentParser as FlexibleArgumentParser\n",
    "v1/engine/llm_engine": """
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


def write_package(folder: Path) -> Path:
    """The folder, now with a package `vllm` in it."""
    for name, content in PARTS.items():
        path = folder / "vllm" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder
