"""JSON that a person or another program wrote, read strictly."""

import json
from collections import Counter
from typing import Any

from utils.errors import UserError
from utils.text import quoted


def read_json(text: str) -> Any:
    """The value of a JSON text.

    Raises `UserError` for what is no JSON, for NaN and Infinity, for a key that an object has twice (which of its
    values is meant?), and for what is nested too deep or has numbers too long to be read.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except UserError:
        raise
    except RecursionError:
        raise UserError("not JSON that can be read: nested too deep") from None
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON: {error}") from None
    except ValueError:
        raise UserError("not JSON that can be read: a number of thousands of digits") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entry = dict(pairs)
    if len(entry) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise UserError(f"key {quoted(twice)} is there twice; expected once")
    return entry


def _refuse(name: str) -> Any:
    raise UserError(f"not JSON: {name} given; expected a number")
