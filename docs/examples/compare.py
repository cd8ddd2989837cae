"""Methods side by side on one prompt: who is faster than plain decoding, and is the text the same?

    uv run docs/examples/compare.py

Prints a row for each method. Speedups are over AR, plain decoding, in the same run. The last row is AR once more: its
distance from 1 is the noise. The last column says `exact` where the text is AR's, token for token.
"""

import pandas as pd

from sampling import LoadOptions, compare, load_pair

PROMPT = "Say the numbers from 1 to 40."
METHODS = ("speculative", "mtp", "ngram")


def main() -> None:
    pair = load_pair(LoadOptions(dtype="float32"))
    runs = compare(pair, PROMPT, METHODS, length=32, gamma=2)
    print(pd.DataFrame([run.row for run in runs.values()]).round(2).to_string(index=False, na_rep="-"))
    print(f"\nText of all that are exact: {runs['target'].text}")


if __name__ == "__main__":
    main()
