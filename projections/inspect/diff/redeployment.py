"""Changes of the template for changed rules: tables, indexes, TTL, filters, permissions."""

from __future__ import annotations

from collections.abc import Iterator

from projections.deploy.needs import Deployment, Prefix, TableNeeds, entities_of, key_prefixes

__all__ = ["impossible", "new_indexes", "template_changes"]


def template_changes(before: Deployment, after: Deployment) -> Iterator[str]:
    """Yield the changes of the template for the new rules."""
    tables = {table.name: table for table in before.tables}
    for table in after.tables:
        old = tables.pop(table.name, None)
        if old is None:
            yield f"table {table.name} is new"
            continue
        for name in _without(table, old):
            yield f"table {table.name}: index {name} is new"
        for name in _without(old, table):
            yield f"table {table.name}: index {name} is no longer in the rules, and would be deleted"
        if old.schema.ttl != table.schema.ttl:
            ttl, was = table.schema.ttl or "nothing", old.schema.ttl or "nothing"
            yield f"table {table.name}: items expire by {ttl}, before by {was}"
        if old.filters.patterns != table.filters.patterns:
            yield f"table {table.name}: the filters match {_prefixes(before, after, table)}"
        if changed := [*_differing(_permissions(old), _permissions(table))]:
            yield f"table {table.name}: the functions need other permissions ({', '.join(changed)})"
    for name in tables:
        yield f"table {name} is no longer in the rules (it is kept, and no rule reads or writes it)"


def _without(table: TableNeeds, other: TableNeeds) -> list[str]:
    """Return the indexes of a table that another one lacks."""
    return [name for name in table.schema.indexes if name not in other.schema.indexes]


def _prefixes(before: Deployment, after: Deployment, table: TableNeeds) -> str:
    """Return the prefixes of keys that the filters match now, and those that they match no longer."""

    def boxes(deployment: Deployment) -> dict[tuple[Prefix, ...], None]:
        schema = deployment.program.tables[table.name]
        entities = entities_of(deployment.program, table.name)
        return dict.fromkeys(key_prefixes(schema, entity.patterns) for entity in entities)

    def shown(found: list[tuple[Prefix, ...]]) -> str:
        return ", ".join(
            "everything"
            if all(p.anything for p in prefixes)
            else " · ".join(p.text + ("" if p.exact else "…") for p in prefixes)
            for prefixes in found
        )

    old, new = boxes(before), boxes(after)
    more, less = [one for one in new if one not in old], [one for one in old if one not in new]
    parts = [f"{shown(more)} too" if more else "", f"{shown(less)} no longer" if less else ""]
    return " and ".join(filter(None, parts)) or "the same keys, written differently"


def _permissions(table: TableNeeds) -> dict[str, object]:
    return {
        "update items": table.updates,
        "delete items": table.deletes,
        "query and update children": table.children,
        f"query {', '.join(table.queried) or 'indexes'}": table.queried,
    }


def _differing(old: dict[str, object], new: dict[str, object]) -> Iterator[str]:
    for what in dict.fromkeys((*old, *new)):
        if bool(old.get(what)) != bool(new.get(what)):
            yield what if new.get(what) else f"no longer {what}"


def new_indexes(before: Deployment, after: Deployment) -> Iterator[tuple[str, str]]:
    """Yield the new indexes of existing tables, as (table, index)."""
    for old, table in _both(before, after):
        yield from ((table.name, name) for name in _without(table, old))


def impossible(before: Deployment, after: Deployment) -> Iterator[str]:
    """Yield changes that DynamoDB does not support."""
    for old, table in _both(before, after):
        if (old.schema.partition, old.schema.sort) != (table.schema.partition, table.schema.sort):
            yield f"the key of table {table.name} changes, which is impossible. Use a new table with another name"
        for name, keys in table.schema.indexes.items():
            if name not in old.schema.indexes:
                if name in table.schema.local:
                    yield (
                        f"local index {name} is new, and a local index can be created only with its table. Make it global, "
                        "or use a new table with another name"
                    )
            elif old.schema.indexes[name] != keys or (name in old.schema.local) != (name in table.schema.local):
                yield f"the key of index {name} changes, which is impossible. Use a new index with another name"
            elif old.schema.shown(name) != table.schema.shown(name):
                yield (
                    f"the projection of index {name} changes, which is impossible. If the table's index has it already, "
                    "this only corrects the rules; otherwise use a new index with another name"
                )


def _both(before: Deployment, after: Deployment) -> Iterator[tuple[TableNeeds, TableNeeds]]:
    """Yield the tables that are in both, before and after."""
    tables = {table.name: table for table in before.tables}
    return ((tables[table.name], table) for table in after.tables if table.name in tables)
