"""Joins a rule file with the files that it includes, and keeps the place of each part.

    include: [users.yaml, orders/*.yaml]

Included parts come first, in the order in which files are named, then those of the file itself. Each file is read once.

A rule file may come from a stranger, as in a pull request. So it can only include files below the directory of the first
file or below the current one. Only the name of a file can be a pattern, which is compared with the names in its directory.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from typing import Any

from projections.errors import Problem, RulesError
from projections.language.files import bundled_path, text_of_file
from projections.language.forms import shown
from projections.language.source import MOST_VALUES, Source, UnreadableError, read
from projections.language.syntax import Mistake, dotted, suggest

INCLUDE = "include"
_SECTIONS = ("tables", "entities", "projections", "retired", "queries", "writes")
"""The parts of a rule file that have entries by name: several files may have entries of them."""
_MOST_ENTRIES = 1_000
"""How many entities, rules or queries all files may have together. `check` compares them with each other."""


def join(source: Source, path: Path) -> Source:
    """Return the data of a file, which is at `path`, and of the files that it includes, with the places of all parts.

    Raises RulesError if a file cannot be read or included.
    """
    if INCLUDE not in source.data:
        return _limit(source)
    join = _Join(source, _roots(path), size=source.size)
    join.add(source, path)
    if join.problems:
        raise RulesError(
            sorted(join.problems, key=lambda problem: (problem.file, problem.line, problem.column, problem.message))
        )
    source.data, source.parts, source.mistakes = join.data, join.parts, join.mistakes
    source.files = {part.file: part for part in join.read.values()}
    return _limit(source)


def _limit(source: Source) -> Source:
    """Return the source. Raises RulesError if a section has too many entries."""
    for name in _SECTIONS:
        section = source.data.get(name)
        if isinstance(section, dict) and len(section) > _MOST_ENTRIES:
            path = (name, list(section)[_MOST_ENTRIES])
            message = (
                f"has {len(section):,} entries, and the limit is {_MOST_ENTRIES:,}: divide the rules by table, and deploy "
                "each part as a stack"
            )
            raise RulesError([Problem(*source.place(Mistake(path, "", at_key=True)), name, message)])
    return source


_OTHER_FILES = {
    "Resources": "a SAM or CloudFormation template. `projections check --template FILE` compares it with the rules",
    "Records": "a file of stream events. `projections replay FILE` runs them through the rules",
    "DataModel": "a model of NoSQL Workbench. `projections init DIRECTORY --from FILE` makes rules of it",
    "cases": "a file of test cases. pytest runs it",
    "$schema": "a JSON Schema",
}
"""Names at the top of other files that a user may pass, and what these files are."""


def source_at(text: str, file: str) -> Source:
    """Return the data of one text with the places of its parts. Raises RulesError if it is not a mapping."""
    try:
        source = read(text)
    except UnreadableError as error:
        raise _single(file, error.message, error.line, error.column) from None
    if not isinstance(source.data, dict):
        raise _single(
            file, f"expected a mapping with `table`, `entities` and `projections`, found {shown(source.data)}"
        )
    kind = next((kind for name, kind in _OTHER_FILES.items() if name in source.data), None)
    if kind is not None and "entities" not in source.data:
        raise _single(file, f"this is not a rule file, but {kind}")
    source.file = file
    return source


def text_of(path: str | Path, file: str | None = None) -> str:
    """Return the text of a rule file, which messages call `file`. Raises RulesError if it cannot be read."""
    try:
        return text_of_file(path)
    except (OSError, ValueError) as error:
        reason = (
            "it is not UTF-8"
            if isinstance(error, UnicodeDecodeError)
            else getattr(error, "strerror", None) or str(error)
        )
        raise _single(file or str(path), f"cannot be read: {reason}") from None


def _single(file: str, message: str, line: int = 1, column: int = 1) -> RulesError:
    return RulesError([Problem(file, line, column, dotted(()), message)])


@dataclass
class _Join:
    """The files that were read, by path, and what they have together."""

    root: Source
    roots: Collection[Path]
    data: dict[str, Any] = field(default_factory=dict)
    parts: dict[tuple[str | int, ...], Source] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    read: dict[Path, Source] = field(default_factory=dict)
    open: list[Path] = field(default_factory=list)
    size: int = 0

    def add(self, source: Source, path: Path) -> None:
        """Add the files that a file includes, then its own parts."""
        self.read[_real(path)] = source
        self.open.append(_real(path))
        for place, named in _inclusions(source, path, self.roots):
            if isinstance(named, str):
                self.problems.append(_problem(source, place, named))
                continue
            self._include(source, place, *named)
        self.open.pop()
        self.mistakes += [mistake._replace(file=source.file) for mistake in source.mistakes]
        for name, value in source.data.items():
            if name != INCLUDE:
                self._part(source, name, value)

    def _include(self, source: Source, place: tuple[str | int, ...], path: Path, file: str) -> None:
        if _real(path) in self.open:
            names = [self.read[open_path].file for open_path in self.open[self.open.index(_real(path)) :]]
            message = f"files include each other: {' → '.join([*names, file])}"
            self.problems.append(_problem(source, place, message))
        elif _real(path) not in self.read and self.size <= MOST_VALUES:
            try:
                part = source_at(text_of(path, file), file)
                self.size += part.size
                if self.size > MOST_VALUES:
                    raise _single(file, f"too large: the rules of all files have more than {MOST_VALUES:,} values")
            except RulesError as error:
                self.problems += error.problems
                self.read[_real(path)] = Source("", {}, file)
                return
            self.add(part, path)

    def _part(self, source: Source, name: str, value: Any) -> None:
        """Add one top-level part of a file."""
        if name not in _SECTIONS:
            if name in self.data:
                self._twice(source, (name,))
            else:
                self.data[name] = value
                self.parts[name,] = source
            return
        if not isinstance(value, dict):
            message = f"expected a mapping of names to {name}, found {shown(value)}"
            self.mistakes.append(Mistake((name,), message, file=source.file))
            return
        self.parts.setdefault((name,), source)
        section = self.data.setdefault(name, {})
        for entry, inner in value.items():
            if entry in section:
                self._twice(source, (name, entry))
            else:
                section[entry] = inner
                self.parts[name, entry] = source

    def _twice(self, source: Source, path: tuple[str, ...]) -> None:
        first = self.parts[path]
        line, _ = first.position(Mistake(path, "", at_key=True))
        message = f"is also in {first.file}:{line}: keep one of the two"
        self.mistakes.append(Mistake(path, message, at_key=True, file=source.file))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _problem(source: Source, place: tuple[str | int, ...], message: str) -> Problem:
    return Problem(source.file, *source.position(Mistake(place, "")), dotted(place), message)


def _roots(path: Path) -> tuple[Path, Path]:
    """Return the directories below which a file may include others."""
    return _real(path.parent), _real(Path())


def _inclusions(
    source: Source, path: Path, roots: Collection[Path]
) -> Iterator[tuple[tuple[str | int, ...], tuple[Path, str] | str]]:
    """Yield for each file that `include` names its path and its name in messages; or a message, if there is a mistake."""
    named = source.data.get(INCLUDE, [])
    if not isinstance(named, list) or not named:
        if INCLUDE in source.data:
            yield (INCLUDE,), f"expected a list of files, such as [users.yaml, orders/*.yaml], found {shown(named)}"
        return
    for position, name in enumerate(named):
        place = (INCLUDE, position)
        if not isinstance(name, str) or not name:
            yield place, f"expected a path that is relative to this file, found {shown(name)}"
        elif os.path.isabs(name):
            yield place, f"{name} is an absolute path: give one that is relative to this file"
        elif has_magic(os.path.dirname(name)) or "**" in name:
            yield place, f"{name}: only the name of a file can be a pattern, as in orders/*.yaml; name each directory"
        elif not _is_below(path.parent / (os.path.dirname(name) if has_magic(name) else name), roots):
            yield place, _outside(name)
        else:
            files = list(_files(name, path, source.file))
            if not files:
                yield place, _missing(name, path)
            for file, shown_as in files:
                if bundled_path(name) == file or _is_below(file, roots):
                    yield place, (file, shown_as)
                else:
                    yield place, _outside(shown_as)


def _is_below(path: Path, roots: Collection[Path]) -> bool:
    """Whether a path, which need not exist, is in one of the directories after all links are followed."""
    return any(_real(path).is_relative_to(root) for root in roots)


def _outside(name: str) -> str:
    return (
        f"{name} is outside of the directory of the first rule file and of the current directory: move it there, or run the "
        "command in a directory that contains both"
    )


def _files(name: str, path: Path, file: str) -> Iterator[tuple[Path, str]]:
    """Yield the files that a path or pattern names, in the order of their names, without the file that includes them."""
    directory, shown_in = path.parent, os.path.dirname(file)
    if (directory / name).is_file() or not has_magic(name):
        inside = Path(os.path.normpath(directory / name))
        if inside.is_file():
            yield inside, os.path.normpath(os.path.join(shown_in, name))
        elif (shipped := bundled_path(name)) is not None:
            yield shipped, str(shipped)
        return
    inside, pattern = directory / os.path.dirname(name), os.path.basename(name)
    names = [entry.name for entry in os.scandir(inside) if entry.is_file()] if inside.is_dir() else []
    for file_name in sorted(names):
        file_path = Path(os.path.normpath(inside / file_name))
        hidden = file_name.startswith(".") and not pattern.startswith(".")
        if fnmatchcase(file_name, pattern) and not hidden and _real(file_path) != _real(path):
            yield file_path, os.path.normpath(os.path.join(shown_in, os.path.dirname(name), file_name))


def _missing(name: str, path: Path) -> str:
    if has_magic(name):
        return f"no file matches {name}: correct the pattern, which is relative to this file, or remove it"
    inside = Path(os.path.normpath(path.parent / name)).parent
    beside = [entry.name for entry in inside.iterdir()] if inside.is_dir() else []
    hint = suggest(Path(name).name, beside)
    return f"{name} does not exist{hint}: give a path that is relative to this file, or a bundled name"


class Watched:
    """The files that rules consist of, to notice a change: also of a file that a pattern newly matches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._roots = _roots(path)
        self._including = self._read()
        self._known = self._seen = self.stamp()

    def has_changed(self) -> bool:
        """Return whether a file differs from the last reported state, and all are the same as at the last call: editors
        write in more than one step.
        """
        stamp = self.stamp()
        settled = stamp is not None and stamp == self._seen and stamp != self._known
        self._seen = stamp
        if settled:
            self._including = self._read()
            self._known = self._seen = self.stamp()
        return settled

    def _read(self) -> dict[Path, Source]:
        """Return the files that can be read and that include others, by path."""
        including: dict[Path, Source] = {}
        paths, seen = [self.path], set[Path]()
        for path in paths:
            if _real(path) in seen:
                continue
            seen.add(_real(path))
            try:
                source = source_at(text_of(path), str(path))
            except RulesError:
                continue
            if INCLUDE in source.data:
                including[path] = source
                paths += _paths(path, source, self._roots)
        return including

    def stamp(self) -> tuple[tuple[str, int, int, int], ...] | None:
        """Return a value that changes if one of the files does. None if one is missing: an editor is replacing it."""
        paths = {self.path}.union(*(_paths(path, source, self._roots) for path, source in self._including.items()))
        try:
            stats = [(str(path), path.stat()) for path in sorted(paths)]
        except OSError:
            return None
        return tuple((path, stat.st_mtime_ns, stat.st_size, stat.st_ino) for path, stat in stats)


def _paths(path: Path, source: Source, roots: Collection[Path]) -> list[Path]:
    return [named[0] for _, named in _inclusions(source, path, roots) if not isinstance(named, str)]
