"""The catalogue as data: each pattern's rules, events, what they end in, its queries with answers, and its page.

`cases/NAME.yaml` has `items`, the tables at the end, and `asks`, at least one for each query of the rule file: its
parameters (`with`), and some attributes of every item of the answer, in its order (`gives`). If it has rules of the kind
`rank`: `ranks`, at least one for each, with a score, its rank, and the total number of scores.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from projections.language.access.plan import Query, queries_of
from projections.language.loader import load
from projections.language.models import Rules
from projections.language.program import Program
from projections.local.event_source import Record
from tests.yaml_text import yaml_data

__all__ = ["PATTERNS", "Pattern"]

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Pattern:
    name: str

    @property
    def rules(self) -> Path:
        return ROOT / "projections" / "rules" / f"{self.name}.yaml"

    @property
    def events(self) -> Path:
        return ROOT / "events" / f"{self.name}.json"

    @property
    def page(self) -> Path:
        return ROOT / "docs" / "patterns" / f"{self.name}.md"

    @cached_property
    def program(self) -> Program:
        return Program.from_document(self.loaded.document())

    @cached_property
    def loaded(self) -> Rules:
        return load(self.rules)

    @cached_property
    def document(self) -> Rules:
        return self.loaded.completed()

    @cached_property
    def queries(self) -> dict[str, Query]:
        return queries_of(self.loaded)

    @cached_property
    def records(self) -> list[Record]:
        records: list[Record] = json.loads(self.events.read_text())["Records"]
        return records

    @cached_property
    def case(self) -> dict[str, Any]:
        case: dict[str, Any] = yaml_data((CASES / f"{self.name}.yaml").read_text())
        return case


PATTERNS = [Pattern(path.stem) for path in sorted(CASES.glob("*.yaml"))]
