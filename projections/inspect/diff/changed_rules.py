"""Compare two canonical documents: changed rules, why their new versions are filled, and what is deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from projections.language.compiling import ABOUT, UNREAD, without
from projections.language.facts import creates, key_text
from projections.language.models import Projection, Rules

Status = Literal["new", "changed", "removed", "retired"]


class Target(NamedTuple):
    """The target of a rule: an entity, and its key as templates over the source."""

    entity: str
    key: str

    def __str__(self) -> str:
        return f"{self.entity} {self.key}"


class Part(NamedTuple):
    """A part of a rule that differs. `name` is that in the rule file, such as `where`, `set.likeCount`, `Post.key`.

    `shared`: it belongs to an entity, a table, or the whole file, and is in every rule that it concerns.
    """

    name: str
    before: Any
    after: Any
    shared: bool = False


class Change(NamedTuple):
    """A rule that differs between two documents. `before` and `after` are its canonical forms, or None."""

    rule: str
    status: Status
    before: Projection | None
    after: Projection | None
    target_before: Target | None
    target_after: Target | None
    parts: tuple[Part, ...] = ()
    fate: str | None = None
    """`keep` or `remove`, for a retired rule."""

    @property
    def moved(self) -> bool:
        """It exists in both, and writes to other items than before."""
        return None not in (self.target_before, self.target_after) and self.target_before != self.target_after

    @property
    def only_hold(self) -> bool:
        """Whether the rule differs only in `hold`."""
        return [part.name for part in self.parts] == ["hold"]

    @property
    def rule_now(self) -> Projection:
        """The rule, or its last version if it was removed."""
        rule = self.after or self.before
        assert rule is not None
        return rule

    @property
    def kind(self) -> str:
        return self.rule_now.kind

    @property
    def source(self) -> str:
        return " and ".join(self.rule_now.sources)


def target(rules: Rules, rule: str) -> Target:
    """Return the target of a rule. For an embed, the key of the children is not resolved."""
    return Target(rules.projections[rule].into, key_text(rules, rules.projections[rule]))


def changes(old: Rules, new: Rules) -> list[Change]:
    """Return the rules that differ, in the order of the new file, then removed ones."""
    rule_changes = []
    for name, after in new.projections.items():
        before = old.projections.get(name)
        if before is None:
            rule_changes.append(Change(name, "new", None, after, None, target(new, name)))
        elif parts := tuple(_parts(old, new, before, after)):
            rule_changes.append(Change(name, "changed", before, after, target(old, name), target(new, name), parts))
    for name, before in old.projections.items():
        if name not in new.projections:
            fate = new.retired.get(name)
            status: Status = "removed" if fate is None else "retired"
            rule_changes.append(Change(name, status, before, None, target(old, name), None, fate=fate))
    return rule_changes


def _parts(old: Rules, new: Rules, before: Projection, after: Projection) -> Iterator[Part]:
    yield from _of_sources(before, after)
    yield from _different(_without_sources(before, after), _without_sources(after, before))
    for entity in dict.fromkeys((*before.sources, before.into)):
        if entity in (*after.sources, after.into):  # another entity is reported as a part already
            was, fields = (rules.entities[entity].model_dump(mode="json", exclude_none=True) for rules in (old, new))
            for field in dict.fromkeys((*was, *fields)):
                if field not in UNREAD and not _same(was.get(field), fields.get(field)):
                    yield Part(f"{entity}.{field}", was.get(field), fields.get(field), True)
    tables = {old.entities[entity].table for entity in (*before.sources, before.into)}
    for table in sorted(tables & new.tables.keys()):
        mine, its = old.tables[table], new.tables[table]
        if mine.separator != its.separator:
            yield Part(f"{table}.separator", mine.separator, its.separator, True)
        if mine.key != its.key:
            yield Part(f"{table}.key", dict(mine.key), dict(its.key), True)


def _same(first: Any, second: Any) -> bool:
    """Return whether two parts are the same for a fingerprint: 1 is not true."""
    return first == second and json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


_OF_SOURCES = ("where", "bind", "each")


def _of_sources(before: Projection, after: Projection) -> Iterator[Part]:
    """Yield the differences in what a rule with several sources states for each: `where.Video`, `bind.Video`."""
    if len(before.sources) == len(after.sources) == 1:
        return
    was, is_now = (rule.document()["from"] for rule in (before, after))
    if was.keys() != is_now.keys():
        yield Part("from", ", ".join(was), ", ".join(is_now))
    for source in (name for name in was if name in is_now):
        for name in _OF_SOURCES:
            if was[source].get(name) != is_now[source].get(name):
                yield Part(f"{name}.{source}", was[source].get(name), is_now[source].get(name))


def _without_sources(rule: Projection, other: Projection) -> Mapping[str, Any]:
    """Return a rule as one flat mapping, without what `_of_sources` compares."""
    document = without(rule.document(), ABOUT)
    sources, action = document.pop("from"), document.pop(rule.kind)
    alone = len(rule.sources) == len(other.sources) == 1
    return {
        "kind": rule.kind,
        **({"from": rule.source, "bind": {}, **sources[rule.source]} if alone else {}),
        **document,
        "hold": rule.hold,
        **(action if isinstance(action, dict) else {rule.kind: action}),
    }


_BY_ATTRIBUTE = ("set", "attributes", "values", "match", "bind")


def _different(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> Iterator[Part]:
    """Yield the fields that differ, and for fields with attributes each attribute."""
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if _same(old, new):
            continue
        if not path and name in _BY_ATTRIBUTE and isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _different(old, new, f"{name}.")
        elif not path and name == "index" and old and new and len(old) == len(new):
            for number, (mine, its) in enumerate(zip(old, new, strict=True)):
                yield from _different(mine, its, "index." if len(old) == 1 else f"index[{number}].")
        else:
            yield Part(path + name, old, new)


def renames(old: Rules, new: Rules, all_changes: list[Change]) -> list[tuple[str, str, bool]]:
    """Return removed rules and new ones that may be the same renamed: (old name, new name, certain).

    It is certain if only the name differs, possible if kind, source and target are the same.
    """
    fresh = [change for change in all_changes if change.status == "new"]
    pairs = []
    for gone in all_changes:
        if gone.status not in ("removed", "retired") or gone.before is None:
            continue
        ends = (*gone.before.sources, gone.before.into)
        moved = any(old.entities[name] != new.entities.get(name) for name in ends)
        same = [change for change in fresh if change.after == gone.before and not moved]
        alike = [change for change in fresh if change.after is not None and _role(change.after) == _role(gone.before)]
        for change in (same or alike)[:1]:
            pairs.append((gone.rule, change.rule, bool(same)))
            fresh.remove(change)
    return pairs


def _role(rule: Projection) -> tuple[str, tuple[str, ...], str]:
    return rule.kind, rule.sources, rule.into


def why_kept(old: Rules, name: str) -> str:
    """Return why no value of a rule is removed, whatever `retired` sets; an empty text if it does."""
    rule = old.projections[name]
    if rule.action.first_only:
        return "its values stay, because it has `once`"
    return "its values stay, because it was held" if rule.hold else ""


def deletions(old: Rules, new: Rules, change: Change) -> Iterator[str]:
    """Yield the items of a rule that are deleted once another version, or none, is published."""
    if change.before is None or change.target_before is None or not creates(old, change.before):
        return
    if why_kept(old, change.rule):
        return
    entity, made = change.target_before.entity, f"`{change.target_before}`"
    others = any(
        rule.into == entity and name != change.rule and not rule.action.on_source
        for name, rule in new.projections.items()
    )
    if others and not change.before.action.makes_items:
        made += " that no other rule contributes to"
    parts = {part.name.partition(".")[0] for part in change.parts if not part.shared}
    if change.status == "retired" and change.fate == "remove":
        yield f"all {made}"
    elif change.status == "changed":
        if change.moved or parts & {"into", "bind", "kind", "each"}:
            yield f"{made} under keys that the rule no longer creates"
        elif parts & {"where", "from"} or any(part.name.endswith(".match") for part in change.parts if part.shared):
            yield f"{made} of items that no longer contribute"


_WHICH = "other items contribute"
_WHERE = "targets have other keys"
_WHAT = "the values change"
_WHAT_FIRST = "the values that it sets from now on change; those that exist stay, because it has `once`"
_ORDER = "the order changes"
_LISTED = "children get another list or map"
_REASONS: Mapping[str, str] = {
    "kind": "its kind changes",
    "from": _WHICH,
    "where": _WHICH,
    "each": _WHICH,
    "bind": _WHERE,
    "into": "it writes to another entity",
    "attributes": _WHAT,
    "values": _WHAT,
    "set": _WHAT,
    "by": _ORDER,
    "order": _ORDER,
    "digits": "scores are divided into other digits",
    "decimals": "scores are divided into other digits",
    "limit": "the length of the list changes",
    "as": "the attribute is renamed",
    "match": "children reference other parents",
    "claimed": "several sources can have one target now, or no longer",
    "form": _LISTED,
    "references": _LISTED,
    "id": _LISTED,
    "missing": _LISTED,
    "on_delete": "children of deleted parents keep or lose embedded attributes",
}
_SHARED_REASONS: Mapping[str, str] = {
    "key": "keys are parsed and rendered differently",
    "separator": "keys are parsed and rendered differently",
    "match": "items are recognised differently",
    "table": "its items are in another table",
    "derived": "rules create and delete these items, or no longer",
}
_ONCE = "values that are there no longer change"
_NOT_ONCE = "recorded values are replaced by those of today, and no rule can restore them"
_ENTRIES = "it is counted with an entry for each source item: more write units, and entries that `verify` compares"
_LANES = "it is counted by lanes: fewer write units, and no entries, so `verify` compares its groups with the items"
_LANES_KEEP = (
    "it is counted by lanes: fewer write units, and no entries, so `verify` cannot compare it, and what has expired is lost "
    "when it is counted again"
)
_NOTHING_WRONG = "its values stay correct, and a changed rule gets a new version all the same"


def reasons(change: Change) -> list[str]:
    """Return why a rule gets a version that is filled, each reason once; nothing for a removed rule."""
    if change.status == "new":
        return ["it is new, and has not processed existing items"]
    if change.status != "changed":
        return []
    if change.only_hold:
        recorded = change.rule_now.action.recorded or change.rule_now.hold
        return [] if recorded else ["it was held, and wrote nothing"]
    texts = list(dict.fromkeys(filter(None, [_reason(part, change.rule_now) for part in change.parts])))
    return texts or [_NOTHING_WRONG]


def _reason(part: Part, rule: Projection) -> str | None:
    name, _, field = part.name.partition(".")
    if name == "ledger":
        return _ENTRIES if not part.after else _LANES_KEEP if rule.expired == "keep" else _LANES
    if name == "once":
        return _ONCE if part.after else _NOT_ONCE
    if name.startswith("index"):
        return _WHAT
    if rule.action.first_only and not part.shared and _REASONS.get(name) == _WHAT:
        return _WHAT_FIRST
    return _SHARED_REASONS.get(field) if part.shared else _REASONS.get(name)
