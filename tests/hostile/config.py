"""JSON of `--speculative-config`, on the command line and in the session."""

import json
from typing import Any

from tests.hostile.row import Row

METHOD = '"method": "draft_model"'
BAD: list[tuple[Any, tuple[object, ...]]] = [
    ("", ("not JSON",)),
    ("{", ("not JSON",)),
    ("null", ("a NoneType",)),
    ("[]", ("a list",)),
    ('"x"', ("a str",)),
    ("3", ("a int",)),
    ("{}", ("method", "draft_model")),
    ("[" * 50_000, ("nested too deep",)),
    ('{"method": ' + "[" * 50_000 + "]" * 50_000 + "}", ("nested too deep",)),
    ('{"method": ' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}", ("nested too deep",)),
    ("{" + METHOD + ', "num_speculative_tokens": ' + "9" * 5000 + "}", ("number of thousands of digits",)),
    ("{" + METHOD + ', "num_speculative_tokens": NaN}', ("NaN",)),
    ("{" + METHOD + ', "num_speculative_tokens": -Infinity}', ("-Infinity",)),
    ("{" + METHOD + ', "num_speculative_tokens": 1e400}', ("num_speculative_tokens: as gamma: 'inf'",)),
    ("{" + METHOD + ', "method": "ngram"}', ("key 'method'",)),
    ("{" + METHOD + ', "num_speculative_tokens": 1, "num_speculative_tokens": 2}', ("is there twice",)),
    ({"method": "draft"}, ("method of --speculative-config", "'draft'", "'draft_model'")),
    ({"method": None}, ("method of --speculative-config", "'None'")),
    ({"method": ["ngram"]}, ("unknown method of --speculative-config",)),
    ({"method": "x" * 5_000_000}, ("(5,000,000 characters)",)),
    ({"method": "\x1b[2J"}, ("'\\x1b[2J'",)),
    ({"method": "ngram", "num_speculative_token": 1}, ("'num_speculative_tokens'",)),
    ({"method": "ngram", "k" * 100_000: 1}, ("(100,000 characters)",)),
    ({"method": "ngram", "num_speculative_tokens": "3"}, ("num_speculative_tokens: '3'",)),
    ({"method": "ngram", "num_speculative_tokens": True}, ("num_speculative_tokens: True",)),
    ({"method": "ngram", "num_speculative_tokens": None}, ("num_speculative_tokens: None",)),
    ({"method": "ngram", "num_speculative_tokens": 2.5}, ("'2.5'",)),
    ({"method": "ngram", "num_speculative_tokens": -1}, ("'-1'",)),
    ({"method": "ngram", "num_speculative_tokens": [1] * 100_000}, ("characters)",)),
    ({"method": "ngram", "num_speculative_tokens": {"a": 1}}, ("number",)),
    ({"method": "naive", "num_speculative_tokens": -1}, ("num_speculative_tokens: -1",)),
    ({"method": "naive", "num_speculative_tokens": "1"}, ("num_speculative_tokens: '1'",)),
    ({"method": "naive", "verify_strategy": "rejection"}, ("verify_strategy has no meaning for method 'naive'",)),
    ({"method": "ngram", "num_model_steps": 1}, ("num_model_steps has no meaning for method 'ngram'",)),
    ({"method": "ngram", "model": "x"}, ("model: 'x' given for method 'ngram'",)),
    ({"method": "draft_model", "model": 3}, ("model: 3 given for method 'draft_model'",)),
    ({"method": "draft_model", "model": "m" * 5_000_000, "num_model_steps": 1}, ("num_model_steps has no meaning",)),
    ({"method": "ngram", "model": "m" * 5_000_000}, ("(5,000,000 characters) given for method 'ngram'",)),
    ({"method": "ngram", "verify_strategy": 3}, ("verify_strategy: 3",)),
    ({"method": "ngram", "verify_strategy": "lossy"}, ("verify_strategy", "'lossy'")),
    ({"method": "ngram", "mtp_strategy": "with_ngram"}, ("draft_model, mtp",)),
    ({"method": "mtp", "mtp_strategy": 3}, ("mtp_strategy", "'3'")),
    ({"method": "mtp", "mtp_strategy": {"a": 1}}, ("unknown mtp_strategy",)),
    ({"method": "mtp", "mtp_strategy": "with_ngram", "num_model_steps": 9, "num_speculative_tokens": 3},
     ("num_model_steps: 9", "num_speculative_tokens", 3)),
    ({"method": "suffix", "suffix_decoding_min_token_prob": 2}, ("suffix_decoding_min_token_prob: as min_token_prob",)),
    ({"method": "suffix", "suffix_decoding_max_tree_depth": 1}, ("'1'", 2)),
    ({"method": "ngram", "max_ngram_size": 1, "min_ngram_size": 3}, ("above",)),
]  # fmt: skip


def _text(config: Any) -> str:
    return config if isinstance(config, str) else json.dumps(config)


ROWS = [
    *(Row("infer", ("run", "--prompt", "a", "--speculative-config", _text(c)), 2, says) for c, says in BAD),
    *(Row("session", (f"/speculative_config {_text(c)}",), 1, says) for c, says in BAD if "\n" not in _text(c)),
    Row(
        "infer",
        ("run", "--prompt", "a", "--speculative-config", '{"method": "ngram"}', "--methods", "mtp"),
        2,
        ("--speculative-config names the method; --methods cannot be given as well",),
    ),
    Row(
        "infer",
        ("run", "--prompt", "a", "--drafter", "y", "--speculative-config", "{" + METHOD + ', "model": "x"}'),
        2,
        ("--drafter 'y' and model 'x' of --speculative-config differ",),
    ),
    Row(
        "infer",
        (
            *("run", "--prompt", "a", "--set", "gamma=2", "--speculative-config"),
            "{" + METHOD + ', "num_speculative_tokens": 3}',
        ),
        2,
        ("gamma", "'2'", "'3'"),
    ),
    Row(
        "session", ('/speculative_config {"method": "draft_model", "model": "x"}',), 1, ("a session keeps its models",)
    ),
]
