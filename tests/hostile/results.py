"""Results files and manifests: reported, and gone on with."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablation.plan.grid import Configuration
from ablation.results.table import columns, row
from tests.ablation.playing import play, results_file
from tests.ablation.synthetic import PLAIN as AR
from tests.ablation.synthetic import record
from tests.hostile.row import Row

_SD = Configuration("speculative", (("gamma", 4),))
_COUNTS = {"rounds": 4, "drafted": 8, "tested": 6, "accepted": 4}
_MADE = ("r.report/*",)


def _csv(*rows: dict[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _cells(configuration: Configuration = _SD, /, **changes: Any) -> dict[str, Any]:
    return {**row(record(configuration, **_COUNTS)), **changes}


def _report(content: str | bytes, *says: object, name: str = "", manifest: str | None = None) -> Row:
    files: dict[str, str | bytes] = {"r.csv": content}
    if manifest is not None:
        files["r.manifest.json"] = manifest
    return Row("report", ("r.csv",), 2, says, files=files, name=name or str(says[-1]))


# A row that no run writes: (what is changed, what is said).
_NONSENSE: list[tuple[dict[str, Any], tuple[object, ...]]] = [
    ({"method": "medusaa"}, ("method: 'medusaa'", "target")),
    ({"method": "\x1b[2J"}, ("method: '",)),
    ({"divergence_verdict": "faster"}, ("divergence_verdict: 'faster'", "exact, tie, BUG")),
    ({"divergence_verdict": "EXACT"}, ("divergence_verdict: 'EXACT'",)),
    ({"lossless": "maybe"}, ("lossless: 'maybe'", "true, false")),
    ({"finish_reason": "tired"}, ("finish_reason: 'tired'", "stop, length, context")),
    ({"accepted": 7}, ("accepted: 7", "tested", 6)),
    ({"tested": 9}, ("tested: 9", "drafted", 8)),
    ({"accepted": 5, "new_tokens": 4}, ("accepted: 5", "new_tokens", 4)),
    ({"target_weights": "int9"}, ("target_weights: 'int9'", "full, int8, int4")),
    ({"drafted": -1}, ("drafted: -1", 0)),
    ({"new_tokens": -8}, ("new_tokens: -8",)),
    ({"rounds": "-1"}, ("rounds: -1",)),
    ({"decode_s": "-1"}, ("decode_s: -1",)),
]
_ODD: list[tuple[dict[str, Any], tuple[object, ...]]] = [
    ({"tokens_per_s": "inf"}, ("tokens_per_s",)),
    ({"speedup": "-inf"}, ("speedup",)),
    ({"decode_s": "fast"}, ("fast",)),
    ({"turn": "first"}, ("first",)),
    ({"turn": "1.5"}, ("r.csv",)),
    ({"repeat": ""}, ("r.csv",)),
    ({"drafted": "x" * 100_000}, ("r.csv",)),
]


def _resume(changes: dict[str, Any]) -> Callable[[Path], object]:
    """A run that goes on with a file in which a row was changed."""

    def files(folder: Path) -> None:
        path = folder / "r.csv"
        play(path)
        with path.open(encoding="utf-8", newline="") as file:
            first, *others = csv.DictReader(file)
        path.write_text(_csv({**first, **_COUNTS, "new_tokens": 8, **changes}, *others), encoding="utf-8")

    return files


def _go_on(folder: Path) -> object:
    with results_file(folder / "r.csv", resume=True):
        return "went on"


def _with_manifest(content: str) -> Callable[[Path], object]:
    def files(folder: Path) -> None:
        play(folder / "r.csv")
        (folder / "r.manifest.json").write_text(content)

    return files


_LOCK = (".r.csv.lock",)
_STEERING = {"id": "\x1b[2J\x07|", "task": "\x1b]0;t\x07\u202e", "configuration": "a\x1b[2J", "error": ""}
_GOOD = _csv(_cells(AR, accepted=0, tested=0, drafted=0), _cells(**_STEERING))


def _escaped(folder: Path) -> str:
    """The report of a file whose words would steer a terminal, as it is written."""
    from ablation.report.write import write_report

    write_report(folder / "r.csv")
    return "".join((folder / "r.report" / name).read_text() for name in ("report.md", "summary.csv", "pairs.csv"))[
        :3000
    ].replace("\n", " \n")


ROWS = [
    *(_report(_csv(_cells(AR), _cells(**c)), "'r.csv', record 3", *says) for c, says in _NONSENSE),
    *(_report(_csv(_cells(AR), _cells(**c)), "'r.csv'", *says, name=f"odd {c}"[:50]) for c, says in _ODD),
    *(
        Row("python", _go_on, 2, ("r.csv", *says), _resume(c), makes=_LOCK, name=f"resume {says[0]}")
        for c, says in (*_NONSENSE[2:], *_ODD)
    ),
    *(
        _report(_csv(_cells(AR), _cells(**{name: ""})), "'r.csv', record 3", name)
        for name in ("id", "configuration", "processor")
    ),
    Row("report", ("r.csv",), 0, ("greedy, n = 1 prompt",), makes=_MADE, name="a task all, an odd name", files={
        "r.csv": _csv(_cells(AR, task="all", tested=0, accepted=0, drafted=0), _cells(task="all", configuration="a=²"))
    }),
    _report(_csv(_cells(AR), _cells(seed="9" * 20)), "'r.csv' is not a results file", name="a huge seed"),
    # files that are none
    _report("", "'r.csv' is empty"),
    _report("\n\n", "'r.csv' is empty"),
    _report("a,b\n1,2\n", "is not a results file: it has no column id"),
    _report(b"\xff\xfe\x00\n", "is not a results file"),
    _report("x" * 5_000_000 + "\n", "is not a results file", name="5 MB of one line"),
    _report(",".join(columns()) + "\n", "holds no row yet"),
    _report(_csv(_cells())[:-5], "ends in a torn row"),
    _report(_csv(_cells()) + '"', "ends in a torn row", name="an open quote"),
    _report(_csv(_cells()) + "1,2\n", "r.csv", name="a short row"),
    _report(_csv(_cells(), _cells()), "holds a generation twice"),
    Row("report", (".",), 2, ("'.' cannot be read: it is a folder",)),
    Row("report", ("none.csv",), 2, ("'none.csv' cannot be read: No such file",)),
    Row("report", ("n" * 5000 + ".csv",), 2, ("File name too long",)),
    Row("report", ("\x1b[2J.csv",), 2, ("'\\x1b[2J.csv' cannot be read",)),
    Row("report", ("r.csv", "--out", "r.csv"), 2, ("r.csv",), files={"r.csv": _GOOD}),
    Row("report", ("r.csv", "s.csv"), 2, ("'s.csv'",)),
    Row("report", ("--out",), 2, ("'--out' requires an argument",)),
    # manifests
    *(
        _report(_GOOD, "r.manifest.json", *says, manifest=manifest, name=f"manifest {manifest[:20]}")
        for manifest, says in (
            ("", ("not JSON",)),
            ("{", ("not JSON",)),
            ("[]", ("is not a manifest",)),
            ("{}", ("is not a manifest",)),
            ('{"fixed": 3, "runs": []}', ("is not a manifest",)),
            ('{"fixed": {}, "runs": {}}', ("is not a manifest",)),
            ('{"fixed": {}, "fixed": {}, "runs": []}', ("key 'fixed' is there twice",)),
            ('{"fixed": {}, "runs": ' + "[" * 50_000 + "]" * 50_000 + "}", ("nested too deep",)),
            ('{"fixed": {"a": NaN}, "runs": []}', ("NaN",)),
            ('{"quality": [], "fixed": {}, "runs": []}', ("quality: []", "an object")),
            ('{"profile": [], "fixed": {}, "runs": []}', ("profile: []", "an object")),
            ('{"profile": {"full": 3}, "fixed": {}, "runs": []}', ("profile: 3", "an object with forward")),
            ('{"quality": {"\\u001b[2J": 3}, "fixed": {}, "runs": []}', ("quality of '\\x1b[2J': prompts: ''",)),
        )
    ),
    *(
        Row("python", _go_on, 2, says, _with_manifest(manifest), makes=_LOCK, name=f"resume, manifest {manifest[:30]}")
        for manifest, says in (
            ("", ("cannot be read: not JSON",)),
            ("{}", ("is not a manifest",)),
            ("[" * 50_000, ("nested too deep",)),
            ('{"fixed": {"grid": 3, "target": "x", "heads": []}, "runs": []}', ("this run differs", "grid: 3 then")),
        )
    ),
    # words that would steer a terminal
    Row("report", ("r.csv",), 0, ("a\\x1b[2J",), files={"r.csv": _GOOD}, makes=_MADE),
    Row("python", _escaped, 0, ("a\\",), files={"r.csv": _GOOD}, makes=_MADE, name="report.md and summary.csv"),
]  # fmt: skip


def _chosen(fixed: Any) -> Callable[[Path], object]:
    def act(folder: Path) -> object:
        from ablation.results.chosen import chosen
        from tests.ablation.mock_engine import mock_plan

        (folder / "m.json").write_text(json.dumps({"fixed": fixed, "runs": []}))
        return chosen(folder / "m.json", mock_plan())

    return act


ROWS += [
    Row(
        "python",
        _chosen(fixed),
        0,
        ("Chosen(kernel=None, batch_invariant=None, rough=None, dtype=None)",),
        makes=("m.json",),
        name=f"chosen {fixed}",
    )
    for fixed in (
        {"target": 3, "drafter": [], "grid": 3},
        {"target": {"kernel": ["packed"]}, "grid": {"configurations": []}},
        {"grid": {"configurations": {"speculative gamma=2": {"draft_weights": ["int8"]}}}},
    )
]
