"""Valid rules of the public API, compiled when they are first needed; and selections of rules, as `--select` has them.

A selection has names of rules, `tag:x` and `owner:x`: likes, tag:counters, owner:feed-team.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projections.errors import UsageError
from projections.language.program import Program
from projections.language.syntax import suggest

if TYPE_CHECKING:
    from projections.language.access.plan import Query
    from projections.language.models import Rules
    from projections.language.questions import WritePattern


@dataclass(frozen=True, eq=False, repr=False)
class RuleSet:
    """Valid rules. `projections.load`, `loads` and `from_dict` make them.

    `document` is their canonical form: plain JSON with all defaults, which `projections check --json` prints and a
    function reads as `rules.json`. `path` is the file that they were read from, if any, `text` its text, and `file`
    its name in messages. `lines` is false if line numbers of `text` are not those of a file.
    """

    document: Mapping[str, Any]
    path: Path | None = None
    text: str = ""
    file: str = "<rules>"
    lines: bool = True
    queries: Mapping[str, Query] = field(default_factory=dict)
    """The queries of the file by name. They are not part of `document`: the functions do not need them."""
    writes: Mapping[str, WritePattern] = field(default_factory=dict)
    """The write patterns of the file by name."""

    def __repr__(self) -> str:
        return f"RuleSet({self.file!r}, names={list(self.names)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rules, in the order of the file."""
        return tuple(self.document["projections"])

    @property
    def tables(self) -> tuple[str, ...]:
        """The logical names of the application's tables; `main` if the rules set `table:`."""
        return tuple(self.document["tables"])

    def only(self, select: Iterable[str]) -> RuleSet:
        """Return these rules without those that are not selected; `select` is as in `--select`. Raises UsageError."""
        names = selected(self.program.model, select)
        return replace(self, document=restricted(self.document, names)) if names else self

    def query(self, name: str) -> Query:
        """Return a query by its name. Raises UsageError if there is none."""
        if name not in self.queries:
            ranks = [rule for rule, one in self.program.model.projections.items() if one.kind == "rank"]
            if name in ranks:
                raise UsageError(
                    f"{name} is a rule: `projections queries {name}` and `projections.ranking` read its ranks"
                )
            hint = suggest(name, [*self.queries, *ranks]) or f"; it has {', '.join(self.queries) or 'none'}"
            raise UsageError(f'{self.file} has no query "{name}"{hint}')
        return self.queries[name]

    @cached_property
    def program(self) -> Program:
        """The compiled rules, which the engine executes."""
        return Program.from_document(self.document)


# --- selections ---


def selected(rules: Rules, terms: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the selected rules in the order of the file; none without terms.

    A term may be several, separated by commas. Raises UsageError if a term selects no rule.
    """
    terms = [term.strip() for text in terms for term in text.split(",") if term.strip()]
    names = {name for term in terms for name in _named(rules, term)}
    return tuple(name for name in rules.projections if name in names)


def _named(rules: Rules, term: str) -> list[str]:
    what, colon, value = term.partition(":")
    if colon and what == "tag":
        return _with(rules, what, value, lambda name: rules.projections[name].tags)
    if colon and what == "owner":
        return _with(rules, what, value, lambda name: filter(None, [rules.projections[name].owner]))
    if term not in rules.projections:
        hint = suggest(term, list(rules.projections)) or f"; the rules are {', '.join(rules.projections) or 'none'}"
        raise UsageError(f'unknown rule "{term}"{hint}')
    return [term]


def _with(rules: Rules, what: str, value: str, values: Callable[[str], Iterable[str]]) -> list[str]:
    """Return the rules that have a tag or owner. Raises UsageError if there are none."""
    found = [name for name in rules.projections if value in values(name)]
    if not found:
        known = list(dict.fromkeys(one for name in rules.projections for one in values(name)))
        if not known:
            raise UsageError(f'no rule has the {what} "{value}"; no rule has any {what}')
        hint = suggest(value, known) or f"; the {what}s are {', '.join(known)}"
        raise UsageError(f'no rule has the {what} "{value}"{hint}')
    return found


def readers(rules: Rules, names: Iterable[str]) -> list[str]:
    """Return the rules that read what these rules write; names of rules that do not exist are ignored."""
    from projections.language.facts import inputs

    before = inputs(rules)
    return list(dict.fromkeys(reader for name in names for reader, needed in before.items() if name in needed))


def missing(rules: Rules, names: Iterable[str]) -> list[str]:
    """Return for each selected rule that reads what a rule writes that is not selected: a sentence about it."""
    from projections.language.facts import inputs

    chosen = tuple(names)
    before = inputs(rules) if chosen else {}
    sentences = []
    for name in chosen:
        for other, attributes in before[name].items():
            if other not in chosen:
                into = rules.projections[other].into
                what = ", ".join(f"{into}.{attribute}" for attribute in attributes) or f"{into} items"
                sentences.append(
                    f"{name} reads {what}, which rule {other} writes. {other} is not selected, so its values are not "
                    f"computed: pass --select {other},{name} to run both rules"
                )
    return sentences


def restricted(document: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the canonical document with these rules only."""
    chosen = set(names)
    return {**document, "projections": {name: rule for name, rule in document["projections"].items() if name in chosen}}
