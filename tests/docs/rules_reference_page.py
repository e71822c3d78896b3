"""docs/rules-reference.md: its lists of keys, from the JSON Schema that `projections check --schema` prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from guide import DOCS

from projections.language.schema import json_schema

__all__ = ["MARKED", "rules_reference_page"]

MARKED = re.compile(r"^<!-- keys: (\w+) -->\n(?:\n(?:- `.*\n)+)?", re.MULTILINE)
"""A comment with the name of a definition (`Rules`: the file), and the list below it, if there is one."""


def rules_reference_page() -> str:
    """Return the page with its lists of keys written again. The rest of it is written by hand."""
    schema = json_schema()
    definitions = {**schema["$defs"], "Rules": schema}
    text = (DOCS / "rules-reference.md").read_text(encoding="utf-8")
    return MARKED.sub(lambda found: _list(definitions, found[1]), text)


def _list(definitions: Mapping[str, Any], name: str) -> str:
    omitted = definitions["WriteStep"]["properties"] if name == "WritePattern" else ()
    rows = "\n".join(_rows(definitions[name], omitted))
    return f"<!-- keys: {name} -->\n\n{rows}\n"


def _rows(definition: Mapping[str, Any], omitted: Any) -> Iterator[str]:
    for name, value in definition["properties"].items():
        if name in omitted:
            continue
        if name in definition.get("required", ()):
            default = " (required)"
        elif value.get("default") in (None, [], {}):
            default = ""
        else:
            default = f" (default `{json.dumps(value['default'])}`)".replace('"', "")
        meaning = value["description"]
        if "enum" in value:
            meaning += f" One of {', '.join(f'`{one}`' for one in value['enum'])}."
        yield f"- `{name}`{default}: {meaning}".replace("\n", " ")
