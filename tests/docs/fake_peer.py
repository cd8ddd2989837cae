"""Stands in for scripts/peers/llama_worker.py: says the prompt again, up to the length or a stop token.

FAKE_PEER in the environment is what to do instead: `mute` ends at once, `threads` and `gpu` run with what nobody asked
for, `nonsense` says what is no JSON, `other` an object that is no answer, a number dies behind so many answers.
"""

import json
import os
import sys


def main() -> None:
    """Describe, then answer line by line."""
    wish = os.environ.get("FAKE_PEER", "")
    threads = int(sys.argv[2])
    if wish == "mute":
        sys.exit("no such file")
    described = {"threads": threads + (wish == "threads"), "batch_threads": threads, "gpu": wish == "gpu"}
    rest = {"version": "fake 1", "batch": 8, "flash_attention": True, "cache": ["float16", "float16"]}
    print(json.dumps({**described, **rest}), flush=True)
    for number, line in enumerate(sys.stdin):
        if wish.isdigit() and number == int(wish):
            sys.exit("out of memory")
        said = answer(**json.loads(line)) if wish != "other" else {"ids": []}
        print("nonsense" if wish == "nonsense" else json.dumps(said), flush=True)


def answer(ids: list[int], length: int, drafts: int, ngram: int, stop: list[int]) -> dict[str, object]:
    """Where it drafts, twice as fast."""
    new = ids[:length]
    ends = [place for place, token in enumerate(new) if token in stop]
    new = new[: ends[0] + 1] if ends else new
    seconds = len(new) / (200.0 if drafts else 100.0)
    return {"ids": new, "prefill_s": 0.5, "decode_s": seconds, "forward_s": 0.75 * seconds}


if __name__ == "__main__":
    main()
