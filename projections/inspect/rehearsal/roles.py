"""What a write is for, told from the write alone: the ledger's keys and the guards on items say which rule made it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from projections.engine.ledger_items import LEDGER, SHARD_COUNT
from projections.engine.registry import REGISTRY
from projections.engine.store import Delete, Image, ItemKey, Missing, Update, Write
from projections.inspect.rehearsal.recorder import Action
from projections.language.embeds import EmbedRule
from projections.language.keys import encode_key
from projections.language.program import Entity, Program
from projections.language.rules import CopyRule, Rule
from projections.stores.conditions import paths

__all__ = ["ROLES", "Role", "creators", "role_of", "whole_text"]

ROLES = {
    "entry": "what a source item contributes, as of which version",
    "forget": "the entry no longer owes the publications that were made",
    "group": "the totals of one target",
    "member": "one contribution in order, for min, max, top, latest and claims",
    "extreme": "the least or greatest value that has settled",
    "shards": "how many shards a group has",
    "fence": "the newest version of a parent that is being pushed",
    "registry": "which rules are in force, and in which state",
    "publish": "what a group says, onto its target",
    "copy": "a copy of the source item",
    "embed": "a parent's attributes, in its child",
    "index": "key attributes of indexes, on the item itself",
    "release": "attributes that rules set, from an item that has left its entity",
    "restore": "attributes of the application that a deletion removed with a rule's item",
    "wait": "which source waits for a key that an item of another kind occupies",
    "delete": "an item that a rule created, and that no source makes any more",
    "other": "nothing that this version knows",
}
"""What each kind of write is for. Those from `entry` to `registry` are of the ledger."""


@dataclass(frozen=True, slots=True)
class Role:
    """The kind of a write (of ROLES), the rules it is for, and the encoded key it is about: a source, target or parent.

    An entry is for all rules of its source, so it names none here.
    """

    kind: str
    rules: tuple[str, ...]
    about: str


def role_of(program: Program, action: Action) -> Role:
    """What a write that the engine made is for."""
    write = action.write
    if write.key.table == LEDGER:
        return _of_ledger(write, action.before)
    about = encode_key(write.key)
    if isinstance(write, Delete):
        return Role("delete", _guarded(program, {path[0] for path in paths(write.condition)}), about)
    named = {*write.set, *write.remove}
    guarded = _guarded(program, named)
    if guarded and not write.set:
        return Role("release", guarded, about)
    if not guarded and program.guard_prefix in named:  # the mark alone
        return Role("release", creators(program, program.entities_at(write.key)), about)
    marked = any(path == (program.guard_prefix,) for path in paths(write.condition))
    if not guarded and (isinstance(write.condition, Missing) or (write.set and marked)):
        return Role("restore", (), about)
    if not guarded:
        return Role("index", _indexing(program, write.key, action.before, named), about)
    return Role(_kind(program.rules[guarded[0]]), guarded, about)


def _guarded(program: Program, names: Collection[str]) -> tuple[str, ...]:
    """The rules whose guards are among these attributes."""
    return tuple(name for name in program.rules if program.guard(name) in names)


def creators(program: Program, entities: Iterable[Entity]) -> tuple[str, ...]:
    """The rules that create items of these entities, and mark them."""
    into = list(entities)
    return tuple(name for name, rule in program.rules.items() if rule.creates and rule.into in into)


def _kind(rule: Rule) -> str:
    if isinstance(rule, EmbedRule):
        return "embed"
    return "copy" if isinstance(rule, CopyRule) and not rule.claimed else "publish"


def whole_text(key: ItemKey, *images: Image | None) -> str:
    """The text that a ledger item's partition key stands for; long ones end in a hash, and the item says the whole."""
    for image in images:
        if image is not None and "key" in image:
            return str(image["key"]["S"])
    return key.partition.split("|", 1 if key.partition.startswith("E|") else 2)[-1]


def _of_ledger(write: Write, before: Image | None) -> Role:
    if write.key.partition == REGISTRY.partition:
        return Role("registry", (), write.key.sort or "")
    letter, _, rest = write.key.partition.partition("|")
    about = whole_text(write.key, write.set if isinstance(write, Update) else None, before)
    if letter == "E":
        committed = isinstance(write, Update) and "contributions" in write.set
        return Role("entry" if committed else "forget", (), about)
    rules = (rest.partition("|")[0],)
    if letter == "G" and isinstance(write, Update):
        if "order" in write.set:
            return Role("extreme", rules, about)
        return Role("shards" if SHARD_COUNT in write.set else "group", rules, about)
    return Role({"M": "member", "F": "fence", "W": "wait"}.get(letter, "other"), rules, about)


def _indexing(program: Program, key: ItemKey, before: Image | None, named: Collection[str]) -> tuple[str, ...]:
    """The index rules that set any of these attributes. Of an item that is gone its key alone says what it was."""
    item = program.recognise(key, before) if before is not None else None
    entities = [item.entity] if item is not None else program.entities_at(key)
    rules = [rule for entity in entities for rule in program.index_rules.get(entity.name, ())]
    return tuple(rule.name for rule in rules if any(name in named for name, _, _ in rule.attributes))
