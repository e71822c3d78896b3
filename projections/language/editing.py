"""Changes a part of a YAML or JSON text and leaves all other characters as they are, with comments and layout.

The nodes of ruamel.yaml have the places. Its round-trip writer is not used: it writes `{a: 1}` for `{ a: 1 }`, and removes
the spaces with which people align columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from projections.errors import ProjectionsError
from projections.language.yaml_text import block, flow, name

__all__ = ["LayoutError", "with_merged", "without"]

Path = tuple[str, ...]
_COMMENT = re.compile(r"(?:^|\s)#")


class LayoutError(ProjectionsError):
    """A change would lose comments or the layout of the text."""


def with_merged(text: str, path: Path, value: Any, *, as_json: bool = False) -> str:
    """Return the text with a value merged into the part at `path`: mappings are merged, other values replaced.

    Raises LayoutError if the part cannot be changed without loss.
    """
    around, entry, rest = _found(text, path)
    if entry is not None and isinstance(entry[1], MappingNode) and isinstance(value, Mapping):
        for key, inner in value.items():
            text = with_merged(text, (*path, str(key)), inner, as_json=as_json)
        return text
    if entry is not None:
        return _replaced(text, entry, value, as_json)
    for key in reversed(rest[1:]):
        value = {key: value}
    return _added(text, around, rest[0], value, as_json)


def without(text: str, path: Path) -> str:
    """Return the text without an entry of a mapping. Raises LayoutError if it is the only one of its mapping."""
    around, entry, _ = _found(text, path)
    if entry is None:
        return text
    position = around.value.index(entry)
    if len(around.value) == 1:
        raise LayoutError(f"{'.'.join(path)} is the only entry of its mapping")
    if not around.flow_style:
        start = text.rfind("\n", 0, entry[0].start_mark.index) + 1
        return text[:start] + text[_line_end(text, _end(text, entry[1])) + 1 :]
    if position + 1 < len(around.value):
        return text[: entry[0].start_mark.index] + text[around.value[position + 1][0].start_mark.index :]
    return text[: _end(text, around.value[position - 1][1])] + text[_end(text, entry[1]) :]


Entry = tuple[Node, Node]


def _found(text: str, path: Path) -> tuple[MappingNode, Entry | None, Path]:
    """Return the innermost mapping on the way to `path`; the entry at `path`, or None and the steps that do not exist."""
    node = YAML(typ="safe", pure=True).compose(text)
    if not isinstance(node, MappingNode):
        raise LayoutError("the file is not a mapping")
    for position, step in enumerate(path):
        entry = next((one for one in node.value if isinstance(one[0], ScalarNode) and one[0].value == step), None)
        if entry is None:
            return node, None, path[position:]
        if position + 1 == len(path):
            return node, entry, ()
        if not isinstance(entry[1], MappingNode):
            raise LayoutError(f"{'.'.join(path[: position + 1])} has no names")
        node = entry[1]
    raise LayoutError("nothing to change")


def _written(value: Any, as_json: bool) -> str:
    return json.dumps(value, ensure_ascii=False) if as_json else flow(value)


def _replaced(text: str, entry: Entry, value: Any, as_json: bool) -> str:
    key, old = entry
    begin = text.index(":", key.end_mark.index) + 1
    end = max(_end(text, old), begin)
    if _COMMENT.search(text[begin:end]):
        raise LayoutError(f"{key.value} has comments inside, which a new value would lose")
    return f"{text[:begin]} {_written(value, as_json)}{text[end:]}"


def _added(text: str, around: MappingNode, key: str, value: Any, as_json: bool) -> str:
    if around.flow_style:
        new = f"{json.dumps(key, ensure_ascii=False) if as_json else name(key)}: {_written(value, as_json)}"
        if not around.value:
            return f"{text[: around.start_mark.index]}{{ {new} }}{text[around.end_mark.index :]}"
        end = _end(text, around.value[-1][1])
        return f"{text[:end]}, {new}{text[end:]}"
    first, last = around.value[0][0], around.value[-1]
    indent = " " * first.start_mark.column
    lines = block({key: value}, indent=indent)
    end = _line_end(text, _end(text, last[1]))
    spaced = not indent
    if len(around.value) > 1:
        before = text[_end(text, around.value[-2][1]) : last[0].start_mark.index]
        spaced = re.search(r"\n[ \t\r]*\n", before) is not None
    return f"{text[:end]}\n{chr(10) * spaced}{lines}{text[end:] or chr(10)}"


def _end(text: str, node: Node) -> int:
    """Return where the text of a node ends. A block collection of ruamel.yaml ends where the next token begins."""
    inner = node.value
    if not isinstance(node, CollectionNode) or node.flow_style or not inner:
        return len(text[: node.end_mark.index].rstrip())
    last = inner[-1]
    return _end(text, last[1] if isinstance(last, tuple) else last)


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end
