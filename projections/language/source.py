"""Parses a YAML 1.2 or JSON text to plain data with the place of each part.

It uses PyYAML's node tree instead of its constructors: nodes have places and duplicate names, and nothing becomes a date or
another type that JSON does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from yaml.composer import Composer
from yaml.error import MarkedYAMLError, YAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from projections.errors import ProjectionsError
from projections.language.files import MOST_BYTES
from projections.language.syntax import LanguageError, Location, Mistake, root
from projections.language.values import exact_number

MOST_VALUES = 50_000
"""The most values of a file, counting each use of an alias: aliases of aliases can expand to billions."""
_DEEPEST = 60
_DEEPEST_TEXT = 150
"""Levels of any YAML text. Parsing needs several frames of Python's stack for each."""
_TAG = "tag:yaml.org,2002:"


class UnreadableError(ProjectionsError):
    """The text cannot be parsed as YAML. Line and column count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


@dataclass
class Source:
    """The data of a text, the mistakes in the text itself, and the nodes for finding places.

    `file` is its name in messages. If it includes other files, `data` has the parts of all of them, `files` are their
    sources by name, and `parts` by the paths of their parts, which have one or two steps.
    """

    text: str
    data: Any = None
    file: str = ""
    parts: dict[Location, Source] = field(default_factory=dict)
    files: dict[str, Source] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    size: int = 0
    """The number of values in the file."""
    _keys: dict[Location, Node] = field(default_factory=dict)
    _values: dict[Location, Node] = field(default_factory=dict)

    def place(self, mistake: Mistake) -> tuple[str, int, int]:
        """Return file, line and column of a mistake."""
        part = self.files[mistake.file] if mistake.file in self.files else self._part(mistake.path)
        return part.file, *part.position(mistake)

    def _part(self, path: Location) -> Source:
        return self.parts.get(path[:2]) or self.parts.get(path[:1]) or self

    def locate(self, mistake: Mistake) -> Mistake:
        """Return a mistake of the rules with its place in the file."""
        path = self.path_in_file(mistake.path)
        whole = path[-1:] == mistake.path[-1:] or not isinstance(self._part(path)._values.get(path), ScalarNode)
        return mistake._replace(path=path, at_key=mistake.at_key and whole)

    def path_in_file(self, path: Location) -> Location:
        """Return the place in the file of a place in the rules: the nearest part around it that the file has.

        The models have one spelling: a single table is in `tables`, each source has its own `where`, `bind` and `each`,
        attributes are a mapping, and cases a list.
        """
        if not self._values and not self.parts:
            return path
        if path[:1] == ("tables",) and ("table",) in self._values:
            path = ("table", *path[2:])
        if len(path) > 4 and path[2] == "from" and path[:5] not in self._part(path)._values:
            path = (*path[:2], *path[4:])
        values = self._part(path)._values
        here: Location = ()
        for step in path:
            here = next((place for place in _steps(values, here, step) if place in values), here)
        return here

    def position(self, mistake: Mistake) -> tuple[int, int]:
        """Return line and column, from 1, of a mistake; if its place does not exist, of the nearest part around it."""
        path = mistake.path
        if path in self._values:
            key = self._keys.get(path)
            if mistake.at_key and key is not None:
                return _start(key)
            return self._inside(self._values[path], mistake.offset)
        while path and path not in self._values:
            path = path[:-1]
        node = self._keys.get(path) or self._values.get(path)
        return _start(node) if node is not None else (1, 1)

    def is_quoted(self, path: Location) -> bool:
        """Return whether the text at a place has quotes, or is a block of its own."""
        node = self._part(path)._values.get(path)
        return not isinstance(node, ScalarNode) or bool(node.style)

    def rename(self, path: Location, name: str) -> None:
        """Make the part at `path` also available under another last name: the correct spelling."""
        size = len(path)
        part = self._part(path)
        tables: tuple[dict[Location, Any], ...] = (part._keys, part._values, self.parts)
        for places in tables:
            for place in [place for place in places if place[:size] == path]:
                places[(*path[:-1], name, *place[size:])] = places[place]

    def _inside(self, node: Node, offset: int | None) -> tuple[int, int]:
        """Return the place `offset` characters into a scalar, if its text in the file equals its value."""
        line, column = _start(node)
        if not offset or not isinstance(node, ScalarNode) or node.style in ("|", ">"):
            return line, column
        begin = node.start_mark.index + (1 if node.style else 0)
        if self.text[begin : begin + offset] != node.value[:offset]:
            return line, column
        return line, column + offset + (1 if node.style else 0)


def _steps(values: Mapping[Location, Node], here: Location, step: str | int) -> Iterator[Location]:
    """Yield the places of a step in the spellings that a part can have."""
    yield (*here, step)
    node = values.get(here)
    if isinstance(node, SequenceNode) and isinstance(step, str):
        for position, element in enumerate(node.value):
            if isinstance(element, ScalarNode) and root(element.value) == step:
                yield (*here, position)
    if step == "where":
        yield (*here, "count", "where")


def read(text: str, *, long_form: Callable[[Node], Node] = lambda node: node) -> Source:
    """Return the data and places of one document. Raises `UnreadableError` if the text is not YAML.

    Numbers that are not whole are Decimals with all their digits. `long_form` returns the node that another one stands for.
    """
    try:
        node = _compose(text)
    except RecursionError:
        raise UnreadableError("nested too deeply") from None
    except MarkedYAMLError as error:
        raise _unreadable(text, error) from None
    except YAMLError as error:
        position = getattr(error, "position", 0)
        before = text[: position if isinstance(position, int) else 0]
        place = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise UnreadableError(f"not YAML: {' '.join(str(error).split())}", *place) from None
    except (ValueError, IndexError, KeyError, AttributeError, TypeError, AssertionError) as error:
        # PyYAML raises other errors, without a place, for bad directives and escapes beyond Unicode
        raise UnreadableError(f"not YAML: {error}") from None
    source = Source(text)
    if node is not None:
        try:
            _Reading(source, long_form).value(node, ())
        except RecursionError:
            raise UnreadableError("nested too deeply") from None
    return source


def _compose(text: str) -> Node | None:
    """Return the tree of nodes of one document, at most twice MOST_VALUES: it is built before its values are counted.

    Raises UnreadableError if it has more, and the errors of PyYAML.
    """
    if len(text) > MOST_BYTES:
        raise UnreadableError(f"too large: more than {MOST_BYTES // 2**20} MiB of YAML")
    try:
        return _FAST(text).get_single_node()
    except (YAMLError, ValueError):
        return _Plain(text).get_single_node()  # its messages are better, and it reads halves of surrogate pairs


_UNQUOTED = re.compile(
    r"(?P<bool>true|True|TRUE|false|False|FALSE)|(?P<null>~|null|Null|NULL|)|(?P<merge><<)"
    r"|(?P<int>[-+]?(?:0b[01_]+|0o?[0-7_]+|[0-9][0-9_]*|0x[0-9a-fA-F_]+))|(?P<float>[-+]?(?:[0-9][0-9_]*\.[0-9_]*"
    r"(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9_]+(?:[eE][-+][0-9]+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN))"
)
"""What is not text, by the types of YAML 1.2: `yes`, `on` and `1:30` are."""


class _Bounded(Composer, BaseResolver):
    left, depth = 2 * MOST_VALUES, 0

    def resolve(self, kind: Any, value: str, implicit: Any) -> str:
        typed = _UNQUOTED.fullmatch(value) if kind is ScalarNode and implicit[0] else None
        return _TAG + ((typed and typed.lastgroup) or {MappingNode: "map", SequenceNode: "seq"}.get(kind, "str"))

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self.left -= 1
        self.depth += 1
        if self.left < 0:
            raise UnreadableError(_too_large())
        if self.depth > _DEEPEST_TEXT:
            raise UnreadableError("nested too deeply")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Plain(_Bounded, Reader, Scanner, Parser):
    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        for part in (Scanner, Parser, Composer, BaseResolver):
            part.__init__(self)


_FAST: Callable[[str], _Bounded] = _Plain
with suppress(ImportError):  # PyYAML may have been built without libyaml
    from yaml._yaml import CParser

    class _WithLibyaml(_Bounded, CParser):
        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            Composer.__init__(self)
            BaseResolver.__init__(self)

    _FAST = _WithLibyaml


def _too_large() -> str:
    return f"too large: more than {MOST_VALUES:,} values, counting each use of an alias"


def _start(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _unreadable(text: str, error: MarkedYAMLError) -> UnreadableError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    message = "not YAML: " + ", ".join(part for part in (error.context, error.problem) if part)
    written = text.splitlines()[line - 1] if line <= len(text.splitlines()) else ""
    if "'\\t'" in message:
        message += " (use spaces)"
    elif re.search(r"[^\"'{$ ]\{\w", written):
        message += ' (templates need quotes: "USER#{userId}")'
    return UnreadableError(message, line, column)


class _Reading:
    """A walk over the nodes that fills a source."""

    def __init__(self, source: Source, long_form: Callable[[Node], Node]) -> None:
        self.source = source
        self.long_form = long_form
        self.open: list[Node] = []

    def value(self, node: Node, path: Location) -> Any:
        node = self.long_form(node)
        self.source._values[path] = node
        self._count(node)
        if len(path) > _DEEPEST:
            raise UnreadableError("nested too deeply", *_start(node))
        if any(node is outer for outer in self.open):
            raise UnreadableError("an alias refers to a value that contains it", *_start(node))
        self.open.append(node)
        if isinstance(node, MappingNode):
            data: Any = self._mapping(node, path)
        elif isinstance(node, SequenceNode):
            data = [self.value(element, (*path, index)) for index, element in enumerate(node.value)]
        else:
            data = self._scalar(node, path)
        self.open.pop()
        if not path:
            self.source.data = data
        return data

    def _count(self, node: Node) -> None:
        self.source.size += 1
        if self.source.size > MOST_VALUES:
            raise UnreadableError(_too_large(), *_start(node))

    def _mapping(self, node: MappingNode, path: Location) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value, merged in self._entries(node, path):
            if not isinstance(key, ScalarNode):
                self._report(path, "a name must be plain text, not a list or a mapping")
                continue
            name = _text(key.value)
            inner = (*path, name)
            if name in data:
                if not merged:
                    message = f"is defined twice, first on line {_start(self.source._keys[inner])[0]}"
                    second = (*path, Repeated(name))  # no path leads to it
                    self.source._keys[second] = self.source._values[second] = key
                    self.source.mistakes.append(Mistake(second, message, at_key=True))
                continue
            self.source._keys[inner] = key
            data[name] = self.value(value, inner)
        return data

    def _entries(self, node: MappingNode, path: Location) -> Iterator[tuple[Node, Node, bool]]:
        """Yield the entries of a mapping, then those that it merges with `<<`, which its own override."""
        merges: list[Node] = []
        for key, value in node.value:
            if key.tag == _TAG + "merge" and not key.style:
                merges += value.value if isinstance(value, SequenceNode) else [value]
            else:
                yield key, value, False
        for value in merges:
            if not isinstance(value, MappingNode) or any(value is outer for outer in self.open):
                self._report(path, "`<<` can only merge mappings")
                continue
            self.open.append(value)
            for key, inner, _ in self._entries(value, path):
                self._count(key)
                yield key, inner, True
            self.open.pop()

    def _scalar(self, node: Node, path: Location) -> Any:
        text = _text(str(node.value))
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._report(path, "unpaired surrogate")
            return text.encode("utf-8", "replace").decode()
        kind = str(node.tag).removeprefix(_TAG)
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return {"true": True, "false": False}[text.lower()]
            if kind == "int":
                digits = text.replace("_", "")
                base = {"0o": 8, "0x": 16, "0b": 2}.get(digits.lstrip("+-")[:2].lower(), 10)
                return int(exact_number(int(digits, base)))
            if kind == "float":
                return exact_number(text.replace("_", ""))
        except (KeyError, ValueError):
            self._report(path, f"{text[:40]} is not a number" if kind != "bool" else "not a boolean")
        except LanguageError as error:
            self._report(path, f"{error}; as text, it needs quotes")
        return text

    def _report(self, path: Location, message: str) -> None:
        self.source.mistakes.append(Mistake(path, message))


class Repeated(str):
    """The name of a repeated entry: the same text as the first, but another place."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def _text(text: str) -> str:
    """Join surrogate pairs: JSON escapes characters beyond U+FFFF as two surrogates, which YAML reads separately."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return text
