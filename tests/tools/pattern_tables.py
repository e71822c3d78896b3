"""Tables of the shipped patterns with many items: the sample events' items again under other ids, with other values."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from projections.init.proposal import Table
from projections.language.keys import ItemKey
from projections.language.loader import load
from projections.language.program import Program
from projections.language.values import number_text
from projections.testing.oracle import Oracle

ROOT = Path(__file__).parents[2]
PATTERNS = sorted(path.stem for path in (ROOT / "projections" / "rules").glob("*.yaml") if "migrat" not in path.stem)
Item = dict[str, dict[str, Any]]

_TIME = re.compile(r"(\d{4}-\d\d-)\d\d|\d{4}-\d\d")
_NAME = re.compile(r"/|[A-Z]?[a-z]+ |[A-Z][a-z]")
_KEPT = 0.7


class Grown:
    """A table with all values that the pattern's rules derive, computed by the oracle."""

    def __init__(self, pattern: str, copies: int = 14, seed: int = 1) -> None:
        canonical = load(ROOT / "projections" / "rules" / f"{pattern}.yaml").document()
        self.program, oracle = Program.from_document(canonical), Oracle(canonical)
        ((self.name, self.schema),) = self.program.tables.items()
        own = self._own(pattern)
        chance = random.Random(seed)
        ids = {text for _, variables in own for text in variables if not _TIME.match(text) and not text.isdecimal()}
        self._ids = re.compile("|".join(rf"(?<![\w-]){re.escape(text)}(?![\w-])" for text in sorted(ids)) or "(?!)")
        items = [
            {name: self._varied(value, number, chance) for name, value in item.items()}
            for number in range(copies)
            for item, variables in own
            if len(variables) < 2 or chance.random() < _KEPT
        ]
        expected = oracle.expect({self.name: items}).items
        self.items = sorted(({**item} for item in expected.values()), key=lambda item: json.dumps(item, sort_keys=True))
        keys = tuple(key for key in (self.schema.partition, self.schema.sort) if key)
        self.table = Table(self.name, keys, self.schema.indexes, self.schema.ttl)

    def _own(self, pattern: str) -> list[tuple[Item, list[str]]]:
        """The application's items of the sample events, with the values of their key variables."""
        found: dict[ItemKey, Item] = {}
        for record in json.loads((ROOT / "events" / f"{pattern}.json").read_text())["Records"]:
            image = record["dynamodb"].get("NewImage")
            if image is not None:
                found[self.schema.key(self.name, image)] = image
        known = [(image, self.program.recognise(key, image)) for key, image in found.items()]
        return [(image, list(one.variables.values())) for image, one in known if one]

    def _varied(self, value: Any, number: int, chance: random.Random) -> Any:
        ((kind, content),) = value.items()
        if kind == "N" and abs(Decimal(content)) < 10**8:
            changed = Decimal(content) * Decimal(chance.randint(50, 200)) / 100
            return {"N": number_text(changed.quantize(Decimal(content)))}
        if kind == "S":
            return {"S": self._text(content, number)}
        if kind == "SS":
            return {"SS": [self._text(text, number) for text in content]}
        if kind == "L":
            return {"L": [self._varied(one, number, chance) for one in content]}
        if kind == "M":
            return {"M": {name: self._varied(one, number, chance) for name, one in content.items()}}
        return value

    def _text(self, text: str, number: int) -> str:
        changed = self._ids.sub(lambda found: f"{found[0]}x{number:02d}", text)
        changed = _TIME.sub(lambda found: f"{found[1]}{number + 1:02d}" if found[1] else found[0], changed)
        return f"{changed} {number:02d}" if changed == text and _NAME.match(text) else changed

    def derived(self) -> set[tuple[str, str]]:
        """(rule, attribute) of all values that are written to items."""
        return {(name, attribute) for name, rule in self.program.rules.items() for attribute in rule.owned()}
