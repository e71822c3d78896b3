"""TTL: tables with TTL whose entities do not declare it, and entities that expire in tables without TTL."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import EXPIRY_UNDECIDED, KEPT_EXPIRY, NO_TTL
from projections.language.mistakes import Location
from projections.language.ownership import written

__all__ = ["expiry"]


def expiry(facts: Facts) -> Iterator[Remark]:
    """Yield remarks for each table, and one for each entity."""
    rules = facts.rules
    for name, table in rules.all_tables.items():
        here = [entity for entity in rules.entities if rules.table_of(entity) == name]
        sources = dict.fromkeys(
            source
            for rule in facts.projections.values()
            if rule.kind != "embed" and not rule.on_source
            for source in rule.sources
        )
        sources_here = [entity for entity in sources if entity in here and not facts.made_by_rules(entity)]
        expiring = [entity for entity in here if rules.entities[entity].expires]
        place: Location = ("table",) if rules.table is not None else ("tables", name)
        if table.ttl is not None and sources_here and not expiring:
            yield Remark(
                EXPIRY_UNDECIDED,
                (*place, "ttl"),
                f"no entity has `expires`, so a deletion by {table.ttl} counts like any other: the item's contributions are "
                f"retracted",
                f"if items of {_some(sources_here)} have {table.ttl}, add `expires: true` to the entity, and "
                f"`expired: keep` or `expired: retract` to its rules",
                at_key=True,
            )
        kept = [
            (rule, source)
            for rule, one in facts.projections.items()
            for source in one.sources
            if one.expired == "keep"
            and source in here
            and not any(table.ttl in written(w) for _, w in facts.into(source))
        ]
        if table.ttl is not None and kept:
            items = _some([*dict.fromkeys(source for _, source in kept)])
            yield Remark(
                KEPT_EXPIRY,
                (*place, "ttl"),
                f"expired items of {items} stay counted (rule {kept[0][0]}): "
                f"a user who sets {table.ttl} can let an item expire and create it again, and it counts each time",
                f"if users can set it, use `expired: retract`; otherwise accept this: `# check: ignore {KEPT_EXPIRY.code}`",
                at_key=True,
            )
        if table.ttl is None:
            for entity in expiring:
                yield Remark(
                    NO_TTL,
                    ("entities", entity, "expires"),
                    f"items of {entity} expire, and their table has no `ttl`",
                    "add `ttl: expiresAt` to the table, with the name of the attribute",
                    at_key=True,
                )


def _some(entities: list[str]) -> str:
    return " or ".join(entities) if len(entities) < 3 else f"{', '.join(entities[:2])} or others"
