"""vLLM's own engine for worker.py. Standard library and vLLM alone."""

import os
import queue
import threading
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import vllm
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.llm_engine import LLMEngine

SAMPLERS = ("min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
Told = queue.SimpleQueue[Any]


class VllmWorker(threading.Thread):
    """The thread that owns the engine: takes what is asked, steps, and tells each asker what a step added."""

    def __init__(self, engine: Any) -> None:
        super().__init__(daemon=True)
        self._engine, self._asked, self._names = engine, queue.SimpleQueue[tuple[str, Any, Any, Told]](), count()
        self._tell: dict[str, Told] = {}

    def ask(self, ids: list[int], params: Any) -> Iterator[Any]:
        """Outputs of a request, a step each, until its end."""
        answers: Told = queue.SimpleQueue()
        self._asked.put((str(next(self._names)), {"prompt_token_ids": ids}, params, answers))
        while True:
            output = answers.get()
            if isinstance(output, Exception):
                raise output
            yield output
            if output.finished:
                return

    def run(self) -> None:
        """Until the process ends; an engine that fails ends it, and whoever asks sees an answer without an end."""
        try:
            while True:
                self._admit()
                for output in self._engine.step():
                    self._tell[output.request_id].put(output)
                    if output.finished:
                        del self._tell[output.request_id]
        finally:
            traceback.print_exc()
            os._exit(1)

    def _admit(self) -> None:
        """Whoever asks now; while nobody is under way, wait for somebody."""
        while True:
            try:
                name, prompt, params, answers = self._asked.get(not self._tell)
            except queue.Empty:
                return
            try:
                self._engine.add_request(name, prompt, params)
            except Exception as error:  # what the engine refuses is the asker's affair, not the end of all others
                answers.put(error)
            else:
                self._tell[name] = answers


def events(outputs: Iterator[Any]) -> Iterator[dict[str, Any]]:
    """Chunks as vLLM's server writes them."""
    for output in outputs:
        (completion,) = output.outputs
        choice = {
            "index": 0,
            "text": completion.text,
            "token_ids": list(completion.token_ids),
            "finish_reason": completion.finish_reason,
        }
        if completion.logprobs:
            best = [
                {f"token_id:{token}": told.logprob for token, told in place.items()} for place in completion.logprobs
            ]
            choice["logprobs"] = {"top_logprobs": best}
        yield {"choices": [choice]}
        if completion.spec_decode_metrics is not None:
            yield {"choices": [], "metrics": {"speculative_decoding": completion.spec_decode_metrics.to_dict()}}


def sampling(body: dict[str, Any]) -> Any:
    """What a request asks for, in vLLM's words."""
    return SamplingParams(
        max_tokens=body["max_tokens"],
        temperature=body["temperature"],
        top_p=body["top_p"],
        top_k=body.get("top_k", 0),
        seed=body["seed"],
        logprobs=body.get("logprobs"),
        **{name: body[name] for name in SAMPLERS if name in body},
        output_kind=RequestOutputKind.DELTA,
    )


def load(words: list[str]) -> tuple[str, Callable[[dict[str, Any]], Iterator[dict[str, Any]]]]:
    """See worker.py. words: arguments of `vllm serve` that make an engine."""
    parser = FlexibleArgumentParser()
    EngineArgs.add_cli_args(parser)
    worker = VllmWorker(LLMEngine.from_engine_args(EngineArgs.from_cli_args(parser.parse_args(words))))
    worker.start()
    return vllm.__version__, lambda body: events(worker.ask(body["prompt"], sampling(body)))
