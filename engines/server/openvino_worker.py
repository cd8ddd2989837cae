"""OpenVINO GenAI's own pipeline for worker.py. Standard library, numpy, OpenVINO and its GenAI alone."""

import argparse
import json
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import openvino
import openvino_genai

DEVICE = "CPU"
_TOLD = ("INFERENCE_NUM_THREADS", "INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION")


class Rounds(openvino_genai.StreamerBase):
    """What the pipeline tells of an answer, a round each. left: nobody listens any longer."""

    def __init__(self) -> None:
        super().__init__()
        self.told, self.left = queue.SimpleQueue[Any](), False

    def write(self, ids: Any) -> Any:
        """A round's tokens; whether to go on."""
        self.told.put([ids] if isinstance(ids, int) else [*ids])
        status = openvino_genai.StreamingStatus
        return status.CANCEL if self.left else status.RUNNING

    def end(self) -> None:
        """Nothing is kept back."""


class OpenvinoWorker:
    """A pipeline that answers one request at a time. given: `arguments`."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given, self._lock = given, threading.Lock()
        self._drafts = given.prompt_lookup or bool(given.draft_model)
        properties = dict(_property(text) for text in given.properties)
        self.version = f"{openvino_genai.get_version()} ({', '.join(_told(properties))})"
        self._pipeline = openvino_genai.LLMPipeline(given.model, DEVICE, **properties, **self._drafting())

    def answer(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Chunks as vLLM's server writes them; where drafts are made, the tokens of each round come behind."""
        rounds, count = Rounds(), 0
        with self._lock:
            thread = threading.Thread(target=self._write, args=(body, rounds), daemon=True)
            thread.start()
            try:
                while isinstance(told := rounds.told.get(), list):
                    count += len(told)
                    yield _chunk(told, None)
            finally:
                rounds.left = True
                thread.join()
        if isinstance(told, Exception):
            raise told
        yield _chunk(told.tokens[0][count:], told.finish_reasons[0].name.lower())
        if self._drafts:
            yield {"choices": [], "metrics": {"tokens_by_round": [*told.perf_metrics.raw_metrics.m_batch_sizes]}}

    def _write(self, body: dict[str, Any], rounds: Rounds) -> None:
        """Rounds as they come, then the result, or the error."""
        try:
            prompt = openvino.Tensor(np.array([body["prompt"]], dtype=np.int64))
            rounds.told.put(self._pipeline.generate(prompt, self._config(body), rounds))
        except Exception as error:  # the asker's affair, not the end of all others
            rounds.told.put(error)

    def _config(self, body: dict[str, Any]) -> Any:
        """What a request asks for, in the pipeline's words."""
        config = self._pipeline.get_generation_config()
        config.max_new_tokens, config.rng_seed = body["max_tokens"], body["seed"]
        config.do_sample = body["temperature"] > 0
        if config.do_sample:
            config.temperature, config.top_p = body["temperature"], body["top_p"]
            config.top_k = body.get("top_k", config.top_k)
        if self._drafts:
            config.num_assistant_tokens = self._given.num_assistant_tokens
        if self._given.prompt_lookup:
            config.max_ngram_size = self._given.max_ngram_size
        return config

    def _drafting(self) -> dict[str, Any]:
        """The pipeline's properties for the method.

        Rows of earlier prompts are not taken over: they save the reading of a prompt that comes again, and were read
        otherwise, so that the same prompt has another answer then.
        """
        if not self._drafts:
            return {}
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        if self._given.prompt_lookup:
            return {"scheduler_config": scheduler, "prompt_lookup": True}
        drafter = openvino_genai.draft_model(self._given.draft_model, DEVICE)
        return {"scheduler_config": scheduler, "draft_model": drafter}


def _chunk(ids: list[int], reason: str | None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": "", "token_ids": [*ids], "finish_reason": reason}]}


def _property(text: str) -> tuple[str, Any]:
    """`NAME=VALUE`; a value that is JSON is read as such."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _told(properties: dict[str, Any]) -> Iterator[str]:
    """How the device computes with these properties, as it says of the smallest model.

    Example: `INFERENCE_NUM_THREADS 2`.
    """
    number = openvino.opset13.parameter([1], np.float32)
    smallest = openvino.Core().compile_model(openvino.Model([number], [number]), DEVICE, properties)
    for name in _TOLD:
        value = smallest.get_property(name)
        yield f"{name} {value if isinstance(value, int) else value.to_string()}"


def load(words: list[str]) -> tuple[str, Callable[[dict[str, Any]], Iterator[dict[str, Any]]]]:
    """See worker.py. words: the model, how it drafts, and properties of the device as NAME=VALUE."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt-lookup", action="store_true")
    parser.add_argument("--draft-model", default="")
    parser.add_argument("--num-assistant-tokens", type=int)
    parser.add_argument("--max-ngram-size", type=int)
    parser.add_argument("properties", nargs="*")
    worker = OpenvinoWorker(parser.parse_args(words))
    return worker.version, worker.answer
