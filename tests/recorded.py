"""What the product did when somebody last looked: compared with a file, as it is.

A test of what a rule or a report should do says why a number is right. This says that it is the number of before: what
users measured with an earlier version stays comparable. A change that is meant is written down again with RECORD=1, and
the commit says why.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def check_recorded(path: Path, found: Mapping[str, Any]) -> None:
    """Compare values by name with a JSON file; with RECORD=1 write the file."""
    if os.environ.get("RECORD"):
        path.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    recorded = json.loads(path.read_text(encoding="utf-8"))
    assert [*recorded] == [*found]
    changed = {name: (recorded[name], value) for name, value in found.items() if value != recorded[name]}
    assert not changed, "\n".join(f"{name}\n  was {was}\n  is  {now}" for name, (was, now) in changed.items())
