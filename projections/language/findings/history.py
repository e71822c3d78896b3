"""Aggregates whose past changes with the parent of a source item."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import MOVING_HISTORY
from projections.language.findings.reads import reads
from projections.language.shapes import attribute_map

__all__ = ["history"]


def history(facts: Facts) -> Iterator[Remark]:
    """Yield one remark for each attribute that an embed rule writes and that an aggregate groups by, or measures."""
    embedded = {
        (rule.into, attribute): (name, rule.source)
        for name, rule in facts.projections.items()
        if rule.embed is not None
        for attribute, path in attribute_map(rule.embed.attributes).items()
        if not _is_fixed(facts, rule.source, path)
    }
    seen: set[tuple[str, str, str]] = set()
    for read in reads(facts.rules) if embedded else ():
        if facts.projections[read.rule].aggregate is None or "where" in read.place or "each" in read.place:
            continue
        found = embedded.get((read.entity, read.root))
        if found is None or (read.rule, read.entity, read.root) in seen:
            continue
        seen.add((read.rule, read.entity, read.root))
        embed, parent = found
        yield Remark(
            MOVING_HISTORY,
            read.place,
            f"rule {embed} keeps {read.root} of {read.entity} items equal to that of their {parent}: if a {parent} changes, "
            f"the contributions of existing {read.entity} items change, too",
            f"if they must not change, record the value once, and read the record: {{from: {read.entity}, compute: {{set: "
            f"{{{read.root}Then: {read.root}}}, once: true}}}}",
            offset=read.offset,
        )


def _is_fixed(facts: Facts, entity: str, path: str) -> bool:
    """Return whether an item never changes this value: it is in its key, or in the key of the item that it is a copy of."""
    if path in facts.variables(entity):
        return True
    copy = facts.projections[facts.copies[entity]] if entity in facts.copies else None
    if copy is None or copy.copy_ is None or copy.copy_.attributes == "all":
        return False
    source = attribute_map(copy.copy_.attributes).get(path)
    return source is not None and source in facts.variables(copy.source)
