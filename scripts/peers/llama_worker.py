"""llama.cpp behind its Python binding, as a process that answers one request at a time. Started by peers/process.py.

PYTHON llama_worker.py FILE.gguf THREADS CONTEXT

PYTHON is an interpreter that has llama-cpp-python; nothing of this project is imported. The first line that it writes
is a JSON object that says what runs, read back from the library where the library tells it. Then, for each line
{"ids": [...], "length": 128, "drafts": 10, "ngram": 3, "stop": [2]} that it reads, one line with `ids` (the new
tokens), `prefill_s`, `decode_s` and `forward_s` (decoding that was spent in forwards). It ends with its input.

drafts 0 is plain decoding, else prompt lookup with so many drafts from n-grams of at most `ngram` tokens. Greedy. The
prompt but for its last token is prefill; everything behind it, as many forwards as rounds, is decoding.
"""

import json
import os
import sys
import time
from typing import Any, TextIO

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

BATCH = 512


class Answerer:
    """A model for plain decoding and one for each setting of prompt lookup; they share the pages of the file."""

    def __init__(self, file: str, threads: int, context: int) -> None:
        self.file, self.threads, self.context = file, threads, context
        self._models: dict[tuple[int, int], Any] = {}

    def model(self, drafts: int, ngram: int) -> Any:
        """The model that drafts so; the binding needs the logits of every row where anything drafts."""
        key = (drafts, ngram if drafts else 0)
        if key not in self._models:
            self._models[key] = llama_cpp.Llama(
                self.file,
                n_gpu_layers=0,
                offload_kqv=False,
                op_offload=False,
                n_ctx=self.context,
                n_batch=BATCH,
                n_ubatch=BATCH,
                n_threads=self.threads,
                n_threads_batch=self.threads,
                flash_attn=True,
                logits_all=bool(drafts),
                draft_model=LlamaPromptLookupDecoding(ngram, drafts) if drafts else None,
                verbose=False,
            )
        return self._models[key]

    def described(self) -> dict[str, Any]:
        """What runs: versions, and settings as the library holds them."""
        model = self.model(0, 0)
        params = model.context_params
        return {
            "version": f"llama-cpp-python {llama_cpp.__version__}",
            "threads": llama_cpp.llama_n_threads(model.ctx),
            "batch_threads": llama_cpp.llama_n_threads_batch(model.ctx),
            "batch": llama_cpp.llama_n_batch(model.ctx),
            "gpu": bool(llama_cpp.llama_supports_gpu_offload()),
            "flash_attention": params.flash_attn_type == llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED,
            "cache": [_cache_type(kind) for kind in (params.type_k, params.type_v)],
            "instructions": llama_cpp.llama_print_system_info().decode(),
        }

    def answer(self, ids: list[int], length: int, drafts: int, ngram: int, stop: list[int]) -> dict[str, Any]:
        """New ids, up to `length` or a token of `stop`, which is among them; seconds of both parts."""
        model = self.model(drafts, ngram)
        model.reset()
        start = time.perf_counter()
        model.eval(ids[:-1])
        llama_cpp.llama_synchronize(model.ctx)
        begun = time.perf_counter()
        llama_cpp.llama_perf_context_reset(model.ctx)
        new: list[int] = []
        for token in model.generate(ids[-1:], reset=False, temp=0.0, repeat_penalty=1.0):
            new.append(int(token))
            if len(new) == length or token in stop:
                break
        ended = time.perf_counter()
        spent = llama_cpp.llama_perf_context(model.ctx)
        forward_s = (spent.t_eval_ms + spent.t_p_eval_ms) / 1e3
        return {"ids": new, "prefill_s": begun - start, "decode_s": ended - begun, "forward_s": forward_s}


def _cache_type(kind: int) -> str:
    return {llama_cpp.GGML_TYPE_F32: "float32", llama_cpp.GGML_TYPE_F16: "float16"}.get(kind, str(kind))


def _private_stdout() -> TextIO:
    """Standard output for answers alone: what libraries print there goes to the standard error."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def main() -> None:
    """Describe, then answer line by line."""
    answers = _private_stdout()
    file, threads, context = sys.argv[1:]
    answerer = Answerer(file, int(threads), int(context))

    def say(said: dict[str, Any]) -> None:
        print(json.dumps(said), file=answers, flush=True)

    say(answerer.described())
    for line in sys.stdin:
        say(answerer.answer(**json.loads(line)))


if __name__ == "__main__":
    main()
