"""Guards: their form, the conditions on them, and when a record shows that a guarded value needs healing.

A guard is the attribute `~<rule>` of an item that a rule writes to: a map of

    d    digest of the ledger's id and the item's key: different in a guard that was cloned to another item, or that another
         ledger wrote
    at   version of the source, or of the group, that the item shows
    by   encoded key of the source or parent (copies and embeds)
    n    number of contributions (rules that publish from the ledger), or 0 for a copy that is gone
    s    checksum of the other fields: different in a guard that was edited

An item that a rule created also has a mark, the attribute `~`: another digest of the ledger's id and the item's key. An item
that existed before has no mark: rules adopted it. Updates do not change the mark.

Guards are stored on items that anybody may write, so they are untrusted input. A guard that does not parse is invalid: it
may be overwritten, and nothing is concluded from it.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias, TypeGuard

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

__all__ = ["Guard", "Guards", "Healing", "as_read", "at_of", "by_of", "needs_healing"]

Healing: TypeAlias = Literal[
    "created",  # the item appeared
    "gone",  # it was removed, or left its entity, and the rule creates it
    "guard invalid",
    "guard removed",
    "guard not advanced",  # it went backwards: an old state of the item was written
    "values changed",  # while the guard did not
    "put back",  # the guard changed with attributes of the application, which read the item and wrote it back whole
    "emptied",  # nothing contributes to it, and it lost the attributes that may have been the reason to keep it
    "owner changed",  # a copy: its guard names another source
    "taken over",  # a copy: it adopted an item of the application, perhaps by a late write
    "reference changed",  # a child: it references another parent
    "other parent",  # a child: its guard names another parent than it references
    "no parent",  # a child: it references none, but has embedded attributes
    "index key changed",  # a child: a push finds it by this key
    "kind changed",  # a child: attributes changed by which its entity is recognised
]
"""Why a record of a target shows that its values may be wrong. `explain` puts it into words."""


class Guard(NamedTuple):
    """A valid guard. `by` is empty if it names no source or parent, `n` is None if it has no number of contributions."""

    at: str
    by: str = ""
    n: int | None = None


class Guards:
    """Reads and writes the guards of one program's rules on the items of one ledger.

    `ledger` is the id of the ledger (`RegistrySnapshot.ledger`). None accepts the guards of any ledger and of any key: for
    commands that read items without access to a ledger.
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

    def rule(self, attribute: str) -> str:
        """The rule, which may be removed, whose guard an attribute holds."""
        return attribute.removeprefix(self._program.guard_prefix)

    def is_guard(self, attribute: str) -> bool:
        """Whether an attribute's name is that of a guard or of the mark."""
        return attribute.startswith(self._program.guard_prefix)

    def _digest(self, *parts: object) -> str:
        text = "|".join(map(str, (self._ledger, *parts)))
        return urlsafe_b64encode(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()).decode()

    def digest(self, key: ItemKey) -> str:
        """Return 8 characters that differ for each item and ledger (48 bits of BLAKE2b)."""
        known = self._digests.get(key)
        if known is None:
            known = self._digests[key] = self._digest(encode_key(key))
        return known

    def created(self, key: ItemKey, image: Image | None) -> bool:
        """Whether an item has the mark of items that a rule created."""
        held = image.get(self.mark) if image is not None else None
        return held is not None and (self._ledger is None or self._is_mark_of(key, held))

    def _is_mark_of(self, key: ItemKey, held: Value) -> bool:
        return held == self.mark_of(key)

    def owned(self, rule: Rule, key: ItemKey, item: Image | None, *images: Image | None) -> Collection[str]:
        """The attributes of an item that belong to a rule.

        For a copy of all attributes, these are the attributes in any of these images of its source, and those of the item
        itself only if a rule created it.
        """
        return rule.owned(item, *images) if self.created(key, item) else rule.owned(*images)

    def mark_of(self, key: ItemKey) -> Value:
        """The mark of an item that a rule creates."""
        return {"S": self._digest(encode_key(key), "created")}

    def stamp(self, key: ItemKey, at: str, *, by: str | None = None, n: int | None = None) -> Value:
        """Return a guard in wire form."""
        digest = self.digest(key)
        fields: dict[str, Value] = {"d": {"S": digest}, "at": {"S": at}}
        if by is not None:
            fields["by"] = {"S": by}
        if n is not None:
            fields["n"] = {"N": str(n)}
        fields["s"] = {"S": self._digest(digest, at, by or "", n)}
        return {"M": fields}

    def read(self, rule: str, key: ItemKey, image: Image | None) -> Guard | None:
        """Return the guard of a rule on an item; None if there is no guard, or an invalid one."""
        value = image.get(self.name(rule)) if image is not None else None
        return self.parse(value, key) if value is not None else None

    def parse(self, value: Value, key: ItemKey) -> Guard | None:
        """Return the guard in an attribute of an item; None if it is invalid. Never raise."""
        fields = value.get("M")
        if not isinstance(fields, Mapping):
            return None
        at, by, digest = _text(fields, "at"), _text(fields, "by"), _text(fields, "d")
        if not _is_version(at) or digest is None or not self._is_of(key, digest):
            return None
        if "by" in fields and not self._names_item(by):
            return None
        n = None
        if "n" in fields:
            number = fields["n"].get("N") if isinstance(fields["n"], Mapping) else None
            if not _is_count(number):
                return None
            n = int(number)
        guard = Guard(at, by or "", n)
        return guard if self._is_intact(guard, digest, _text(fields, "s")) else None

    def _is_of(self, key: ItemKey, digest: str) -> bool:
        """Whether this ledger wrote the guard for this item."""
        return self._ledger is None or digest == self.digest(key)

    def _is_intact(self, guard: Guard, digest: str, checksum: str | None) -> bool:
        """Whether the guard is as this ledger wrote it."""
        return self._ledger is None or checksum == self._digest(digest, guard.at, guard.by, guard.n)

    def adopted(self, key: ItemKey, image: Image) -> Image:
        """Return the image with its guards as this ledger would have written them, for events of another ledger."""
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

    def _names_item(self, text: str | None) -> bool:
        """Whether a text is the encoded key of an item that the program's tables may have."""
        if text is None:
            return False
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
        """The condition that the item has no guard of the rule, an invalid one or an older one."""
        guard = self.name(rule)
        return AnyOf((self._invalid(guard, key), Below((guard, "at"), {"S": at})))

    def older_or_foreign(self, rule: str, key: ItemKey, by: str, at: str) -> Condition:
        """The condition that the item has no valid guard of the rule, that of another source or an older one.

        Versions of different sources are never compared.
        """
        guard = self.name(rule)
        return AnyOf((self._invalid(guard, key), NotEqual((guard, "by"), {"S": by}), Below((guard, "at"), {"S": at})))

    def _invalid(self, guard: str, key: ItemKey) -> Condition:
        """The condition that the item has no such guard, or that of another item or ledger."""
        return NotEqual((guard, "d"), {"S": self.digest(key)})

    def as_read(self, rule: str, image: Image | None) -> Condition:
        """The condition that the guard attribute is as in the image, whether valid or not."""
        guard = self.name(rule)
        return as_read(guard, image.get(guard) if image is not None else None)


def _text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    text = value.get("S") if isinstance(value, Mapping) else None
    return text if isinstance(text, str) else None


def _is_version(at: str | None) -> TypeGuard[str]:
    return at is not None


def _is_count(number: object) -> TypeGuard[str]:
    """Whether this is an integer of at most 18 digits. It is negative where a damaged group was published."""
    digits = number.removeprefix("-") if isinstance(number, str) else ""
    return digits.isascii() and digits.isdigit() and len(digits) <= 18


def _is_key(kind: str, text: str, most: int) -> bool:
    """Whether a text is the normal form of a key attribute's value of this type, of at most `most` bytes; or is empty."""
    if kind == "N" and text:
        try:
            return number_text(EXACT.create_decimal(text)) == text
        except ArithmeticError:
            return False
    return len(text.encode("utf-8", "surrogatepass")) <= most


def at_of(guard: Value | None) -> str:
    """Return the version in a guard attribute, valid or not; without a version the empty text, which is less than any."""
    return _field(guard, "at")


def by_of(guard: Value | None) -> str:
    """Return the source or parent in a guard attribute, valid or not; or the empty text."""
    return _field(guard, "by")


def _field(guard: Value | None, name: str) -> str:
    fields = guard.get("M") if guard is not None else None
    return (_text(fields, name) or "") if isinstance(fields, Mapping) else ""


def as_read(name: str, value: Value | None) -> Condition:
    """The condition that an attribute has the value that was read, or is absent if it was absent."""
    return Missing((name,)) if value is None else Equal((name,), value)


def needs_healing(
    guards: Guards, rule: str, key: ItemKey, ours: Iterable[str], old: Image | None, new: Image | None
) -> Healing | None:
    """Return why the values that a rule published on a target may be wrong now, as its record shows; None if they are not.

    `ours` names the rule's attributes. Removals are not handled here.
    """
    if new is None:
        return None
    if old is None:
        return "created"
    name = guards.name(rule)
    after = guards.read(rule, key, new)
    if after is None:
        return "guard invalid" if name in new else "guard removed" if name in old else None
    before = guards.read(rule, key, old)
    names = set(ours)
    if same(old.get(name), new.get(name)):
        return "values changed" if any(not same(old.get(each), new.get(each)) for each in names) else None
    if before is not None and before.at >= after.at:
        return "guard not advanced"
    names.add(name)
    foreign = (each for each in old.keys() | new.keys() if each not in names)
    return "put back" if any(not same(old.get(each), new.get(each)) for each in foreign) else None
