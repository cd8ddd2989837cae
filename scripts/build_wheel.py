"""The wheel: the packages of this checkout under one name, so that none of theirs is taken in site-packages.

Hatchling runs this for `uv build`. Imports are rewritten (`utils.text` -> `speculative_workbench.utils.text`), and what
messages tell to type (`uv run infer.py` -> `speculative-workbench`). An editable install finds the checkout itself and
gets the command alone.
"""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "speculative_workbench"
PACKAGES = ("sampling", "ngram_assisted", "egag", "utils", "repl", "ablation", "serve", "engines")
FILES = ("infer.py", "models")
"""What comes along unchanged in place: heads, their cards and the distilled drafter lie beside the packages."""
_TEXTS = (".py", ".toml", ".j2", ".html", ".md")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")

_PACKAGE = "|".join(PACKAGES)
_FROM = re.compile(rf"^(\s*)from ({_PACKAGE})(?=[.\s])", re.MULTILINE)
_IMPORT = re.compile(rf"^(\s*)import ({_PACKAGE})(?=\.)", re.MULTILINE)
_IMPORT_ALONE = re.compile(rf"^(\s*)import ({_PACKAGE})[ \t]*$", re.MULTILINE)
_DOTTED = re.compile(rf"""(?<=["'])(?=((?:{_PACKAGE})(?:\.\w+)*)\b)""")
_TYPED = (
    (re.compile(r'"uv", "run", "infer\.py"'), '"speculative-workbench"'),
    (re.compile(r"(?:uv run )?scripts/run_ablation\.py"), "speculative-workbench ablate"),
    (re.compile(r"uv run infer\.py"), "speculative-workbench"),
    (re.compile(r"\binfer\.py(?= [a-z-])"), "speculative-workbench"),
)
_MAIN = f'''"""The command: `speculative-workbench`, `python -m {NAME}`."""

from {{place}}infer import main

if __name__ == "__main__":
    main()
'''


class Hook(BuildHookInterface):  # type: ignore[misc]
    """What hatchling calls before and behind a build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the package to a folder of its own and have it put into the wheel."""
        self._folder = Path(tempfile.mkdtemp(prefix="wheel-"))
        write = write_command if version == "editable" else write_package
        write(Path(self.root), self._folder / NAME)
        key = "force_include_editable" if version == "editable" else "force_include"
        build_data[key][str(self._folder / NAME)] = NAME

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The folder has been read."""
        shutil.rmtree(self._folder)


def write_package(root: Path, folder: Path) -> None:
    """All packages of a checkout as packages of one, `folder`, which is made."""
    write_command(root, folder, f"{NAME}.")
    for name in (*PACKAGES, *FILES):
        source = root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=_LEFT_OUT)
        else:
            shutil.copy(source, folder / name)
    for path in folder.rglob("*"):
        if path.suffix in _TEXTS and path.name != "__main__.py":
            text = path.read_text(encoding="utf-8")
            path.write_text(moved(text, root) if path.suffix == ".py" else _typed(text), encoding="utf-8")


def write_command(root: Path, folder: Path, place: str = "") -> None:
    """The package with its command alone. place: what stands before `infer`."""
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f'"""{NAME}."""\n', encoding="utf-8")
    (folder / "__main__.py").write_text(_MAIN.format(place=place), encoding="utf-8")


def moved(text: str, root: Path) -> str:
    """A module's text as it stands in the wheel. root: where the packages lie, which tells modules from other words."""
    text = _FROM.sub(rf"\1from {NAME}.\2", text)
    text = _IMPORT.sub(rf"\1import {NAME}.\2", text)
    text = _IMPORT_ALONE.sub(rf"\1from {NAME} import \2", text)
    return _typed(_DOTTED.sub(lambda match: f"{NAME}." if _module(match[1], root) else "", text))


def _module(dotted: str, root: Path) -> bool:
    """Whether a dotted name is a module or a package of the checkout; one word alone is none."""
    path = root.joinpath(*dotted.split("."))
    return "." in dotted and (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file())


def _typed(text: str) -> str:
    for pattern, replacement in _TYPED:
        text = pattern.sub(replacement, text)
    return text
