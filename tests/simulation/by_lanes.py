"""The rule files of this project, with a half of the aggregates that lanes can count counted by lanes.

`python tests/simulation/by_lanes.py DIRECTORY` writes them, and prints their paths: for `make simulate`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from projections.language.loader import load
from projections.language.measures import ADDED
from projections.language.program import Program
from projections.language.rules import AggregateRule

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "projections/rules/social.yaml", *sorted((ROOT / "tests/simulation/rules").glob("*.yaml"))]


def by_lanes(document: Mapping[str, Any], draw: Random) -> Mapping[str, Any] | None:
    """The document with a half of the aggregates, and at least one, counted by lanes; None if lanes can count none."""
    projections = document["projections"]
    names = [
        name
        for name, rule in Program.from_document(document).rules.items()
        if type(rule) is AggregateRule and all(measure.function in ADDED for measure in rule.measures)
    ]
    if not names:
        return None
    chosen = draw.sample(names, (len(names) + 1) // 2)
    changed = {
        name: {**projections[name], "aggregate": {**projections[name]["aggregate"], "ledger": "lanes"}}
        for name in chosen
    }
    return {**document, "projections": {**projections, **changed}}


def documents() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each file of which lanes count a part, by name."""
    for path in FILES:
        document = by_lanes(load(path).document(), Random(path.stem))
        if document is not None:
            yield path.stem, document


if __name__ == "__main__":
    for name, document in documents():
        path = Path(sys.argv[1]) / f"{name}.yaml"
        path.write_text(json.dumps(document))
        print(path)
