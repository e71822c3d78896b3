"""docs/rule-keys.md: every key of a rule file, from the JSON Schema that `projections check --schema` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from projections.language.schema import json_schema

__all__ = ["SECTIONS", "rule_keys_page"]

INTRODUCTION = """\
# Keys of a rule file

<!-- Written by tests/docs/reference.py from the JSON Schema of rule files. -->

Every key, with its default and meaning. `projections check --schema` prints the same as a JSON Schema for editors, and
`projections init` writes it. [Rules](rules.md) explains each construct with examples.

"""

SECTIONS = {
    "Rule file": "",
    "Tables": "Table",
    "Entities": "Entity",
    "Rules": "Projection",
    "copy": "Copy",
    "aggregate": "Aggregate",
    "top": "Top",
    "latest": "Latest",
    "rank": "Rank",
    "embed": "Embed",
    "compute": "Compute",
    "Queries": "Query",
    "expect of a query": "Expect",
    "Writes": "WritePattern",
    "Items of a write": "WriteStep",
    "Operators of patterns": "Operator",
    "Comparisons of patterns": "Comparisons",
}
"""Heading → definition of the schema. `index` is a mapping from index key attribute to template, without keys of its own."""

NAMELESS = {"equals-ignore-case": "Text that is equal without regard to case."}


def rule_keys_page() -> str:
    """Return the page."""
    schema = json_schema()
    links = " · ".join(f"[{heading}](#{heading.lower().replace(' ', '-')})" for heading in SECTIONS)
    return INTRODUCTION + links + "\n" + "".join(_section(schema, *one) for one in SECTIONS.items())


def _section(schema: Mapping[str, Any], heading: str, definition: str) -> str:
    found = schema["$defs"][definition] if definition else schema
    about = found.get("description", "").replace("\n\n", " ")
    rows = "\n".join(_rows(found))
    return f"\n## {heading}\n\n{about}\n\n| key | default | meaning |\n| --- | --- | --- |\n{rows}\n".replace(
        "\n\n\n", "\n"
    )


def _rows(definition: Mapping[str, Any]) -> Iterator[str]:
    for name, value in definition["properties"].items():
        if name in definition.get("required", ()):
            default = "required"
        elif value.get("default") in (None, [], {}):
            default = ""
        else:
            default = f"`{json.dumps(value['default'])}`".replace('"', "")
        meaning = value.get("description") or NAMELESS[name]
        if "enum" in value:
            meaning += f" One of {', '.join(f'`{one}`' for one in value['enum'])}."
        yield f"| `{name}` | {default} | {meaning} |".replace("\n", " ")
