"""The engine's values as text for people, and why the record of a target makes a rule check it again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from projections.engine.copies import freed_by, heals_of
from projections.engine.embed_lists import parents_of
from projections.engine.embeds import needs_pull, reference_of
from projections.engine.guards import Guards, Healing, at_of
from projections.engine.plan import freed_targets, target_healing
from projections.engine.records import Record
from projections.engine.store import (
    Above,
    AllOf,
    AnyOf,
    Below,
    Condition,
    Equal,
    Exists,
    Image,
    ItemKey,
    Missing,
    NotEqual,
    Schema,
    Value,
)
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import decode_key, is_range
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.ranks import range_of
from projections.language.rules import CopyRule, LedgerRule, Rule
from projections.language.syntax import an
from projections.language.values import changed_attributes, plain, plain_words, same
from projections.stores.conditions import holds, value_at

__all__ = [
    "an",
    "condition_words",
    "encoded_words",
    "failing",
    "freed_reason",
    "group_version",
    "healing_reason",
    "json_words",
    "key_words",
    "pull_reason",
    "short",
    "stream_version",
    "value_words",
    "version_words",
]


_GROUP = re.compile(r"(\d{4})\.(\d{15})")
_LONGEST = 60


def key_words(key: ItemKey) -> str:
    """Return a key for people: `POST#p1 · METADATA`."""
    return " · ".join(part for part in key[1:] if part is not None)


def encoded_words(text: str) -> str:
    """Return an encoded key for people, with the digits of a group of a `rank`; other texts unchanged."""
    if is_range(text):
        board, digits = range_of(text)
        return f"{encoded_words(board)}, {f'scores {digits}…' if digits else 'all scores'}"
    try:
        return key_words(decode_key(text))
    except ValueError:
        return text


def short(text: str, most: int = _LONGEST) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def json_words(value: Any, most: int = _LONGEST, *, absent: str = "absent") -> str:
    """Return a plain value as JSON of limited length, or `absent` for None."""
    return absent if value is None else short(plain_words(value), most)


def value_words(value: Value | None, most: int = _LONGEST) -> str:
    """Return an attribute value as JSON of limited length, or `nothing` for None."""
    return json_words(None if value is None else plain(value), most, absent="nothing")


def stream_version(version: str) -> dict[str, str] | None:
    """Return the parts of an item's version: the label of its stream, and the sequence number."""
    label, slash, sequence = version.rpartition("/")
    if not slash or not sequence.isdecimal():
        return None
    return {"stream": label, "sequenceNumber": sequence.lstrip("0") or "0"}


def group_version(version: str) -> dict[str, int] | None:
    """Return the parts of a group's version: its generation, and the number of transactions that changed it since."""
    found = _GROUP.fullmatch(version)
    return None if found is None else {"generation": int(found[1]), "changes": int(found[2])}


def version_words(version: str) -> str:
    """Return a version as text. No version is a time: sequence numbers only order, versions of groups only count."""
    if not version:
        return "no version"
    if group := group_version(version):
        again = f" of generation {group['generation']}" if group["generation"] else ""
        return f"change {group['changes']} of its group{again}"
    if stream := stream_version(version):
        if stream["sequenceNumber"] == "0":
            return "a record before these"
        return f"record {stream['sequenceNumber']}"
    return version


def condition_words(condition: Condition | None, schema: Schema) -> str:
    """Return a condition as a sentence after "if", empty for None."""
    return "" if condition is None else _words(condition, schema, False)


def _words(condition: Condition, schema: Schema, inner: bool) -> str:
    if isinstance(condition, AllOf | AnyOf):
        if isinstance(condition, AnyOf) and (guard := _guard(condition)):
            return guard
        parts = [_words(each, schema, True) for each in condition.conditions]
        if not parts:
            return "always" if isinstance(condition, AllOf) else "never"
        text = (", and " if isinstance(condition, AllOf) else " or ").join(parts)
        return f"({text})" if inner and len(parts) > 1 else text
    name = ".".join(condition.path)
    if condition.path in ((schema.partition[0],), ("pk",)):
        return "the item exists" if isinstance(condition, Exists) else "the item does not exist"
    if isinstance(condition, Missing) and schema is LEDGER_SCHEMA and name in _LEDGER:
        return _LEDGER[name]
    if isinstance(condition, Equal) and (read := at_of(condition.value)):
        return f"its guard {name} still shows {version_words(read)}"
    match condition:
        case Exists():
            return f"{name} exists"
        case Missing():
            return f"{name} does not exist"
        case Equal(value=value):
            return f"{name} is {_operand(name, value)}"
        case NotEqual(value=value):
            return f"{name} is not {_operand(name, value)}"
        case Below(value=value):
            return f"{name} is {'before' if _is_version(value) else 'less than'} {_operand(name, value)}"
        case Above(value=value):
            return f"{name} is {'after' if _is_version(value) else 'more than'} {_operand(name, value)}"
    raise TypeError(condition)


_LEDGER = {"recent": "it has no pending publish", "closed": "the group is open"}
"""The meaning of absent attributes of the ledger."""


def _guard(condition: AnyOf) -> str | None:
    """Return the text of the conditions on a guard, see `Guards`, or None for other conditions."""
    first = condition.conditions[0] if condition.conditions else None
    if not isinstance(first, NotEqual) or first.path[1:] != ("d",):
        return None
    older = next((each for each in condition.conditions if isinstance(each, Below)), None)
    if older is None:
        return None
    another = ", another source's" if len(condition.conditions) > 2 else ""
    return f"its guard {first.path[0]} is absent, invalid{another} or older than {_operand('at', older.value)}"


def _is_version(value: Value) -> bool:
    text = value.get("S")
    return isinstance(text, str) and (stream_version(text) is not None or group_version(text) is not None)


def _operand(name: str, value: Value) -> str:
    text = value.get("S")
    if isinstance(text, str):
        if _is_version(value):
            return version_words(text)
        if name.endswith(".by"):
            return encoded_words(text)
        if name == "contributions":
            return "nothing" if text == "{}" else "those of the old image"
    return value_words(value)


def failing(condition: Condition | None, item: Image | None, schema: Schema) -> str:
    """Return the parts of a condition that an item did not meet, with the values that it had."""
    if condition is None or holds(condition, item):
        return ""
    if item is None:  # else the condition would hold
        return "the item does not exist"
    return "; ".join(dict.fromkeys(_failing(condition, item, schema)))


def _failing(condition: Condition, item: Image | None, schema: Schema) -> Iterator[str]:
    if isinstance(condition, AnyOf) and _guard(condition):
        for each in condition.conditions[1:]:  # the first is the digest, which is not printed
            yield from _failing(each, item, schema)
        return
    if isinstance(condition, AllOf):
        for each in condition.conditions:
            if not holds(each, item):
                yield from _failing(each, item, schema)
        return
    if isinstance(condition, AnyOf):
        parts = [part for each in condition.conditions for part in _failing(each, item, schema)]
        other = [part for part in parts if not part.endswith(" exists")]
        yield from other or parts
        return
    name, found = ".".join(condition.path), value_at(item, condition.path)
    if isinstance(condition, Missing):
        yield f"{name} exists"
    elif isinstance(condition, Exists):
        yield f"{name} does not exist"
    else:
        seen = "absent" if found is None else _operand(name, found)
        yield f"{name} is {seen}, not {_wanted(condition, name)}"


def _wanted(condition: Equal | NotEqual | Below | Above, name: str) -> str:
    operand = _operand(name, condition.value)
    match condition:
        case Below():
            return f"before {operand}"
        case Above():
            return f"after {operand}"
        case NotEqual():
            return "anything else"
    return operand


def healing_reason(
    program: Program, guards: Guards, rule: Rule, record: Record, old: Item | None, new: Item | None
) -> str:
    """Return why a rule publishes to the item again, or compares its copy with the source; empty if it does not."""
    before = old.image if old is not None and old.entity is rule.into else None
    after = new.image if new is not None and new.entity is rule.into else None
    why: Healing | None = None
    if isinstance(rule, LedgerRule) and not before is after is None:
        why = target_healing(guards, rule, record.key, before, after)
    elif isinstance(rule, CopyRule):
        why = next(
            (heal.why for heal in heals_of(program, guards, record.key, old, new, "") if heal.rule is rule), None
        )
    if why is None:
        return ""
    if why == "gone":
        decides = "the rule" if rule.recorded else "its source"
        return f"{_gone(rule, record)}, and {decides} decides whether it exists"
    return _healing_words(why, guards, rule, record.key, before or {}, after or {})


def _gone(rule: Rule, record: Record) -> str:
    return "it was removed" if record.new is None else f"it is no longer {an(rule.into.name)}"


def _healing_words(why: Healing, guards: Guards, rule: Rule, key: ItemKey, old: Image, new: Image) -> str:
    guard, ours = guards.name(rule.name), rule.owned(old, new)
    before, after = guards.read(rule.name, key, old), guards.read(rule.name, key, new)
    match why:
        case "created":
            return "it was created"
        case "guard invalid":
            return f"its guard {guard} is invalid"
        case "guard removed":
            return f"its guard {guard} was removed"
        case "values changed":
            changed = ", ".join(_changed(ours, old, new))
            return f"{changed} changed, but the guard {guard} did not, so the rule did not write it"
        case "guard not advanced" if before is not None and after is not None:
            return (
                f"the guard {guard} did not advance: {version_words(before.at)}, then {version_words(after.at)}; "
                "an old state of the item was written back"
            )
        case "put back":
            foreign = sorted(set(changed_attributes(old, new)) - {*ours, guard})
            return f"the guard {guard} changed together with {', '.join(foreign[:5])}: the whole item was written back"
        case "emptied":
            nothing = "nothing contributes to it" if rule.recorded else "it has no source"
            lost = ", ".join(sorted(old.keys() - new.keys())[:5])
            return f"it lost {lost}, and {nothing}: it may have existed for these attributes only"
        case "owner changed" if before is not None and after is not None:
            return f"its owner changed from {encoded_words(before.by)} to {encoded_words(after.by)}"
        case "unknown version":
            return f"the guard {guard} had no version before"
        case "taken over":
            return "the item was not a copy before"
    raise NotImplementedError(why)


def _changed(names: Iterable[str], old: Image, new: Image) -> list[str]:
    return sorted(name for name in names if not same(old.get(name), new.get(name)))


def pull_reason(rule: EmbedRule, guards: Guards, old: Item | None, new: Item) -> str:
    """Return why a child reads its parent; empty if it does not."""
    why = needs_pull(rule, guards, old, new)
    if why is None and isinstance(rule, ListEmbedRule) and parents_of(rule, old).keys() - parents_of(rule, new).keys():
        why = "reference changed"  # it has nothing to remove, but its links have to go
    before, after = old.image if old is not None else {}, new.image
    match why:
        case None:
            return ""
        case "reference changed" if isinstance(rule, ListEmbedRule):
            return f"{' or '.join(rule.read_by(new) or [rule.references_name])} changed"
        case "reference changed":
            return f"its reference changed from {_parent(rule, old)} to {_parent(rule, new)}"
        case "other parent":
            guard = guards.read(rule.name, new.key, after)
            named = encoded_words(guard.by) if guard is not None else ""
            name = guards.name(rule.name)
            return f"it references {_parent(rule, new)}, its guard {name} names {named or 'no parent'}"
        case "no parent":
            if isinstance(rule, ListEmbedRule):
                return f"it has no valid {rule.references_name}, but has {rule.list_name} or the guard of the rule"
            return "it references no parent, but has embedded attributes"
        case "index key changed":
            names = [name for name in rule.children.partition if not same(before.get(name), after.get(name))]
            return f"{', '.join(names)}, by which its parent finds it, changed"
        case "kind changed":
            names = _changed(rule.into.match_attributes, before, after)
            return f"{', '.join(names)}, by which its entity is recognised, changed"
    return _healing_words(why, guards, rule, new.key, before, after)


def _parent(rule: EmbedRule, child: Item | None) -> str:
    parent = reference_of(rule, child)[0] if child is not None else None
    return "no parent" if parent is None else key_words(parent)


def freed_reason(program: Program, rule: Rule, record: Record, old: Item | None, new: Item | None) -> str:
    """Return why a rule may create its item now; empty if it may not."""
    copies = (heal.rule.name for heal in freed_by(program, record, old, new))
    groups = (name for name, _ in freed_targets(program, record, old, new))
    if rule.name not in chain(copies, groups):
        return ""
    if record.new is None:
        return "an item of another kind under this key was removed"
    return f"the item under this key was of another kind and is {an(new.entity.name) if new else 'of no entity'} now"
