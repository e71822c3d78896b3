"""Targets: those that nothing creates, copies that cost or contain more than necessary, and long lists."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.analysis import shared_key
from projections.language.attribute_types import types_of
from projections.language.findings.keys import LONG_TEXTS
from projections.language.findings.kinds import (
    CLAIMED_COPY,
    COPIED_INDEX_KEY,
    DERIVED_TTL,
    LARGE_LIST,
    NOT_DERIVED,
    PADDED_NUMBER,
    SHARED_KEY,
    WRONG_TYPE,
    Remark,
)
from projections.language.findings.rule_facts import Facts
from projections.language.models import Copy, Projection, Top
from projections.language.rules import LIST_BYTES
from projections.language.syntax import an, steps

_TEXT_BYTES, _OTHER_BYTES = 2000, 40


def targets(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about targets: entity by entity, then rule by rule."""
    for name in facts.rules.entities:
        yield from _shared_key(facts, name)
    for name, rule in facts.variants:
        yield from _not_derived(facts, name, rule)
        yield from _padded(facts, name, rule)
    for name, rule in facts.projections.items():
        action = rule.action
        if isinstance(action, Copy):
            yield from _claimed(facts, name, rule)
            yield from _index_keys(facts, name, rule, action)
        yield from _wrong_type(facts, name, rule)
        yield from _expiry(facts, name, rule)
        if isinstance(action, Top):
            yield from _long_list(name, action)


def _shared_key(facts: Facts, name: str) -> Iterator[Remark]:
    """Yield remarks for keys that the application's items can have, too: a key has one item, whatever `match` is."""
    if not facts.made_by_rules(name):
        return
    table = facts.rules.entities[name].table
    for other, entity in facts.rules.entities.items():
        if facts.made_by_rules(other) or entity.table != table:
            continue
        if key := shared_key(facts.rules, table, name, other):
            yield Remark(
                SHARED_KEY,
                ("entities", name),
                f"rules create {name} items, and the application may have an item of {other} under the same key, such as "
                f"{key}: then no {name} item is created until that item is removed (`occupied` in the quarantine and in "
                "`verify`)",
                f"give {name} items keys that no {other} item has",
                at_key=True,
            )


def _not_derived(facts: Facts, name: str, rule: Projection) -> Iterator[Remark]:
    if not (rule.action.in_ledger and rule.action.writes_items) or facts.made_by_rules(rule.into):
        return
    key = facts.target_keys[name, rule.source]
    slots = [slot for made in (*key.partition, *key.sort) for slot in made.slots]
    computed = next((slot for slot in slots if slot.piped("bucket", "date") is not None or slot.is_calculated), None)
    if computed is not None:
        yield Remark(
            NOT_DERIVED,
            computed.place,
            f"{computed} is computed by this rule, and {rule.into} items must exist before it sets anything on them: "
            f"the application would have to create one for each value",
            f"if only rules write {rule.into} items, add `derived: true` to the entity",
            computed.offset,
        )


def _padded(facts: Facts, name: str, rule: Projection) -> Iterator[Remark]:
    """Yield remarks for numeric key attributes of targets that are made of padded text: leading zeros are bad input."""
    key = facts.target_keys.get((name, rule.source))
    for made in (*key.partition, *key.sort) if key is not None else ():
        slot = next((slot for slot in made.slots if slot.piped("pad", "invert")), None)
        if made.kind == "N" and slot is not None:
            yield Remark(
                PADDED_NUMBER,
                slot.place,
                f"{made.attribute} is a number, and {slot} has leading zeros for small values: such text is bad input, "
                f"because a number in a target's key has no leading zeros",
                f"remove {slot.piped('pad', 'invert')}: numbers sort by value",
                slot.offset,
            )


def _claimed(facts: Facts, name: str, rule: Projection) -> Iterator[Remark]:
    """Yield a remark if a copy would need no claim with a variable of its key as the source's `id`."""
    if not facts.complete.projections[name].action.recorded or facts.rules.entities[rule.source].id is not None:
        return
    key = facts.target_keys[name, rule.source]
    slots = [slot for made in (*key.partition, *key.sort) for slot in made.slots]
    told = {slot.name for slot in slots if slot.origin == "key" and not slot.pipes}
    others = [slot for slot in slots if slot.origin != "key" and (rule.each is None or slot.name != rule.each.variable)]
    if len(told) == 1 and not others:
        (variable,) = told
        yield Remark(
            CLAIMED_COPY,
            ("projections", name, "copy"),
            f"two {rule.source} items with the same {variable} have the same {rule.into} as target, so the copy goes "
            "through the ledger: 7 write units instead of 1",
            f"if {variable} is unique, add `id: {variable}` to {rule.source}",
            at_key=True,
        )


def _index_keys(facts: Facts, name: str, rule: Projection, copy: Copy) -> Iterator[Remark]:
    if not copy.copies_all:
        return
    table = facts.table(rule.into)
    indexed = table.attribute_types.keys()
    kept = {
        made.attribute
        for key in facts.index_keys
        if key.entity == rule.into and key.rule != name
        for made in (*key.partition, *key.sort)
    }
    carried = {
        made.attribute: key.index
        for key in facts.index_keys
        if key.entity == rule.source
        for made in (*key.partition, *key.sort)
        if made.attribute in indexed and made.attribute not in kept
    }
    if carried:
        attributes, indexes = " and ".join(carried), " and ".join(dict.fromkeys(map(str, carried.values())))
        yield Remark(
            COPIED_INDEX_KEY,
            ("projections", name, "copy", "attributes"),
            f"`all` also copies {attributes}, so each {rule.into} appears in {indexes} beside its {rule.source}",
            "list the attributes to copy; if copies belong in the index, give them an index rule of its own",
        )


def _expiry(facts: Facts, name: str, rule: Projection) -> Iterator[Remark]:
    """Yield a remark for a rule that writes the TTL attribute of items that rules create."""
    ttl, action = facts.table(rule.into).ttl, rule.action
    copy = action if isinstance(action, Copy) else None
    if ttl is None or not facts.made_by_rules(rule.into):
        return
    source = facts.rules.entities[rule.source]
    place = action.written.get(ttl)
    if place is None and copy is not None and copy.copies_all and source.expires:
        place = ("copy", "attributes")
    if place is None:
        return
    same = copy is not None and source.expires and place[1] == "attributes"
    until = f"until its {rule.source} is deleted" if same else "without end, as long as it has contributions"
    instead = f"a {rule.into} is removed with its last source. To remove it earlier, let {rule.source} items expire"
    if copy is not None:
        instead = "a copy is removed with its source" + ("; list the attributes to copy" if len(place) == 2 else "")
    yield Remark(
        DERIVED_TTL,
        ("projections", name, *place),
        f"if DynamoDB deletes {an(rule.into)} by {ttl}, the rules create it again with the same {ttl}, {until}",
        f"do not write {ttl}: {instead}",
        rated="note" if same else None,
    )


def _long_list(name: str, top: Top) -> Iterator[Remark]:
    """Yield a remark for a list that can exceed its limit, because it has many elements or long texts."""
    paths = [source.names for source in top.attributes.values() if source.type != "N"]
    long = [next((path for path in names if steps(path)[-1].lower() in LONG_TEXTS), None) for names in paths]
    texts = [path for path in long if path is not None]
    others = len(top.attributes) - len(texts)
    size = top.limit * (sum(map(len, top.attributes)) + _TEXT_BYTES * len(texts) + _OTHER_BYTES * others)
    if size <= LIST_BYTES:
        return
    of = f" with {' and '.join(f'`{text}`' for text in texts)}" if texts else ""
    guess = f" (assumed: {_TEXT_BYTES:,} bytes each)" if texts else ""
    yield Remark(
        LARGE_LIST,
        ("projections", name, "top", "limit"),
        f"{top.limit} elements{of}{guess} may have {size // 1024} KB, but a list has at most {LIST_BYTES // 1024} KB: "
        f"the elements that exceed it are left out. Each change rewrites the list, which costs about {LIST_BYTES // 1024} "
        "write units",
        "list fewer elements, or leave out attributes that readers can look up",
    )


def _wrong_type(facts: Facts, name: str, rule: Projection) -> Iterator[Remark]:
    """Yield remarks for numbers that are carried to index keys of type S."""
    keys = facts.table(rule.into).attribute_types
    for target, source in rule.action.carried.items():
        why = types_of(facts.rules).number(rule.source, source.path) if source.path is not None else None
        if keys.get(target) == "S" and why is not None:
            yield Remark(
                WRONG_TYPE,
                ("projections", name, *rule.action.written[target]),
                f"{target} is the key of an index of type S and {source.text} is a number ({why}): DynamoDB rejects such an "
                "item",
                f"declare {target} with type N under `indexes`, or make it text with a template: "
                f'{{{target}: "{{{source.text}|pad(10)}}"}}',
            )
