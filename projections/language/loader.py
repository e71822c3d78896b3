"""Load rules from a file, or report every mistake in it at once, each with its place."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from projections.errors import Problem, RulesError
from projections.language.analysis import analyse
from projections.language.document import Rules
from projections.language.including import joined, source_at, text_of
from projections.language.mistakes import Location, Mistake, dotted
from projections.language.pruning import without
from projections.language.source import Source
from projections.language.syntax import nearest
from projections.language.unsupported import unsupported
from projections.language.wording import known_names, mistakes_in, optional_names

__all__ = ["check", "load", "loads", "problems", "source_of", "text_of", "understand"]


def load(path: str | Path, *, executable: bool = True) -> Rules:
    """Return the rules of a YAML or JSON file. Raises RulesError with all mistakes.

    `executable=False` also accepts constructs that this version does not support yet.
    """
    return loads(text_of(path), str(path), executable=executable)


def loads(text: str, file: str = "<rules>", *, executable: bool = True) -> Rules:
    """Return the rules of a YAML or JSON text; `file` is its name in messages. Raises RulesError with all mistakes."""
    source = source_of(text, file)
    rules, mistakes = understand(source, executable)
    if mistakes or rules is None:
        raise RulesError(problems(mistakes, source))
    return rules


def source_of(text: str, file: str, path: str | Path | None = None) -> Source:
    """Return the data of a text with the places of its parts, and of those of the files that it includes.

    `path` is where the text is, by default `file`. Raises RulesError if a file cannot be read or is not a mapping.
    """
    return joined(source_at(text, file), Path(path or file))


def check(rules: Rules, file: str = "<python>", *, executable: bool = True) -> Rules:
    """Return rules that were built in Python, if they are valid. Raises RulesError with all mistakes, on line 1."""
    mistakes = analyse(rules) + (unsupported(rules) if executable else [])
    if mistakes:
        raise RulesError(problems(mistakes, Source("", file=file)))
    return rules


def understand(source: Source, executable: bool) -> tuple[Rules | None, list[Mistake]]:
    """Return the rules without their invalid parts, and all mistakes in them and in the text.

    Invalid parts are removed and the rest is validated again, so that one mistake does not hide others. A misspelt name
    is corrected for this.
    """
    data, mistakes = _corrected(source)
    data, empty = _filled(data, ())
    mistakes += [*empty, *source.mistakes]
    while True:
        try:
            rules = Rules.model_validate(data, by_alias=True, by_name=False)
            break
        except ValidationError as error:
            found = mistakes_in(error, data)
            mistakes += found
            rest = without(data, [mistake.path for mistake in found])
            if rest is None:
                return None, mistakes
            data, more = rest
            mistakes += more
    mistakes += analyse(rules, mistakes)
    return rules, mistakes + (unsupported(rules) if executable else [])


_KINDS = {
    **dict.fromkeys(
        ("average", "avg", "count", "counter", "counts", "group", "max", "min", "reduce", "rollup", "stats", "sum"),
        "aggregate",
    ),
    **dict.fromkeys(("denormalize", "duplicate", "mirror", "project", "replicate"), "copy"),
    **dict.fromkeys(("leaderboard", "ranking", "scores"), "rank"),
    **dict.fromkeys(("enrich", "join", "lookup"), "embed"),
    **dict.fromkeys(("formula", "generate"), "compute"),
    **dict.fromkeys(("gsi", "sparse"), "index"),
    **dict.fromkeys(("last", "newest", "recent"), "latest"),
    **dict.fromkeys(("best", "topk", "topn"), "top"),
}
"""Names that other tools give to the kinds of rules."""


_MOST_CORRECTED = 50
"""Misspelt names. The rules are validated after each correction."""


def _corrected(source: Source) -> tuple[dict[str, Any], list[Mistake]]:
    """Return the data with misspelt names corrected, and these mistakes.

    A name is only corrected if its value is of the kind that the correct name has: another name is unknown, not misspelt.
    """
    data: dict[str, Any] = source.data
    mistakes: list[Mistake] = []
    tried: set[Location] = set()
    error = _invalid(data)
    while error is not None and len(tried) < _MOST_CORRECTED:
        details = error.errors(include_url=False)
        path = next(
            (one["loc"] for one in details if one["type"] == "extra_forbidden" and one["loc"] not in tried), None
        )
        if path is None:
            break
        tried.add(path)
        meant = _meant(data, path)
        if meant is None:
            continue
        renamed = _renamed(data, path, meant)
        after = _invalid(renamed)
        worse = after is not None and (*path[:-1], meant) in {one.path for one in mistakes_in(after, renamed)}
        if _is_kind(path) or not worse:
            mistakes.append(Mistake(path, f'unknown (did you mean "{meant}"?)', at_key=True))
            source.rename(path, meant)
            data, error = renamed, after
    return data, mistakes


def _invalid(data: Any) -> ValidationError | None:
    try:
        Rules.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        return error
    return None


def _meant(data: Any, path: Location) -> str | None:
    """Return the most similar name that is not also given."""
    for step in path[:-1]:
        data = data[step]
    if _is_kind(path):
        kind = _KINDS[str(path[-1]).lower()]
        return kind if kind not in data else None
    return nearest(str(path[-1]), [name for name in known_names(path[:-1]) if name not in data])


def _is_kind(path: Location) -> bool:
    """Return whether the name is one that other tools give to a kind of rule."""
    return len(path) == 3 and path[0] == "projections" and str(path[-1]).lower() in _KINDS


def _renamed(data: Any, path: Location, name: str) -> Any:
    first, *rest = path
    if not rest:
        return {(name if key == first else key): value for key, value in data.items()}
    inner = _renamed(data[first], tuple(rest), name)
    if isinstance(data, list):
        return [inner if position == first else value for position, value in enumerate(data)]
    return {**data, first: inner}


def _filled(data: Any, path: Location) -> tuple[Any, list[Mistake]]:
    """Return the data without optional parts that are empty, and these mistakes."""
    if not isinstance(data, dict) or len(path) > 3:
        return data, []
    optional = optional_names(path)
    filled: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    for name, value in data.items():
        if value is None and name in optional:
            mistakes.append(Mistake((*path, name), "is empty: give it a value, or remove it", at_key=True))
        else:
            filled[name], inner = _filled(value, (*path, name))
            mistakes += inner
    return filled, mistakes


def problems(mistakes: Iterable[Mistake], source: Source) -> list[Problem]:
    """Return the mistakes with their places, in the order of their files, each once."""
    found = {Problem(*source.place(mistake), dotted(mistake.path), mistake.message) for mistake in mistakes}
    return sorted(found, key=lambda one: (one.file, one.line, one.column, one.path, one.message))
