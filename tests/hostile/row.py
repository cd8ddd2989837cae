"""What a row of the table is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Door = Literal["infer", "ablate", "report", "session", "script", "python"]
Content = str | bytes
Act = Callable[[Path], object]


@dataclass(frozen=True, slots=True)
class Row:
    """What is brought to a door, and what comes of it.

    given: arguments of a command line, lines typed into a session, the path of a script, or a call. says: all are
    in what was printed, numbers and names as whole words. never: none is. files: written into the row's folder, where
    everything runs, before; a function instead of texts may write what it likes. makes: patterns of the only files
    that may appear or change there.
    """

    door: Door
    given: tuple[str, ...] | Act
    status: int
    says: tuple[object, ...] = ()
    files: Mapping[str, Content] | Act = field(default_factory=dict)
    never: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    name: str = ""

    @property
    def title(self) -> str:
        """For a test's name, in ASCII and short."""
        words = self.name or ("call" if callable(self.given) else " ".join(self.given)[:200])
        return f"{self.door} {ascii(words)[1:-1][:60]}"

    def write(self, folder: Path) -> None:
        """Put its files into the folder."""
        if callable(self.files):
            self.files(folder)
            return
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
