"""Rows of SpecDecode-Bench's simulator (arXiv 2601.11580): how many tokens a round would emit at each position.

A row is {id, prompt_token_ids, generated_token_ids, acc_NAME: {acc_len}}. Entry i is what a round emits whose first
token is generated token i: the drafts that are accepted there and the target's own token, as the published rows have
it. Example: 3 tokens left and all of them drafted -> 4, the last of which is beyond the answer.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sampling.measure.replay.walk import UNKNOWN, DraftWalk, PositionDraft
from utils.errors import UserError

MOST = 16
"""Drafts a position of a walk that is read, where no length says that there were more."""

_PREFIX = "acc_"


def simulator_row(id: str | int, prompt_ids: Sequence[int], walks: Mapping[str, DraftWalk]) -> dict[str, Any]:
    """The row of one answer. walks: along it, by the name that follows `acc_`; all of the same answer."""
    first = next(iter(walks.values()))
    lengths = {
        f"{_PREFIX}{name}": {"acc_len": [walk.hits(at) + 1 for at in range(len(walk.tokens))]}
        for name, walk in walks.items()
    }
    ids = {"prompt_token_ids": list(prompt_ids), "generated_token_ids": list(first.tokens)}
    return {"id": str(id), **ids, **lengths}


def simulator_walks(path: Path) -> Iterator[tuple[str, tuple[int, ...], dict[str, DraftWalk]]]:
    """(id, prompt ids, walk by name) of each row.

    Drafts that are wrong are known to be that and no more (`UNKNOWN`). A walk holds `MOST` drafts or as many as the
    longest length of the whole file: behind those that are accepted all are taken to be wrong, as the simulator takes
    them, for the file does not say how many were tried. Raises `UserError` for a bad line.
    """
    most: dict[str, int] = {}
    for row in _rows(path):
        for name, lengths in _lengths(row).items():
            most[name] = max(most.get(name, MOST), *(length - 1 for length in lengths))
    for row in _rows(path):
        prompt, tokens = tuple(row["prompt_token_ids"]), tuple(row["generated_token_ids"])
        walks = {name: _walk(name, prompt, tokens, each, most[name]) for name, each in _lengths(row).items()}
        yield str(row["id"]), prompt, walks


def is_simulator(path: Path) -> bool:
    """Whether a file begins as such rows do."""
    with path.open("rb") as file:
        head = file.read(65536)
    return head.startswith(b'{"id": ') and b'"prompt_token_ids": ' in head and b'"kind": ' not in head


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, start=1):
            try:
                row = json.loads(text)
                for name in ("prompt_token_ids", "generated_token_ids"):
                    row[name] = [int(token) for token in row[name]]
                row["id"], _lengths(row)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UserError(
                    f"{str(path)!r}, line {number}: {error!r}; expected an object with id, prompt_token_ids, "
                    "generated_token_ids and acc_NAME: {acc_len}"
                ) from None
            yield row


def _lengths(row: Mapping[str, Any]) -> dict[str, list[int]]:
    """acc_len by name; a row with a plain `acc` has one without a name."""
    named = {name.removeprefix(_PREFIX): value for name, value in row.items() if name.startswith(_PREFIX)}
    if not named:
        named = {"drafts": row["acc"]}
    return {name: [int(length) for length in value["acc_len"]] for name, value in named.items()}


def _walk(name: str, prompt: tuple[int, ...], tokens: tuple[int, ...], lengths: Sequence[int], most: int) -> DraftWalk:
    ahead = []
    for at in range(len(tokens)):
        room = len(tokens) - at - 1
        hits = min(lengths[at] - 1, room) if at < len(lengths) else 0
        wrong = (UNKNOWN,) * (min(most, room) - hits)
        ahead.append(PositionDraft((*tokens[at : at + hits], *wrong), most=most))
    return DraftWalk(name, {"length": len(tokens)}, len(prompt), tokens, "length", tuple(ahead), "never")
