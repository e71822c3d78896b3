"""Rules under test: a file, a name of rules that ship, or rules written in Python. Each is compiled once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from projections.errors import UsageError
from projections.language.loader import load, loads
from projections.language.program import Program

__all__ = ["DEFAULTS", "Rulebook", "rulebook"]

DEFAULTS = ("rules.yaml", "rules.yml", "rules.json")

SHIPPED = Path(__file__).parents[1] / "rules"


class Rulebook:
    """Compiled rules; `path` is where they are from, None if they were written in Python."""

    def __init__(self, document: dict[str, Any], path: Path | None) -> None:
        self.document = document
        self.program = Program.from_document(document)
        self.path = path


def rulebook(rules: str | Path | Mapping[str, Any] | None, beside: Path) -> Rulebook:
    """The rules that are meant; a relative path begins at `beside`, where the default `rules.yaml` is looked for too.

    Raises UsageError if there is no such file, RulesError with every mistake in it.
    """
    if isinstance(rules, Mapping):
        return _of_text(json.dumps(rules, default=str))
    path = _found(rules, beside)
    return _of_file(path, path.stat().st_mtime_ns)


@lru_cache
def _of_text(text: str) -> Rulebook:
    return Rulebook(loads(text, "<rules in the test>").canonical(), None)


@lru_cache
def _of_file(path: Path, changed: int) -> Rulebook:
    return Rulebook(load(path).canonical(), path)


def _found(rules: str | Path | None, beside: Path) -> Path:
    if rules is None:
        found = next((beside / name for name in DEFAULTS if (beside / name).is_file()), None)
        if found is None:
            raise UsageError(
                f"which rules? There is no rules.yaml in {beside}; set projections_rules in pytest's configuration, or say "
                '--projections-rules FILE, @pytest.mark.projections(rules="FILE"), or `rules: FILE` in a case file'
            )
        return found
    path = beside / rules
    if path.is_file():
        return path
    if str(rules).isidentifier() and (SHIPPED / f"{rules}.yaml").is_file():
        return SHIPPED / f"{rules}.yaml"
    raise UsageError(f"rules {str(rules)!r}: there is no file {path}")
