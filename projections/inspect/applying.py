"""A proposal written into the rule file, or into the files that it includes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from projections.errors import RulesError
from projections.language.access.plan import VERDICTS, Query, queries_of
from projections.language.access.planner import plan
from projections.language.access.proposals import EXACT, Proposal
from projections.language.canonical import Document
from projections.language.editing import LayoutError, with_merged, without
from projections.language.including import joined, source_at
from projections.language.loader import understand
from projections.language.rewriting import query_form

__all__ = ["applied"]

QUERIES = "queries"


def applied(
    path: Path, text: str, document: Document, query: Query, proposal: Proposal, others: Collection[Query]
) -> Mapping[Path, tuple[str, str]]:
    """Return the old and the new text of each file that a proposal changes. `path` is the rule file, `text` its text.

    Comments, layout and all other parts stay. The new files load, mean what the proposal proves, answer the query exactly,
    and answer the `others` no worse. Raises LayoutError if the files cannot be changed so.
    """
    source = joined(source_at(text, str(path)), path)
    old: dict[str, str] = {str(path): text, **{name: one.text for name, one in source.files.items()}}
    new = {file: one.replace("\r\n", "\n") for file, one in old.items()}

    def file_of(place: tuple[str, ...]) -> str:
        part = source.parts.get(place[:2]) or source.parts.get(place[:1])
        return part.file if part is not None else str(path)

    for place, value in _changes(query, proposal):
        file = file_of(place)
        as_json = file.endswith(".json")
        new[file] = (
            without(new[file], place) if value is None else with_merged(new[file], place, value, as_json=as_json)
        )
    _verify(path, new, document, proposal, others)
    new = {file: one.replace("\n", "\r\n") if "\r\n" in old[file] else one for file, one in new.items()}
    return {Path(file): (old[file], new[file]) for file in new if new[file] != old[file]}


def _changes(query: Query, proposal: Proposal) -> list[tuple[tuple[str, ...], Any]]:
    """Return the parts to change with their values: entries to merge, and None for a part of the query to remove."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for section, entries in proposal.data.items():
        if section == QUERIES:
            continue
        if section == "table" or not isinstance(entries, Mapping):
            found.append(((section,), entries))
        else:
            found += [((section, str(entry)), value) for entry, value in entries.items()]
    before, after = query_form(query), query_form(proposal.query)
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            found.append(((QUERIES, query.name, name), after.get(name)))
    return found


def _verify(
    path: Path, texts: Mapping[str, str], document: Document, proposal: Proposal, others: Collection[Query]
) -> None:
    """Raise LayoutError unless the texts are rules with the meaning of the proposal."""
    try:
        source = joined(source_at(texts[str(path)], str(path)), path, texts)
        rules, mistakes = understand(source, executable=True)
    except RulesError as error:
        raise LayoutError(f"the changed file could not be read: {error}") from None
    if rules is None or mistakes:
        raise LayoutError("the changed file would have mistakes")
    typed, queries = rules.typed(), queries_of(rules)
    same = typed == proposal.document and plan(typed, queries[proposal.query.name]).verdict in EXACT
    if not same or any(
        VERDICTS.index(plan(typed, queries[one.name]).verdict) > VERDICTS.index(plan(document, one).verdict)
        for one in others
    ):
        raise LayoutError("the changed file would not mean what is proposed")
