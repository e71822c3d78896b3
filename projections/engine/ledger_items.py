"""The items of the ledger table: their keys and what they hold.

    pk                    sk                           what
    E|<source>            .                            entry: what a source item contributes under each version of a rule
    G|<version>|<target>  <shard>                      group: number of contributions and totals of one target
    M|<version>|<target>  <slot>|<value><source>       member: one contribution, ordered by value and source
                          <slot>|<value>               value counter: see `engine.value_counters`
    S|<version>           <lane>                       handover of a shard to lanes: see `engine.lanes`
    F|<rule>|<parent>     .                            fence: the newest version of an embed's parent being pushed
    L|<rule>|<parent>     <child>                      link: a child that references the parent among others
    W|<rule>|<target>     .                            the source that waits for a key with an item of another kind
    R                     . and others                 registry: see `engine.registry`
    D                     <message id>                 a dismissed message: see `operations.dismissal`
    A                     . and `secret`               audit, and the secret of hashes: `operations.{audit,redaction}`

Keys are readable as long as they fit. Longer ones end in a hash, and the item holds the whole key. A hashed key is
longer than any readable one, so no item's readable key equals another item's hashed key.

Members are read in the order of their sort keys, but the order of hashes means nothing. So members whose hashed keys have
the same head are read together, and put in order by the value and the source that they hold (`engine.groups`). A publish
then reads all of these members, also beyond the first few that it shows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from projections.engine.store import Image, ItemKey, Value
from projections.language.contribution import Contributions
from projections.language.keys import decode_key, escape, unescape

LEDGER = "ledger"
"""The logical name of the ledger table."""

SHARD_COUNT = "shards"
"""On the first shard of a group: how many shards it ever had; absent if one."""

COUNT = "c"
"""On a value counter: the number of contributions with the value."""

PROMOTION_DIGITS = 10
"""Digits of the epoch of a promotion in guards: those of the seconds since 1970."""

MOST_EXPIRIES = 8
"""Expiries under its key that an entry holds."""

_LONGEST_PARTITION = 1570
_LONGEST_SORT = 1020
"""Bytes. DynamoDB allows 2048 and 1024."""

_HASH = 1 + 64
_RESERVED = _HASH + 3
"""Bytes by which readable keys stay below the limit: "#", a hash, and the rest of a character."""

_POSITION = 1 + 6
"""Bytes of the position of an element of `each`, at the end of a member's sort key: also after a hash."""

_NUL = "\0\x7f"
"""A NUL in a source's key, as members' keys have it: the NUL that ends a source sorts before it, because a digit follows."""

Target = tuple[str, str]
"""A rule's name and an encoded target key."""


def _shorten(text: str, most: int) -> str:
    """Return the text, or its head with a hash where it has more than `most` - 68 bytes: then the result has more, too."""
    readable = most - _RESERVED
    if len(text) * 4 <= readable or len(encoded := text.encode()) <= readable:
        return text
    return f"{_head(encoded, most)}#{hashlib.sha256(encoded).hexdigest()}"


def _head(encoded: bytes, most: int) -> str:
    """Return the characters that begin within a fixed number of bytes.

    They are whole: if a character was cut off, the text after it would sort as if it had come first.
    """
    end = most - _RESERVED
    while end < len(encoded) and encoded[end] & 0xC0 == 0x80:
        end += 1
    return encoded[:end].decode()


def entry_key(source: str) -> ItemKey:
    """Return the key of the entry of a source item, by the encoded key of the item."""
    return ItemKey(LEDGER, _shorten("E|" + source, _LONGEST_PARTITION), ".")


def group_key(rule: str, target: str, shard: int = 0) -> ItemKey:
    """Return the key of one shard of a group."""
    return ItemKey(LEDGER, _shorten(f"G|{rule}|{target}", _LONGEST_PARTITION), f"{shard:02d}")


def members_key(rule: str, target: str) -> str:
    """Return the partition key of a group's members."""
    return _shorten(f"M|{rule}|{target}", _LONGEST_PARTITION)


def member_key(rule: str, target: str, member: str, source: str) -> ItemKey:
    """Return the key of a member: `member` is its slot and encoded value, as contributions have it, perhaps with a position.

    The position comes after the source, because ties are broken by source first; a NUL keeps sources in their order.
    """
    slot, _, encoded = member.partition("|")
    value, _, position = encoded.partition(" ")  # no encoded value has a space
    text = f"{escape(slot)}|{value}{source_order(source)}"
    sort = _shorten(text, _LONGEST_SORT - _POSITION)
    return ItemKey(LEDGER, members_key(rule, target), f"{sort}\0{position}" if position else sort)


def source_order(source: str) -> str:
    """Return a text that sorts as the keys of sources do: `table|partition key|sort key`, from an encoded key.

    Encoded keys do not, because `|` and `%` are escaped. Two keys may have the same text, such as `a|b` with `c`, and `a`
    with `b|c`: the shorter partition key comes first.
    """
    if "%" not in source and "\0" not in source:
        return source
    key = decode_key(source)
    text = "|".join([part for part in key if part is not None]).replace("\0", _NUL)
    return f"{text}\0{len(key.partition):04d}" if "%7C" in source else text


def member_order(member: Image) -> tuple[str, str, str]:
    """Return what members of one slot sort by: value, source, position. Their sort keys do, except hashed ones."""
    order, source = member.get("o", {"S": ""}), member.get("s", {"S": ""})
    return order["S"], source_order(source["S"]), member["sk"]["S"]


def shared_head(sort: str) -> str | None:
    """Return the beginning of a member's hashed sort key, which several may share; None for a readable key."""
    most = _LONGEST_SORT - _POSITION
    if len(sort) * 4 <= most or len(encoded := sort.encode()) <= most - _RESERVED + _POSITION:
        return None
    return _head(encoded, most)


def slot_in(member: Image) -> str:
    """Return the slot of a stored member or value counter."""
    return unescape(member["sk"]["S"].split("|", 1)[0])


def source_of(entry: Image) -> str:
    """Return the encoded key of an entry's item."""
    text: str = entry["key"]["S"] if "key" in entry else entry["pk"]["S"][2:]
    return text


def group_of(group: Image) -> Target:
    """Return the target of an item of a group."""
    rule, _, target = group["pk"]["S"][2:].partition("|")
    return rule, group["key"]["S"] if "key" in group else target


def fence_key(rule: str, parent: str) -> ItemKey:
    """Return the key of the fence of an embed's parent, by its encoded key."""
    return ItemKey(LEDGER, _shorten(f"F|{rule}|{parent}", _LONGEST_PARTITION), ".")


def links_key(rule: str, parent: str) -> str:
    """Return the partition key of the links of an embed's parent to its children, by its encoded key."""
    return _shorten(f"L|{rule}|{parent}", _LONGEST_PARTITION)


def link_key(rule: str, parent: str, child: str) -> ItemKey:
    """Return the key of the link of a parent to a child, by their encoded keys."""
    return ItemKey(LEDGER, links_key(rule, parent), _shorten(child, _LONGEST_SORT))


def rule_of_link(item: Image) -> str | None:
    """Return the rule of a link; None for other items of the ledger."""
    kind, _, names = item["pk"]["S"].partition("|")
    return names.partition("|")[0] if kind == "L" else None


def waiting_key(rule: str, target: str) -> ItemKey:
    """Return the key of the note that names the source waiting for a copy's key, which an item of another kind has."""
    return ItemKey(LEDGER, _shorten(f"W|{rule}|{target}", _LONGEST_PARTITION), ".")


def group_at(promotion: int, version: int) -> str:
    """Return the version of a group as guards have it: text in the order of (promotion, version)."""
    return f"{promotion:0{PROMOTION_DIGITS}d}.{version:015d}"


def promotion_in(at: str) -> int:
    """Return the epoch of the promotion in a version that a guard stores; 0 without one."""
    promotion, mark = at[:PROMOTION_DIGITS], at[PROMOTION_DIGITS : PROMOTION_DIGITS + 1]
    return int(promotion) if mark in ("|", ".") and promotion.isdecimal() else 0


def recent_element(target: Target) -> str:
    return f"{target[0]}|{target[1]}"


def read_recent(element: str) -> Target:
    rule, _, target = element.partition("|")
    return rule, target


_NOT_REFUSED: Mapping[str, str] = {}
_NOTHING_KEPT: Contributions = {}


class Entry(NamedTuple):
    """The ledger's record of one source item."""

    version: str
    contributions: Contributions
    recent: frozenset[str]
    revision: int
    epoch: int = 0
    """That of the registry by which it was written."""
    kept: Contributions = _NOTHING_KEPT
    """What the item's predecessors under its key contributed when they expired, under rules that keep that."""
    expires: bool = False
    """Whether it is a tombstone, which DynamoDB will delete."""
    expiries: frozenset[str] = frozenset()
    """The versions of the newest expiries of items under this key that rules with `expired: keep` have processed."""
    refused: Mapping[str, str] = _NOT_REFUSED
    """Rules whose part of the newest change was refused, with the reason: a redelivery of it reports them again."""
    carrying: frozenset[str] = frozenset()
    """What is done in several transactions, in part. `likes.2`: the version takes over what others keep; `likes.2|`: what
    others have recorded of an item that is gone; `|` and a version of a record: what expired with it is kept."""

    @classmethod
    def read(cls, item: Image) -> Entry:
        return cls(
            version=item["version"]["S"],
            contributions=json.loads(item["contributions"]["S"]),
            recent=frozenset(item["recent"]["SS"]) if "recent" in item else frozenset(),
            revision=int(Decimal(item["revision"]["N"])),
            epoch=int(Decimal(item["epoch"]["N"])) if "epoch" in item else 0,
            kept=json.loads(item["kept"]["S"]) if "kept" in item else _NOTHING_KEPT,
            expires="ttl" in item,
            expiries=frozenset(item["expiries"]["SS"]) if "expiries" in item else frozenset(),
            refused={rule: reason["S"] for rule, reason in item["refused"]["M"].items()} if "refused" in item else {},
            carrying=frozenset(item["carrying"]["SS"]) if "carrying" in item else frozenset(),
        )

    @property
    def targets(self) -> set[Target]:
        """Return all targets that may have to be published: those contributed to, and those with a pending publish."""
        held = *self.contributions.items(), *self.kept.items()
        return {(rule, target) for rule, targets in held for target in targets} | self.pending

    def knows(self, expiry: str) -> bool:
        """Return whether the entry shows if an expiry was processed: old ones are no longer in `expiries`."""
        return expiry > self.version or len(self.expiries) < MOST_EXPIRIES or expiry >= min(self.expiries)

    @property
    def pending(self) -> set[Target]:
        """Return the targets with a pending publish: those retracted from whose publish has not been recorded."""
        return {read_recent(element) for element in self.recent}


def whole_key(key: ItemKey, text: str) -> Mapping[str, Value]:
    """Return the attribute with the whole key of a hashed one; no attribute if the key is readable."""
    return {} if key.partition.endswith(text) else {"key": {"S": text}}
