"""What a manifest knows of the quality of formats: written, read back, refused where it is none."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from ablation.results.manifest import add_quality, qualities, read, write
from sampling.measure.quality import Quality
from tests.refusals import refused

INT8 = Quality(2, 40, 0.94, 0.9, 0.97, 0.005, 0.004, 0.006, 2.5, 2.4, 2.6, 2.45, 2.4, 2.5, 300_000_000, 600_000_000)
ALONE = replace(INT8, prompts=1, same_low=None, same_high=None, kl_low=None, kl_high=None)


def manifest() -> dict[str, Any]:
    return {"fixed": {}, "runs": []}


def test_qualities_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = manifest()
    add_quality(made, "int8", ALONE)
    add_quality(made, "int4", ALONE)
    add_quality(made, "int8", INT8)
    write(tmp_path / "m.json", made)
    assert qualities(read(tmp_path / "m.json")) == {"int8": INT8, "int4": ALONE}


def test_a_manifest_of_an_older_version_knows_none(tmp_path: Path) -> None:
    write(tmp_path / "m.json", manifest())
    assert qualities(read(tmp_path / "m.json")) == qualities(None) == {}


@pytest.mark.parametrize(
    ("known", "quoted"),
    [
        (3, ("quality", 3)),
        ({"int8": 3}, ("'int8'", "prompts", "''")),
        ({"int8": {**asdict(INT8), "same": "high"}}, ("'int8'", "same", "'high'", 0)),
        ({"int8": {**asdict(INT8), "same": None}}, ("'int8'", "same", None, 0)),
        ({"int8": {**asdict(INT8), "full_weight_bytes": 0}}, ("'int8'", "full_weight_bytes", 0, 1)),
        ({"int8": {**asdict(INT8), "kl": -0.1}}, ("'int8'", "kl", -0.1, 0)),
        ({"int8": {**asdict(INT8), "tokens": 1.5}}, ("'int8'", "tokens", 1.5)),
        ({"int8": {**asdict(INT8), "tokens": True}}, ("'int8'", "tokens", True)),
        (
            {"int8": {name: value for name, value in asdict(INT8).items() if name != "kl_low"}},
            ("'int8'", "kl_low", "''"),
        ),
    ],
)
def test_what_is_no_quality_is_refused(tmp_path: Path, known: object, quoted: tuple[object, ...]) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps({**manifest(), "quality": known}), encoding="utf-8")
    with refused(path, *quoted):
        read(path)


def test_a_number_beyond_all_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    text = json.dumps({**manifest(), "quality": {"int8": asdict(INT8)}}).replace('"kl": 0.005', '"kl": 1e999')
    path.write_text(text, encoding="utf-8")
    with refused(path, "'int8'", "kl", "inf"):
        read(path)
