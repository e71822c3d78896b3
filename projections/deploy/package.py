"""Build the package of the functions: `python -m projections.deploy.package RULES DIRECTORY`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import projections
from projections.errors import ProjectionsError
from projections.language.loader import load

__all__ = ["HANDLERS", "MAKEFILE", "package"]

MAKEFILE = Path(__file__).with_name("build.mk")
"""The makefile whose targets `sam build` calls."""

_LIBRARY = Path(projections.__file__).parent
_WITH_LIBRARY = Path(__file__).with_name("handlers")
HANDLERS = _WITH_LIBRARY if _WITH_LIBRARY.is_dir() else _LIBRARY.parent / "handlers"
"""The entry points: beside this file in a wheel (see `force-include` in pyproject.toml), else in the source tree."""

_NOT_DEPLOYED = shutil.ignore_patterns("__pycache__")

_DEPLOYED = {"__init__.py", "errors.py", "language", "engine", "stores", "operations", "aws"}
"""The parts of the library that the functions need."""


def package(rules: str | Path, directory: str | Path) -> None:
    """Copy library, handlers and compiled rules into a directory. Raises RulesError with all mistakes of the rules."""
    document = load(rules).canonical()
    target = Path(directory)
    shutil.copytree(_LIBRARY, target / "projections", ignore=_library_only, dirs_exist_ok=True)
    shutil.copytree(HANDLERS, target / "handlers", ignore=_NOT_DEPLOYED, dirs_exist_ok=True)
    (target / "rules.json").write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")


def _library_only(directory: str, names: list[str]) -> set[str]:
    """Return the names in a directory that are not copied."""
    others = set(names) - _DEPLOYED if Path(directory) == _LIBRARY else set()
    return {*_NOT_DEPLOYED(directory, names), *others}


if __name__ == "__main__":
    try:
        package(*sys.argv[1:])
    except ProjectionsError as error:
        sys.exit(str(error))
