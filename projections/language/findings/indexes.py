"""Indexes of a table and what they hold, and its TTL."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.access.paths import always_present, bare_variables
from projections.language.attribute_types import Types, types_of
from projections.language.embeds import attributes_of_child, children_of
from projections.language.findings.kinds import (
    AMBIGUOUS_INDEX_KEY,
    CHILDREN_NOT_INDEXED,
    EXPIRY_UNDECIDED,
    HALF_AN_INDEX_KEY,
    KEPT_EXPIRY,
    MANY_INDEXES,
    NO_TTL,
    NOT_PROJECTED,
    UNREACHABLE_CASE,
    Remark,
    Severity,
)
from projections.language.findings.names import known_attributes
from projections.language.findings.reads import reads
from projections.language.findings.rule_facts import Facts, KeySet, Slot
from projections.language.models import Copy, Embed, Index
from projections.language.spelling import template_text
from projections.language.syntax import Location, an
from projections.language.templates import Field, Template

_GLOBAL, _LOCAL = 20, 5
"""DynamoDB's limits of indexes of a table; that of global indexes can be raised."""


def tables(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about the indexes of each table."""
    rules = facts.rules
    for name, table in rules.tables.items():
        place: Location = ("tables", name, "indexes")
        for local, most in ((False, _GLOBAL), (True, _LOCAL)):
            number, kind = sum(keys.local == local for keys in table.indexes.values()), "local" if local else "global"
            if number > most:
                yield Remark(
                    MANY_INDEXES,
                    place,
                    f"the table has {number} {kind} indexes, and DynamoDB creates at most {most}",
                    "let several kinds of items share the key attributes of one index, or remove indexes that no query "
                    "uses",
                    at_key=True,
                )


def expiry(facts: Facts) -> Iterator[Remark]:
    """Yield remarks for each table, and one for each entity."""
    rules = facts.rules
    for name, table in rules.tables.items():
        here = [entity for entity, one in rules.entities.items() if one.table == name]
        sources = dict.fromkeys(
            source for rule in facts.projections.values() if rule.action.makes_key for source in rule.sources
        )
        sources_here = [entity for entity in sources if entity in here and not facts.made_by_rules(entity)]
        expiring = [entity for entity in here if rules.entities[entity].expires]
        place: Location = ("tables", name)
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
            and not any(table.ttl in w.action.written for _, w in facts.into(source))
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


_BARE_PIPES = ("pad", "invert", "bucket", "date")
"""Pipes whose results have no separator, unless their arguments do."""


def indexes(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about index rules, and rules that read an index."""
    types = types_of(facts.rules)
    for key in facts.index_keys:
        if key.rule is not None:
            yield from _half(facts, key)
            yield from _ambiguous(facts, types, key)
    for name, rule in facts.projections.items():
        if not isinstance(rule.action, Index):
            continue
        earlier: list[object] = []
        for number, case in enumerate(rule.action.cases):
            if case.where in earlier:
                yield Remark(
                    UNREACHABLE_CASE,
                    ("projections", name, "index", number),
                    "never applies: an earlier case has the same `where`, and the first case that matches applies",
                    "merge the cases, or change one of the conditions",
                )
            earlier.append(case.where)
    if any(rule.embed for rule in facts.projections.values()):
        yield from _not_projected(facts)
        yield from _not_indexed(facts)


def _not_projected(facts: Facts) -> Iterator[Remark]:
    """Yield embed rules that find children through an index which does not show what they need of a child."""
    document = facts.rules.document()
    for name, rule in facts.projections.items():
        index = children_of(document, name).index if rule.embed is not None else None
        shown = facts.table(rule.into).shown(index) if index is not None else None
        lacking = [one for one in attributes_of_child(document, name) if one not in shown] if shown is not None else []
        if lacking:
            yield Remark(
                NOT_PROJECTED,
                ("projections", name, "embed"),
                f"{index} does not project {', '.join(lacking)}: each change of {an(rule.source)} reads every {rule.into} "
                f"that it finds, twice",
                f"often no change is needed, because writes of an index with the guard cost more than these reads; "
                f"otherwise add them to `projection` of {index}",
                at_key=True,
            )


def _not_indexed(facts: Facts) -> Iterator[Remark]:
    """Yield embed rules that find children through an index which an index rule does not write for all of them."""
    document = facts.rules.document()
    for name, rule in facts.projections.items():
        if not isinstance(rule.action, Embed) or (children := children_of(document, name)).index is None:
            continue
        child = facts.rules.entities[rule.into]
        present = always_present(facts.rules, rule.into).union(child.conditions.constants)
        keys = facts.table(rule.into).indexes[children.index]
        for writer, other in facts.projections.items():
            if not isinstance(other.action, Index) or other.source != rule.into or len(other.action.cases) > 1:
                continue
            templates = other.action.cases[0].set
            texts = {attribute: template_text(template) for attribute, template in templates.items()}
            if any(texts.get(attribute) != text for attribute, text in children.partition.items()):
                continue
            names = {one for key in keys.names & templates.keys() for one in templates[key].needs}
            lacking = sorted(names - present - rule.action.match.keys())
            if lacking:
                them = " and ".join(lacking)
                yield Remark(
                    CHILDREN_NOT_INDEXED,
                    ("projections", name, "embed"),
                    f"{children.index} lists only the {rule.into} items that have {them} (rule {writer}): a change of their "
                    f"{rule.source} does not reach the others",
                    f"if every {rule.into} has {them}, declare it: required: [{', '.join(lacking)}]; otherwise use only "
                    f"variables of the key of {rule.into} in the keys of {children.index}",
                    at_key=True,
                )


def _half(facts: Facts, key: KeySet) -> Iterator[Remark]:
    """Yield a remark if an index key lacks an attribute that nothing else is known to write."""
    table = facts.table(key.entity)
    keys = table.indexes[str(key.index)]
    made = {one.attribute for one in (*key.partition, *key.sort)}
    present = {*table.key_names} | _others(facts, key)
    missing = [name for name, _ in keys.attributes if name not in made | present]
    if not missing:
        return
    lacking = " and ".join(missing)
    severity: Severity
    if known_attributes(facts, key.entity) is not None:
        severity, who, instead = "warning", "nothing writes it", f"set {lacking} here too"
    else:
        severity, who = "note", "no rule writes it: the application must"
        instead = f"set {lacking} here too, or declare what the application writes with `index_key` on {key.entity}"
    place = next(one.place for one in (*key.partition, *key.sort))
    reason = f"an item is in {key.index} only if it has {lacking} as well, and {who}"
    yield Remark(HALF_AN_INDEX_KEY, place, reason, instead, at_key=True, rated=severity)


def _ambiguous(facts: Facts, types: Types, key: KeySet) -> Iterator[Remark]:
    """Yield a remark for each partition key of an index that items with different values can have in common.

    Unlike variables of a key, attributes may contain the separator. At the end of the template this is harmless.
    """
    separator = facts.table(key.entity).separator
    bare = bare_variables(facts.rules, key.source)

    def lacks_it(slot: Slot) -> bool:
        if (piped := slot.piped(*_BARE_PIPES)) is not None:
            return separator not in str(piped)
        if slot.expression is not None or slot.name in bare or types.number(key.source, slot.name) is not None:
            return True
        listed = key.listed.get(slot.name)
        return listed is not None and all(separator not in str(value) for value in listed)

    for made in key.partition:
        free = [slot for slot in made.slots[:-1] if not lacks_it(slot)]
        names = {slot: f"v{number}" for number, slot in enumerate(made.slots)}
        parts = tuple(part if isinstance(part, str) else Field(names[part]) for part in made.parts)
        sure = Template("", parts).recoverable({names[slot] for slot in made.slots if lacks_it(slot)}, separator)
        if free and not sure:
            them = " and ".join(dict.fromkeys(map(str, free)))
            yield Remark(
                AMBIGUOUS_INDEX_KEY,
                made.place,
                f"{them} may contain the separator {separator}: then items with other values can have the same "
                f"{made.attribute}, and a query returns them too",
                f"if users can set it, use a variable of the key of {key.source} instead, move it to the end, list its "
                "values in `where`, or let the application refuse values with the separator",
            )


def _others(facts: Facts, key: KeySet) -> set[str]:
    """Return the attributes that others write on the same items or that rules read on them: they exist."""
    entity = key.entity
    found = set(facts.rules.entities[entity].index_key)
    for name, rule in facts.into(entity):
        if name != key.rule or isinstance(rule.action, Copy):
            found |= rule.action.written.keys()
    if known_attributes(facts, entity) is None:
        found |= {read.root for read in reads(facts.rules) if read.entity == entity}
        found |= set(facts.variables(entity))
    return found
