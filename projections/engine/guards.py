"""Guards: what they look like, the conditions on them, and when a record shows that a guarded value needs healing.

A guard is the attribute `~<rule>` of an item that a rule writes to: a map of

    d    digest of the ledger's id and the item's key: a guard that was cloned to another item, or that another ledger wrote,
         has another digest
    at   version of the source, or of the group, that the item shows
    by   encoded key of the source or parent (copies and embeds)
    n    number of contributions (rules that publish from the ledger), or 0 for a copy that is gone
    s    checksum of all of it: a guard that was edited has another one

An item that a rule created also bears a mark, the attribute `~`: a digest as `d` is, of its own. An item that was there
before has none: rules adopted it. Updates leave the mark as it is.

Guards are stored on items that anybody may write, so they are input: whatever does not parse is no guard. What is no guard
may be overwritten, and proves nothing.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from projections.engine.store import (
    AnyOf,
    Below,
    Condition,
    Equal,
    Image,
    ItemKey,
    Missing,
    NotEqual,
    Value,
)
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import Rule
from projections.language.values import EXACT, number_text, same

__all__ = ["Guard", "Guards", "as_read", "at_of", "by_of", "needs_healing"]


class Guard(NamedTuple):
    """A valid guard. `by` is empty if it names no item, `n` is None if it counts nothing."""

    at: str
    by: str = ""
    n: int | None = None


class Guards:
    """Reads and writes the guards of one program's rules on the items of one ledger.

    `ledger` is the id of the ledger (`RegistrySnapshot.ledger`). None accepts the guards of any ledger and of any key: for
    tools that read items without access to a ledger.
    """

    def __init__(self, program: Program, ledger: str | None) -> None:
        self._program = program
        self._ledger = ledger
        self._schemas = program.tables
        self._digests: dict[ItemKey, str] = {}
        self.mark: str = program.guard_prefix
        """The attribute that marks an item as created by a rule."""

    def name(self, rule: str) -> str:
        """The attribute that holds a rule's guard."""
        return self._program.guard_prefix + rule

    def is_guard(self, attribute: str) -> bool:
        """Whether an attribute's name is one that guards have, or the mark's."""
        return attribute.startswith(self._program.guard_prefix)

    def _digest(self, *parts: object) -> str:
        text = "|".join(map(str, (self._ledger, *parts)))
        return urlsafe_b64encode(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()).decode()

    def digest(self, key: ItemKey) -> str:
        """8 characters that differ for each item and ledger (48 bits of BLAKE2b)."""
        known = self._digests.get(key)
        if known is None:
            known = self._digests[key] = self._digest(encode_key(key))
        return known

    def created(self, key: ItemKey, image: Image | None) -> bool:
        """Whether an item bears the mark of items that a rule created."""
        held = image.get(self.mark) if image is not None else None
        return held is not None and (self._ledger is None or held == self.mark_of(key))

    def owned(self, rule: Rule, key: ItemKey, item: Image | None, *images: Image | None) -> Collection[str]:
        """The attributes of an item that belong to a rule: with all attributes, those in any of these images of its
        source, and those on the item itself only if a rule created it.
        """
        return rule.owned(item, *images) if self.created(key, item) else rule.owned(*images)

    def mark_of(self, key: ItemKey) -> Value:
        """The mark of an item that a rule creates."""
        return {"S": self._digest(encode_key(key), "created")}

    def stamp(self, key: ItemKey, at: str, *, by: str | None = None, n: int | None = None) -> Value:
        """A guard in wire form."""
        digest = self.digest(key)
        fields: dict[str, Value] = {"d": {"S": digest}, "at": {"S": at}}
        if by is not None:
            fields["by"] = {"S": by}
        if n is not None:
            fields["n"] = {"N": str(n)}
        fields["s"] = {"S": self._digest(digest, at, by or "", n)}
        return {"M": fields}

    def read(self, rule: str, key: ItemKey, image: Image | None) -> Guard | None:
        """The guard of a rule on an item; None if there is none, or if what is there is no guard of this item."""
        value = image.get(self.name(rule)) if image is not None else None
        return self.parse(value, key) if value is not None else None

    def parse(self, value: Value, key: ItemKey) -> Guard | None:
        """The guard that an attribute of an item holds; None if it is none. Never raises."""
        fields = value.get("M")
        if not isinstance(fields, Mapping):
            return None
        at, by, digest = _text(fields, "at"), _text(fields, "by"), _text(fields, "d")
        if at is None or digest is None or (self._ledger is not None and digest != self.digest(key)):
            return None
        if "by" in fields and (by is None or not self._names_item(by)):
            return None
        n = None
        if "n" in fields:
            number = fields["n"].get("N") if isinstance(fields["n"], Mapping) else None
            digits = number.removeprefix("-") if isinstance(number, str) else ""  # negative: of a damaged group
            if not isinstance(number, str) or not digits.isascii() or not digits.isdigit() or len(digits) > 18:
                return None
            n = int(number)
        if self._ledger is not None and _text(fields, "s") != self._digest(digest, at, by or "", n):
            return None
        return Guard(at, by or "", n)

    def adopted(self, key: ItemKey, image: Image) -> Image:
        """The image with its guards as this ledger would have written them: of events that were recorded with another."""
        anywhere = Guards(self._program, None)
        found: dict[str, Value] = dict(image)
        for name, value in image.items():
            if name == self.mark:
                found[name] = self.mark_of(key)
            elif self.is_guard(name) and isinstance(value.get("M"), Mapping):
                guard = anywhere.parse({"M": {"d": {"S": ""}, **value["M"]}}, key)
                if guard is not None:
                    found[name] = self.stamp(key, guard.at, by=guard.by or None, n=guard.n)
        return found

    def _names_item(self, text: str) -> bool:
        """Whether a text is the encoded key of an item that the program's tables may have."""
        try:
            key = decode_key(text)
        except ValueError:
            return False
        schema = self._schemas.get(key.table)
        if schema is None or not key.partition or (key.sort is None) != (schema.sort is None) or key.sort == "":
            return False
        kinds = (schema.partition[1], schema.sort[1] if schema.sort is not None else "S")
        return all(
            _is_key(kind, part, most)
            for kind, part, most in zip(kinds, (key.partition, key.sort or ""), (2048, 1024), strict=True)
        )

    # Conditions

    def older(self, rule: str, key: ItemKey, at: str) -> Condition:
        """The item has no valid guard of the rule, or an older one."""
        guard = self.name(rule)
        return AnyOf((NotEqual((guard, "d"), {"S": self.digest(key)}), Below((guard, "at"), {"S": at})))

    def older_or_foreign(self, rule: str, key: ItemKey, by: str, at: str) -> Condition:
        """No valid guard, another source's, or an older one: versions of different sources are never compared."""
        guard = self.name(rule)
        return AnyOf(
            (
                NotEqual((guard, "d"), {"S": self.digest(key)}),
                NotEqual((guard, "by"), {"S": by}),
                Below((guard, "at"), {"S": at}),
            )
        )

    def as_read(self, rule: str, image: Image | None) -> Condition:
        """The guard attribute is still what was read, whatever that says."""
        guard = self.name(rule)
        return as_read(guard, image.get(guard) if image is not None else None)


def _text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    text = value.get("S") if isinstance(value, Mapping) else None
    return text if isinstance(text, str) else None


def _is_key(kind: str, text: str, most: int) -> bool:
    """Whether DynamoDB takes a text for the value of a key attribute of a type, in its normal form; empty is for none."""
    if kind == "N" and text:
        try:
            return number_text(EXACT.create_decimal(text)) == text
        except ArithmeticError:
            return False
    return len(text.encode("utf-8", "surrogatepass")) <= most


def at_of(guard: Value | None) -> str:
    """The version that a guard attribute names, valid or not; empty, the least, if it names none."""
    return _field(guard, "at")


def by_of(guard: Value | None) -> str:
    """The text that a guard attribute names as its source, valid or not; empty if it names none."""
    return _field(guard, "by")


def _field(guard: Value | None, name: str) -> str:
    fields = guard.get("M") if guard is not None else None
    return (_text(fields, name) or "") if isinstance(fields, Mapping) else ""


def as_read(name: str, value: Value | None) -> Condition:
    """The attribute is still what was read."""
    return Missing((name,)) if value is None else Equal((name,), value)


def needs_healing(
    guards: Guards, rule: str, key: ItemKey, ours: Iterable[str], old: Image | None, new: Image | None
) -> bool:
    """Whether the record of a target shows that what a rule published there may be wrong now.

    It appeared; it lost its guard, or bears one that is not valid; our values changed while the guard did not advance; the
    guard went backwards; or it changed together with attributes that are not ours (the application read the item, then put
    it back whole). `ours` names the rule's attributes. Removal is not judged here.
    """
    if new is None:
        return False
    if old is None:
        return True
    name = guards.name(rule)
    after = guards.read(rule, key, new)
    if after is None:
        return name in new or name in old
    before = guards.read(rule, key, old)
    names = set(ours)
    if same(old.get(name), new.get(name)):
        return any(not same(old.get(each), new.get(each)) for each in names)
    if before is not None and before.at >= after.at:
        return True
    names.add(name)
    return any(not same(old.get(each), new.get(each)) for each in old.keys() | new.keys() if each not in names)
