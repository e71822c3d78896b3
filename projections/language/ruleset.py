"""Valid rules of the public API: in canonical form, compiled when they are first needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projections.errors import UsageError
from projections.language.program import Program

if TYPE_CHECKING:
    from projections.language.access.questions import Query, WritePattern

__all__ = ["RuleSet"]


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
        from projections.language.selection import restricted, selected

        names = selected(self.program.typed, select)
        return replace(self, document=restricted(self.document, names)) if names else self

    def query(self, name: str) -> Query:
        """Return a query by its name. Raises UsageError if there is none."""
        from projections.language.syntax import suggest

        if name not in self.queries:
            ranks = [rule for rule, one in self.program.typed.rules.items() if one.kind == "rank"]
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
