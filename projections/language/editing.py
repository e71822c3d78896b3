"""Parts of a rule file as YAML, and changes of a part of a YAML or JSON text that leave all other characters as they are.

Comments and layout stay. The nodes of ruamel.yaml have the places. Its round-trip writer is not used: it writes `{a: 1}` for
`{ a: 1 }`, and removes the spaces with which people align columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from projections.errors import ProjectionsError
from projections.language.values import number_text

__all__ = [
    "LayoutError",
    "block",
    "flow",
    "name",
    "scalar",
    "text",
    "with_merged",
    "without",
]


_PLAIN = re.compile(r"[A-Za-z][\w.-]*")
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
_EXPRESSION = re.compile(r"[a-z]+\([\w.]+(?: \* [\w.]+)?\)", re.ASCII)


def scalar(text: str) -> str:
    """Return a text in YAML, quoted if YAML 1.1 would read another type."""
    if _PLAIN.fullmatch(text) and text.isascii() and text.lower() not in _NOT_TEXT:
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def text(value: str) -> str:
    """Return a text, plain if every version of YAML reads it as a text, else in double quotes."""
    return value if _EXPRESSION.fullmatch(value) else scalar(value)


def name(value: str) -> str:
    """Return a key of a mapping."""
    return text(value)


def flow(value: Any) -> str:
    """Return a value in flow style: `{ into: Post, set: { likeCount: count } }`."""
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{name(str(key))}: {flow(one)}" for key, one in value.items()) + " }" if value else "{}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(one) for one in value) + "]"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Decimal):
        return number_text(value)
    return json.dumps(value)


def block(value: Mapping[str, Any], width: int = 90, indent: str = "") -> str:
    """Return a mapping with a line for each key; a value that is a mapping is in flow style if it fits into `width`."""
    lines = []
    for key, one in value.items():
        line = f"{indent}{name(str(key))}: {flow(one)}"
        if isinstance(one, Mapping) and one and (len(line) > width or not indent):
            lines += [f"{indent}{name(str(key))}:", block(one, width, indent + "  ")]
        else:
            lines.append(line)
    return "\n".join(lines)


Path = tuple[str, ...]
"""Names of mappings."""

_COMMENT = re.compile(r"(?:^|\s)#")


class LayoutError(ProjectionsError):
    """A change would lose comments or the layout of the text."""


def with_merged(text: str, path: Path, value: Any, *, as_json: bool = False) -> str:
    """Return the text with a value merged into the part at `path`: mappings are merged, others replaced.

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
        raise LayoutError(f"{_dotted(path)} is the only entry of its mapping")
    start = entry[0].start_mark.index
    line = text.rfind("\n", 0, start) + 1
    if not around.flow_style and not text[line:start].strip():
        return text[:line] + text[_line_end(text, _end(text, entry[1])) + 1 :]
    if position + 1 < len(around.value):
        following = around.value[position + 1][0].start_mark.index
        if not around.flow_style and text[_line_end(text, _end(text, entry[1])) : following].strip():
            raise LayoutError(f"{_dotted(path)} has comments below it, which would be lost")
        return text[:start] + text[following:]
    return _without_last(text, start, _end(text, entry[1]))


def _without_last(text: str, start: int, end: int) -> str:
    """Return the text without the last part of a flow collection, and without the comma before it.

    The comma stays if a comment may follow it.
    """
    before = text[:start].rstrip()
    if before.endswith(",") and not _COMMENT.search(before, before.rfind("\n") + 1):
        return before[:-1] + text[end:]
    return text[:start] + text[end:]


Entry = tuple[Node, Node]


def _found(text: str, path: Path) -> tuple[MappingNode, Entry | None, tuple[str, ...]]:
    """Return the innermost mapping on the way to `path`; the entry at `path`, or None and the steps that do not exist.

    Raises LayoutError for an alias on the way.
    """
    node = YAML(typ="safe", pure=True).compose(text)
    if not isinstance(node, MappingNode):
        raise LayoutError("the file is not a mapping")
    for position, step in enumerate(path):
        here = path[: position + 1]
        if not isinstance(node, MappingNode):
            raise LayoutError(f"{_dotted(path[:position])} has no names")
        entry = next((one for one in node.value if isinstance(one[0], ScalarNode) and one[0].value == step), None)
        if entry is None:
            return node, None, path[position:]
        _check_shared(entry[1], entry[0].end_mark.index, here)
        if position + 1 == len(path):
            return node, entry, ()
        node = entry[1]
    raise LayoutError("nothing to change")


def _check_shared(node: Node, after: int, path: Path) -> None:
    """Raise LayoutError for an alias, whose text is elsewhere."""
    if node.start_mark.index < after:
        raise LayoutError(f"{_dotted(path)} is an alias (*)")


def _dotted(path: Path) -> str:
    return ".".join(path)


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
        end = _inner_end(text, around)
        return f"{text[:end]}, {new}{text[end:]}"
    first, last = around.value[0][0], around.value[-1]
    indent = " " * first.start_mark.column
    lines = block({key: value}, indent=indent)
    end = _line_end(text, _inner_end(text, around))
    spaced = not indent
    if len(around.value) > 1:
        before = text[_end(text, around.value[-2][1]) : last[0].start_mark.index]
        spaced = re.search(r"\n[ \t\r]*\n", before) is not None
    return f"{text[:end]}\n{chr(10) * spaced}{lines}{text[end:] or chr(10)}"


def _end(text: str, node: Node) -> int:
    """Return where the text of a node ends. A block collection of ruamel.yaml ends where the next token begins."""
    if not isinstance(node, CollectionNode) or node.flow_style or not node.value:
        return len(text[: node.end_mark.index].rstrip())
    return _inner_end(text, node)


def _inner_end(text: str, node: CollectionNode) -> int:
    """Return where the last part of a collection ends. Raises LayoutError for an alias, whose text is elsewhere."""
    last = node.value[-1]
    before, part = last if isinstance(last, tuple) else ([node, *node.value][-2], last)
    if part.start_mark.index <= before.start_mark.index:
        raise LayoutError("the last part of a list or mapping is an alias (*)")
    return _end(text, part)


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end
