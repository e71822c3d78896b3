"""Aggregates whose past changes with the parent of a source item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from projections.language.attribute_sources import attribute_source
from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import MOVING_HISTORY
from projections.language.findings.reads import Read, reads
from projections.language.shapes import attribute_map
from projections.language.syntax import an

__all__ = ["history"]


@dataclass(frozen=True, slots=True)
class _Moving:
    """Why an attribute changes with a parent: a rule embeds it, or computes it from `origin`, which is embedded."""

    embed: str
    parent: str
    computed: str | None = None
    origin: str | None = None


def history(facts: Facts) -> Iterator[Remark]:
    """Yield one remark for each attribute that changes with a parent, and that an aggregate groups by, or measures."""
    moving = {
        (rule.into, attribute): _Moving(name, rule.source)
        for name, rule in facts.projections.items()
        if rule.embed is not None
        for attribute, path in attribute_map(rule.embed.attributes).items()
        if not _is_fixed(facts, rule.source, path)
    }
    if not moving:
        return
    all_reads = [one for one in reads(facts.rules) if "where" not in one.place and "each" not in one.place]
    _add_computed(facts, moving, all_reads)
    seen: set[tuple[str, str, str]] = set()
    for read in all_reads:
        if facts.projections[read.rule].aggregate is None:
            continue
        found = moving.get((read.entity, read.root))
        if found is None or (read.rule, read.entity, read.root) in seen:
            continue
        seen.add((read.rule, read.entity, read.root))
        computed = f"rule {found.computed} computes {read.root} from {found.origin}, and " if found.computed else ""
        once = f"add `once: true` to rule {found.computed}, or " if found.computed else ""
        yield Remark(
            MOVING_HISTORY,
            read.place,
            f"{computed}rule {found.embed} keeps {found.origin or read.root} of {read.entity} items equal to that of their "
            f"{found.parent}: if {an(found.parent)} changes, the contributions of existing {read.entity} items change, too",
            f"if they must not change, {once}record the value once, and read the recorded attribute: "
            f"{{from: {read.entity}, compute: {{set: {{{read.root}Then: {read.root}}}, once: true}}}}",
            offset=read.offset,
        )


def _add_computed(facts: Facts, moving: dict[tuple[str, str], _Moving], all_reads: list[Read]) -> None:
    """Add what compute rules set, not once, from an attribute that changes with a parent."""
    found = True
    while found:
        found = False
        for read in all_reads:
            compute = facts.projections[read.rule].compute
            if compute is None or compute.once or (before := moving.get((read.entity, read.root))) is None:
                continue
            written = (read.entity, str(read.place[4]))  # projections, the rule, compute, set, the attribute
            if written not in moving:
                moving[written] = _Moving(before.embed, before.parent, read.rule, before.origin or read.root)
                found = True


def _is_fixed(facts: Facts, entity: str, source: str) -> bool:
    """Return whether an item never changes this value: it is of its key, or of the key of the item that it is a copy of."""
    return all(_is_of_key(facts, entity, path) for path in attribute_source(source).names)


def _is_of_key(facts: Facts, entity: str, path: str) -> bool:
    if path in facts.variables(entity):
        return True
    copy = facts.projections[facts.copies[entity]] if entity in facts.copies else None
    if copy is None or copy.copy_ is None or copy.copy_.attributes == "all":
        return False
    source = attribute_map(copy.copy_.attributes).get(path)
    return source is not None and set(facts.variables(copy.source)).issuperset(attribute_source(source).names)
