"""On which line of a plan file a key stands: tomllib does not say."""

import re

_HEADER = re.compile(r"\[{1,2}([^\[\]#]+)\]{1,2}\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")

_Place = tuple[str, int, str]


class PlanLines:
    """Line numbers of keys and tables, from 1. A text that is no TOML gives numbers that mean nothing.

    Example: "length = 64\\n[[methods]]\\ngamma = 4" -> line("gamma", "methods", 1) is 3.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[_Place, int] = {}
        table, seen = "", dict[str, int]()
        for number, line in enumerate(text.split("\n"), start=1):
            if header := _HEADER.match(line.strip()):
                table = _bare(header[1])
                seen[table] = seen.get(table, 0) + 1
                self._lines.setdefault((table, seen[table], ""), number)
            elif key := _KEY.match(line):
                self._lines.setdefault((table, seen.get(table, 1), _bare(key[1])), number)

    def line(self, key: str, table: str = "", place: int = 1) -> int | None:
        """The line of a key in the table that is the `place`-th of its name; key "": the table itself; None: nowhere.

        A key that is written in another way, as in an inline table, is where its table begins.
        """
        inside = [(table, place, key), ("", 1, f"{table}.{key}"), (table, place, ""), ("", 1, table)]
        tries = inside if table else [("", 1, key), (key, 1, "")]
        return next((self._lines[number] for number in tries if number in self._lines), None)


def _bare(key: str) -> str:
    """A dotted key without its quotes and spaces."""
    return ".".join(part.strip().strip("\"'") for part in key.split("."))
