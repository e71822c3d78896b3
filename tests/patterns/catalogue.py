"""The catalogue as data: each pattern's rules, events, what they end in, what an application asks, and its page.

`cases/NAME.yaml` holds `items`, the tables in the end, and `asks`: for each line of the page's table of access patterns one
Query. `of` is the partition, `index` where it is, `begins` how sort keys begin, `from` and `order` as one would say them;
`gives` lists some attributes of every item of the answer, in its order, and `table` says which of several it is asked of.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from projections.language.loader import load
from projections.language.program import Program
from projections.local.event_source.stream import Record

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
        return Program.from_document(load(self.rules).canonical())

    @cached_property
    def records(self) -> list[Record]:
        records: list[Record] = json.loads(self.events.read_text())["Records"]
        return records

    @cached_property
    def case(self) -> dict[str, Any]:
        case: dict[str, Any] = YAML(typ="safe").load(CASES / f"{self.name}.yaml")
        return case


PATTERNS = [Pattern(path.stem) for path in sorted(CASES.glob("*.yaml"))]
