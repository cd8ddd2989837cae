"""A server of the workbench, and OpenAI's client: the method is chosen by the request.

    uv run docs/examples/serve_and_ask.py

Starts `infer.py serve` on a free port; options go to it. Asks twice for a text: by plain decoding, then by NASD. Prints
tokens a round and a second of both, and whether their tokens are the same. Under greedy decoding they are.
"""

import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from openai import OpenAI

INFER = Path(__file__).parents[2] / "infer.py"
PROMPT = "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday, Monday, Tuesday,"


@contextmanager
def server():
    """The address of a server, which ends with the block."""
    command = [sys.executable, INFER, "serve", "--port", "0", "--dtype", "float32", *sys.argv[1:]]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield next(found[0] for line in process.stderr if (found := re.search(r"http://\S+/v1", line)))
    finally:
        process.terminate()
        process.wait()


def ask(client: OpenAI, method: str):
    extra = {"speculative": {"method": method}, "return_token_ids": True}
    model = client.models.list().data[0].id
    return client.completions.create(model=model, prompt=PROMPT, max_tokens=24, temperature=0, extra_body=extra)


def main() -> None:
    with server() as url, OpenAI(base_url=url, api_key="none") as client:
        answers = {method: ask(client, method) for method in ("target", "ngram")}
    for method, answer in answers.items():
        told = answer.metrics["workbench"]
        print(f"{method:8} {told['tokens_per_round']:.2f} tokens/round {told['tokens_per_s']:6.1f} tokens/s")
    ids = [answer.choices[0].token_ids for answer in answers.values()]
    print("same tokens as plain decoding:", ids[0] == ids[1])


if __name__ == "__main__":
    main()
