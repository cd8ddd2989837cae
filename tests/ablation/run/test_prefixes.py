"""The prefix cache in runs: what records say of it, and that runs do not depend on each other."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.ablation.conftest import Invoke, objects, write_lines

LINES = [{"id": number, "turns": [f"The same words before question {number}", "and then?"]} for number in range(3)]
METHODS = ("--methods", "target,speculative,prompt_lookup", "--length", 6, "--json")


def records_of(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return objects(result.stdout)


@pytest.mark.parametrize("batch", [(), ("--batch", "1,2")])
def test_records_of_a_run(batch: tuple[str, ...], invoke: Invoke, tmp_path: Path) -> None:
    prompts = write_lines(tmp_path / "p.jsonl", *LINES)
    kept, plain = (
        records_of(invoke("run", "--prompts", prompts, *METHODS, *batch, "--prefix-cache", word))
        for word in ("on", "off")
    )
    assert len(kept) == len(plain) == 18 * (len(batch) or 1)
    order = lambda record: (record["batch"], record["configuration"], record["id"], record["turn"])  # noqa: E731
    for record, without in zip(sorted(kept, key=order), sorted(plain, key=order), strict=True):
        assert record["output_ids"] == without["output_ids"]
        assert record["settings"]["prefix_cache"] is True and without["settings"]["prefix_cache"] is False
        assert without["prefix_hits"] is without["prefill_saved_ms"] is None
        assert (record["prefill_saved_ms"] > 0) is (record["prefix_hits"] > 0)
        for one in (record, without):
            drafts = one["method"] == "speculative"
            assert (one["reread_target"] is None) is (one["turn"] == 1)
            assert (one["reread_drafter"] is None) is (one["turn"] == 1 or not drafts)
        if record["turn"] == 2:
            assert record["prefix_hits"] > 30 and record["reread_target"] <= 1 < 30 < without["reread_target"]
            assert not record["reread_drafter"] or record["reread_drafter"] <= 8 < 30 < without["reread_drafter"]


def test_what_a_run_takes_over_is_its_own(invoke: Invoke, tmp_path: Path) -> None:
    """The first prompt of each configuration finds nothing, whoever ran before; the second finds what is alike."""
    prompts = write_lines(tmp_path / "p.jsonl", *({**line, "turns": line["turns"][:1]} for line in LINES))
    found = records_of(
        invoke("run", "--prompts", prompts, *METHODS, "--batch", 1, "--prefix-cache", "on", "--repeat", 2)
    )
    assert len(found) == 18
    for number, least, most in ((0, 0, 0), (1, 20, 60), (2, 20, 60)):
        hits = {record["prefix_hits"] for record in found if record["id"] == number}
        assert len(hits) == 1 and least <= hits.pop() <= most
