"""Rules under test: a file, the name of a bundled rule file, or rules in Python. Each is loaded once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from projections.api import load, loads
from projections.errors import UsageError
from projections.language.bundled import bundled
from projections.language.including import Watched
from projections.language.ruleset import RuleSet

__all__ = ["DEFAULTS", "rules_of"]

DEFAULTS = ("rules.yaml", "rules.yml", "rules.json")


def rules_of(rules: str | Path | Mapping[str, Any] | None, beside: Path) -> RuleSet:
    """Return the rules of a test. `beside` is where relative paths begin, and where `rules.yaml` is the default.

    Raises UsageError if there is no such file, RulesError with every mistake in it.
    """
    if isinstance(rules, Mapping):
        return _of_text(json.dumps(rules, default=str))
    path = _found(rules, beside)
    return _of_file(path, _watched(path).stamp())


@lru_cache
def _of_text(text: str) -> RuleSet:
    return loads(text, "<rules in the test>")


@lru_cache
def _of_file(path: Path, changed: object) -> RuleSet:
    _watched(path).refresh()
    return load(path)


@lru_cache
def _watched(path: Path) -> Watched:
    return Watched(path)


def _found(rules: str | Path | None, beside: Path) -> Path:
    if rules is None:
        found = next((beside / name for name in DEFAULTS if (beside / name).is_file()), None)
        if found is None:
            raise UsageError(
                f"no rule file: there is no rules.yaml in {beside}. Set projections_rules in pytest's configuration, or "
                'pass --projections-rules FILE, @pytest.mark.projections(rules="FILE"), or `rules: FILE` in a case file'
            )
        return found
    path = beside / rules
    if path.is_file():
        return path
    shipped = bundled(str(rules))
    if shipped is not None:
        return shipped
    raise UsageError(f"no rule file {str(rules)!r}: {path} does not exist")
