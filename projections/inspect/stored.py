"""What this package stores, in words: each kind of item of the ledger, and the attributes on items of the application.

It is documentation that tests compare with every write of the engine, and no command reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from projections.engine.ledger_items import MOST_EXPIRIES
from projections.engine.recent import TOMBSTONE_SECONDS
from projections.engine.store import Image, Role

__all__ = ["ATTRIBUTES", "KINDS", "MESSAGE", "Kind", "kind_of"]

_TOMBSTONE = f"{TOMBSTONE_SECONDS // 86400} days"


@dataclass(frozen=True)
class Kind:
    """A kind of item of the ledger. In keys, `<…>` stands for a part that varies.

    `attributes` has the meaning of each attribute besides the keys. In their names, `<slot>` is the name of a measure,
    or the digits of scores. `roles` are the purposes of its writes, `writers` the processes that make them. `kept` is its
    lifetime, `deletion` says whether a person may delete it.
    """

    name: str
    meaning: str
    partition: str
    sort: str
    attributes: dict[str, str]
    roles: tuple[Role, ...]
    writers: str
    kept: str
    deletion: str
    marked_by: str = ""
    """An attribute that distinguishes this kind from another one with the same keys."""

    def fits(self, partition: str, sort: str) -> bool:
        """Return whether an item with this key can be of this kind."""
        return bool(_pattern(self.partition).fullmatch(partition) and _pattern(self.sort).fullmatch(sort))

    def unknown(self, names: frozenset[str]) -> frozenset[str]:
        """Return the names of attributes that this kind does not have."""
        return frozenset(name for name in names if not any(self.is_name(known, name) for known in self.attributes))

    @staticmethod
    def is_name(known: str, name: str) -> bool:
        """Return whether an attribute has a name of `attributes`."""
        return _pattern(known).fullmatch(name) is not None


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of a text with `<…>`. Generations and shards are numbers of fixed length."""
    parts = re.split(r"(<[^>]*>)", text)
    numbers = {"<generation>": r"\d{4}", "<shard>": r"\d\d"}
    pattern = "".join(numbers.get(one, ".+") if one.startswith("<") else re.escape(one) for one in parts)
    return re.compile(pattern, re.DOTALL)


_KEY = "the whole encoded key, if the key of the ledger item has a hash instead, because it would be too long"
_NEVER = "no: its version orders late writes"
_RULES = "stream function, worker; `verify --repair`, `backfill`, `redrive`"

KINDS: tuple[Kind, ...] = (
    Kind(
        "entry",
        "What one source item contributes, and the version of the item that this was computed from.",
        "E|<source>",
        ".",
        {
            "contributions": "by rule and encoded key of the target: the amounts, and the members; JSON",
            "version": "label of the stream and sequence number of the change that it was computed from",
            "rules": "the fingerprint of the rules that computed it",
            "revision": "a number that every write raises",
            "recent": "targets with a pending publish: those that the item contributed to before",
            "refused": "rules whose part DynamoDB refused to write, with the reason",
            "expired": "the item expired, and rules that were not active then have not processed this",
            "expiries": f"versions of the newest {MOST_EXPIRIES} expiries under this key that `expired: keep` has "
            f"settled",
            "ttl": "when DynamoDB deletes the tombstone; present only after the item was deleted",
            "key": _KEY,
        },
        ("entry", "forget"),
        _RULES,
        f"as long as the source item; then as a tombstone for {_TOMBSTONE}",
        "no: the item would count again with its next change, until `verify --repair` corrects the group",
    ),
    Kind(
        "group",
        "The totals of one rule and one target. A `rank` rule has one for each group of digits, with a part "
        "`|%=…` after the "
        "target.",
        "G|<rule>|<target>",
        "<generation>|<shard>",
        {
            "n": "the number of contributions",
            "=<slot>": "the total of a measure: a sum, or the number of contributions that match its `where`; for `rank`, "
            "the number of scores with these digits",
            "#<slot>": "the number of contributions that have a value, for `avg`",
            "%<slot>": "the number of value counters of a measure",
            "~n": "the part of `n` that comes from expired items (`expired: keep`)",
            "~=<slot>": "the part of a total that comes from expired items",
            "~#<slot>": "the same for `avg`",
            "version": "a number that every change raises; the guard on the target has it",
            "shards": "on the first shard: the number of shards, if there are several",
            "extremes": "the group has items for the extremes of expired items",
            "closed": "the generation that replaces this one",
            "rebuilding": "contributions are still being moved into this generation",
            "key": _KEY,
        },
        ("group", "shards", "rebuild"),
        _RULES,
        "for ever, also without contributions",
        f"{_NEVER}. Groups that name a person can be deleted 15 days later ([Erase a "
        f"person](how-to/erase-a-person.md))",
    ),
    Kind(
        "extreme",
        "The least or greatest value that expired items contributed (`min` and `max` with `expired: keep`).",
        "G|<rule>|<target>",
        "<generation>|<least or greatest> <slot>",
        {
            "slot": "the measure",
            "which": "`least` or `greatest`",
            "v": "the value",
            "order": "the value as text that sorts",
        },
        ("extreme", "rebuild"),
        _RULES,
        "for ever",
        "no: it is the only record of the value",
        marked_by="which",
    ),
    Kind(
        "member",
        "One contribution in the order of its values, for `min`, `max`, `first`, `last`, `top`, `latest` "
        "and claimed copies.",
        "M|<rule>|<target>",
        "<generation>|<slot>|<value><source>",
        {
            "s": "the encoded key of the source item",
            "v": "the value",
            "o": "the value as text that sorts",
            "a": "attributes of the source item that the rule publishes",
        },
        ("member", "sweep"),
        _RULES,
        "as long as the contribution",
        "no: `verify` reports it, and `--repair` restores it",
        marked_by="s",
    ),
    Kind(
        "value counter",
        "How many contributions to a target have one value, for `distinct`, `counts` and `values`.",
        "M|<rule>|<target>",
        "<generation>|<slot>|<value>",
        {
            "c": "the number of contributions with the value",
            "k": "how many of them come from expired items (`expired: keep`)",
            "v": "the value",
            "o": "the value as text that sorts",
        },
        ("counter", "rebuild", "sweep"),
        _RULES,
        "as long as a contribution has the value",
        "no: `verify` reports it, and `--repair` restores it, except for expired items",
        marked_by="c",
    ),
    Kind(
        "fence",
        "The newest version of a parent that was pushed to its children by an `embed` rule.",
        "F|<rule>|<parent>",
        ".",
        {
            "version": "of the parent",
            "last": "with `on_delete: keep`: the attributes of the parent at this version, for children that appear "
            "after it was deleted; JSON",
        },
        ("fence",),
        _RULES,
        "for ever",
        _NEVER,
    ),
    Kind(
        "link",
        "A child that references the parent among others (`embed` with `as`). A push finds the children by "
        "their links.",
        "L|<rule>|<parent>",
        "<child>",
        {
            "child": "the encoded key of the child",
            "token": "a random text, so that a link is deleted only as it was read",
        },
        ("link",),
        _RULES,
        "until the child no longer references the parent",
        "no: the child would keep old values. A backfill restores it",
    ),
    Kind(
        "waiting source",
        "The source of a copy whose key an item of another kind occupies. The copy appears when the key becomes free.",
        "W|<rule>|<target>",
        ".",
        {"source": "the encoded key of the source item"},
        ("wait",),
        _RULES,
        "until the key is free",
        "yes: then only a backfill writes the copy when the key is free",
    ),
    Kind(
        "registry",
        "Which rules are active, and in which state.",
        "R",
        ".",
        {
            "epoch": "a number that every change of rules or states raises",
            "since": "the epoch in which these rules became active",
            "program": "the fingerprint of the active rules",
            "past": "the fingerprints of rules that were active before",
            "prefix": "`guard_prefix` of the rules",
            "rules": "fingerprint (`f`) and state (`s`) of each rule",
            "ledger": "the id of this ledger, 4 characters, which guards name",
            "secret": "the key with which guards and marks are signed: 256 bits in base64. Who can read it can forge guards",
            "formerSecret": "the key before, until a backfill has signed all guards again",
        },
        ("registry",),
        "`backfill`; the stream function when the ledger is new",
        "for ever",
        "never: guards would become invalid and rules fill again",
    ),
    Kind(
        "rival",
        "Another ledger that replaced guards of this one.",
        "R",
        "rival|<id of the ledger>",
        {
            "since": "when it was first seen, in seconds since 1970",
            "seen": "when it was last seen",
            "left": "how many of its guards are still replaced; at 0 they stay until it was not seen for an hour",
            "ttl": "when the item expires",
        },
        ("registry",),
        "the stream function, when the record of an item shows it",
        "7 days after the last such record",
        "yes: then heals begin again",
    ),
    Kind(
        "rule definition",
        "A rule as it was activated, with its entities: needed to remove its values when it is retired.",
        "R",
        "rule|<rule>",
        {"definition": "the canonical rule and entities; JSON"},
        ("registry",),
        "`backfill`; the stream function when the rules are new",
        "until the rule was retired and a backfill has removed its values",
        "no",
    ),
    Kind(
        "lease",
        "Permission of a running command or worker to write. A change of the active rules deletes all leases.",
        "R",
        "lease|<id>",
        {
            "epoch": "under which it was opened",
            "run": "the command or task",
            "at": "when it was opened",
            "ttl": "24 hours later",
        },
        ("lease",),
        "`backfill`, `verify --repair`, `redrive`, worker",
        "while the command runs, at most 24 hours",
        "yes: its command stops, and can be run again",
    ),
    Kind(
        "backfill",
        "The newest backfill: its rules and phase, when it began and ended.",
        "R",
        "backfill",
        {"run": "JSON"},
        ("progress",),
        "`backfill`, worker",
        "until the next backfill",
        "yes: an unfinished backfill then begins again",
    ),
    Kind(
        "progress of a backfill",
        "How far the scan of one segment of a table is.",
        "R",
        "backfill|<run>|<phase>|<table>|<segment>",
        {
            "after": "the key at which it continues; JSON",
            "done": "whether it is complete",
            "counts": "what it did",
            "rejected": "the first rejected items, at most 2 KB: key, rule and reason; JSON",
        },
        ("progress",),
        "`backfill`, worker",
        "until the next backfill",
        "yes: the segment is read again",
    ),
    Kind(
        "rebuild note",
        "A group that is being rebuilt by a repair.",
        "R",
        "rebuild|<hash>",
        {
            "rule": "the rule",
            "target": "the encoded key of the target",
            "generation": "the new generation",
            "at": "when it began, in seconds since 1970",
            "before": "backfills: one that begins after them finishes the rebuild",
        },
        ("note",),
        "`verify --repair`, `backfill`",
        "until the rebuild is complete",
        "no: if the rebuild was interrupted, the target would not be updated until the next repair of it",
    ),
    Kind(
        "audit",
        "The result of the last audit, and where the next one continues.",
        "A",
        ".",
        {"audit": "the result; JSON", "place": "position and candidates of the next run; JSON"},
        ("audit",),
        "audit",
        "until the next audit",
        "yes: the round begins again",
    ),
    Kind(
        "secret",
        "The secret of the hashes that replace keys in logs (`Redact`).",
        "A",
        "secret",
        {"secret": "64 hexadecimal characters"},
        ("secret",),
        "the first function that hashes a key",
        "for ever",
        "yes: keys get other hashes, and hashes in older logs cannot be resolved any more",
    ),
    Kind(
        "dismissed message",
        "A message of the quarantine that a person dismissed, and why.",
        "D",
        "<message id>",
        {
            "because": "the reason that the person gave",
            "by": "the ARN or name of the person",
            "at": "when it was dismissed",
            "rule": "the rule of the message",
            "key": "the encoded key of the item",
            "target": "the encoded key of the target",
            "fault": "where the cause was",
            "reason": "the reason of the message",
            "quarantined": "the time of the message",
            "ttl": "90 days later",
        },
        ("dismissal",),
        "`redrive --dismiss`",
        "90 days",
        "yes: it is a record for people",
    ),
)
"""All kinds of items of the ledger."""


@dataclass(frozen=True)
class Attribute:
    """An attribute that rules add to items of the application, besides the derived values. `fields` are those of a map."""

    name: str
    meaning: str
    kept: str
    fields: dict[str, str] = field(default_factory=dict)


ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute(
        "~<rule>",
        "The guard of a rule: which version of the group, source or parent the item shows. Index and "
        "compute rules have none.",
        "as long as the rule writes to the item; a backfill that retires the rule removes it",
        {
            "d": "digest of the ledger's id and the item's key, 8 characters",
            "at": "version of the source, parent or group that the item shows",
            "by": "in guards of copies and embeds: encoded key of the source or parent",
            "n": "in guards of rules that publish from the ledger: number of contributions",
            "s": "checksum of the other fields, the ledger's id and the item's key, 8 characters",
        },
    ),
    Attribute(
        "~",
        "The mark of an item that a rule created: a digest in 8 characters. Only items with a valid mark "
        "are ever deleted.",
        "as long as the item",
    ),
)  # fmt: skip
"""The prefix `~` is `guard_prefix` of the rule file."""


MESSAGE: dict[str, str] = {
    "rule": "the rule that could not use the record; null if no rule could",
    "reason": "what is wrong, with at most 40 characters of a value; `Redact` removes parts",
    "table": "the logical name of the table",
    "key": "the encoded key of the item that a redrive refreshes",
    "keyHash": "the hash of the key, as logs show it; only with `Redact`",
    "eventName": "`INSERT`, `MODIFY` or `REMOVE`",
    "sequenceNumber": "of the stream record; null for an item that a backfill or a push rejected",
    "streamArn": "the stream of the table, if it is known",
    "time": "when the record was rejected",
    "target": "the encoded key of the target that was refused, if the item `key` is not the cause",
    "fault": "where the cause is: `item`, `target`, `group` or `internal`",
    "triggeredBy": "up to ten encoded keys of source items whose records led to the write",
    "triggeredByCount": "how many there were",
}
"""The fields of a message of the quarantine."""


def kind_of(item: Image) -> Kind | None:
    """Return the kind of an item of the ledger; None if there is no such kind."""
    found = [
        kind for kind in KINDS
        if kind.fits(item["pk"]["S"], item["sk"]["S"]) and (not kind.marked_by or kind.marked_by in item)
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None
