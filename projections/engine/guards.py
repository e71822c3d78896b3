"""Guards: their form, the conditions on them, and when a record shows that a guarded value needs healing.

A guard is the attribute `~<rule>` of an item that a rule writes to. That of a copy or an embed is a map of

    d    id of the ledger, 4 characters, and a digest of it, the rule and the item's key, 4 characters: different in a guard
         that was cloned to another item or rule, or that another ledger wrote. Conditions of writes compare it
    at   version of the source, or of the group, that the item shows
    by   encoded key of the source or parent
    n    number of claims, or 0 for a copy that is gone
    w    copies of all attributes: a keyed digest of the names of the attributes that the rule wrote, 4 characters
    s    signature of the other fields, the rule and the item's key: a digest with the secret of the ledger as its key

The guard of a group, which all other rules publish, is a text of 40 characters:

     8   `d`, as in a map
     6   epoch of the rule's last promotion     } in base 64, with digits that sort in the order of their values: so the
     9   version of the group                   } order of texts with one `d` is that of (promotion, version), and one
     9   number of contributions, plus 2^53     } comparison with a text of the first three parts tells an older guard
     8   signature, as in a map

An item that a rule created also has a mark, the attribute `~`: a signature of the item's key. An item
that existed before has no mark: rules adopted it. Updates do not change the mark.

The mark licenses a rule to delete the item if nothing else is on it. It can be written again to an item that the application
has under that key by now. So for a copy of all attributes, which may have any, the mark does not tell what is its own: `w`
does. Attributes of which it does not show that the rule wrote them are the application's.

Guards are stored on items that anybody may write, so they are untrusted input. Only who has the secret can write a valid
guard, so all that others can do is to repeat a guard that this ledger wrote for the same item and rule; the record of that
write shows it. A guard that does not parse is invalid: it may be overwritten, and nothing is concluded from it.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import a2b_base64, b2a_base64
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from hmac import compare_digest
from secrets import token_bytes
from typing import Literal, NamedTuple, TypeAlias, TypeGuard

from projections.engine.ledger_items import PROMOTION_DIGITS, group_at, promotion_in
from projections.engine.running import Reload
from projections.engine.store import Above, AllOf, AnyOf, Below, Condition, Equal, Exists, Missing, NotEqual
from projections.language.keys import PARTITION_KEY_BYTES, SORT_KEY_BYTES, Image, ItemKey, Value, decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import CopyRule, LedgerRule, Rule, public_name
from projections.language.values import EXACT, number_text, same, valued

Healing: TypeAlias = Literal[
    "created",  # the item appeared
    "gone",  # it was removed, or left its entity, and the rule creates it
    "guard invalid",
    "another ledger",  # the guard is that of another ledger
    "guard removed",
    "guard not advanced",  # it went backwards: an old state of the item was written
    "another version",  # another version of the rule was published, by a function with an older registry
    "values changed",  # while the guard did not
    "put back",  # the guard changed with attributes of the application, which read the item and wrote it back whole
    "emptied",  # nothing contributes to it, and it lost the attributes that may have been the reason to keep it
    "unknown version",  # a copy: its guard had no version, because a refresh wrote it, and has one now
    "owner changed",  # a copy: its guard names another source
    "taken over",  # a copy: it adopted an item of the application, perhaps by a late write
    "reference changed",  # a child: it references another parent
    "other parent",  # a child: its guard names another parent than it references
    "no parent",  # a child: it references none, but has embedded attributes
    "index key changed",  # a child: a push finds it by this key
    "kind changed",  # a child: attributes changed by which its entity is recognised
]
"""Why a record of a target shows that its values may be wrong. `explain` puts it into words."""


class Identity(NamedTuple):
    """A ledger's id, which is public, and its secrets: the present one, and the one that a rotation replaces."""

    ledger: str
    secrets: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"Identity({self.ledger!r})"  # secrets are never printed

    @classmethod
    def read(cls, item: Image) -> Identity:
        """Return the identity in the registry's item."""
        texts = [item[name]["S"] for name in ("secret", "formerSecret") if name in item]
        return cls(item["ledger"]["S"], tuple(map(urlsafe_b64decode, texts)))

    def wire(self) -> dict[str, Value]:
        """Return it as attributes of the registry's item."""
        texts = ({"S": urlsafe_b64encode(secret).decode()} for secret in self.secrets)
        return {"ledger": {"S": self.ledger}, **dict(zip(("secret", "formerSecret"), texts, strict=False))}

    def rotate(self) -> Identity:
        """Return it with a new secret. The present one is accepted until the guards are written again."""
        return Identity(self.ledger, (new_secret(), *self.secrets[:1]))


def new_secret() -> bytes:
    """Return a secret of 256 bits."""
    return token_bytes(32)


class Guard(NamedTuple):
    """A valid guard. `by` is empty if it names no source or parent, `n` is None if it has no number of contributions."""

    at: str
    by: str = ""
    n: int | None = None
    former: bool = False
    """Whether it is signed with a secret that is being replaced."""
    wrote: str = ""
    """A digest of the names that a copy of all attributes wrote (`Guards.names`)."""
    promotion: int = 0
    """The epoch of the promotion by which it was written; 0 without a registry."""


_UNSIGNED = Guard("")
"""What the signature of a mark signs besides the item's key."""


class Guards:
    """Reads and writes the guards of one program's rules on the items of one ledger.

    `identity` is that of the ledger (`RegistrySnapshot.identity`). None accepts the guards of any ledger and of any key: for
    commands that read items without access to a ledger. `promotions` are those of the registry; `replaced` has the rules of
    which items may show what a former version wrote.
    """

    def __init__(
        self,
        program: Program,
        identity: Identity | None,
        promotions: Mapping[str, int] = {},
        replaced: Collection[str] = (),
    ) -> None:
        self.replaced = replaced
        self._promotions = promotions
        self._program = program
        self._identity = identity
        self._ledger, self._secrets = identity or _NOBODY
        self._schemas = program.tables
        self._digests: dict[tuple[str, ItemKey], str] = {}
        self._states: dict[tuple[int, int], blake2b] = {}
        self._parsed: dict[int, tuple[Value, str, ItemKey, Guard | None]] = {}
        """What was parsed lately, by the identity of the value: several functions read the guards of one image."""
        self.mark: str = program.guard_prefix
        """The attribute that marks an item as created by a rule."""
        self.rivals: Counter[tuple[str, bool]] = Counter()
        """How many records showed a guard of another ledger, by its id, and whether it replaced one of ours (`replaced`)."""
        self.leaves: frozenset[str] = frozenset()
        """The ledgers whose guards stay where they replaced those of this one (`engine.rivals`)."""

    def promotion(self, rule: str) -> int:
        """Return the epoch of the last promotion of a rule's published version; 0 without one, and without a registry."""
        return self._promotions.get(public_name(rule), 0)

    def was_published_by(self, guard: Guard, version: str) -> bool:
        """Return whether a guard is of the last promotion of a version."""
        return 0 < guard.promotion == self._promotions.get(version)

    def is_of_another(self, guard: Guard, version: str) -> bool:
        """Return whether a guard is of the last promotion of another version of the rule."""
        rule = public_name(version)
        others = [name for name in self._promotions if public_name(name) == rule and name not in (rule, version)]
        return any(self.was_published_by(guard, name) for name in others)

    def _stored_version(self, rule: str, at: str) -> str:
        """Return a version as guards store it: after the promotion of the rule, so that they are ordered by that first.

        Versions of groups have it already (`group_at`).
        """
        promotion = self.promotion(rule)
        return f"{promotion:0{PROMOTION_DIGITS}d}|{at}" if promotion and not promotion_in(at) else at

    def name(self, rule: str) -> str:
        """The attribute that holds the guard of a rule, or of a version of it: all versions have the same."""
        return self._program.guard_prefix + public_name(rule)

    def rule(self, attribute: str) -> str:
        """The rule, which may be removed, whose guard an attribute holds."""
        return attribute.removeprefix(self._program.guard_prefix)

    def is_guard(self, attribute: str) -> bool:
        """Whether an attribute's name is that of a guard or of the mark."""
        return attribute.startswith(self._program.guard_prefix)

    def digest(self, rule: str, key: ItemKey) -> str:
        """Return 8 characters that differ for each ledger, rule and item."""
        rule = public_name(rule)
        known = self._digests.get((rule, key))
        if known is None:
            known = self._digests[rule, key] = self._ledger + _digest(self._ledger, rule, key)
        return known

    def _signature(self, secret: int, rule: str, key: ItemKey, guard: Guard | str = _UNSIGNED) -> str:
        """Return the signature of a guard with one of the secrets; of a mark, if the rule is empty: 48 bits of BLAKE2b.

        Of the guard of a group, `guard` has the digits.
        """
        rule = public_name(rule)
        # with the lengths, no other guard has the same message
        if isinstance(guard, str):
            return self._keyed_digest(secret, f"g{len(rule)}|{rule}{guard}{encode_key(key)}", 6)
        at, by, n, _, wrote, _ = guard
        text = f"{len(rule)}|{len(at)}|{len(by)}|{n}|{rule}{at}{by}{encode_key(key)}"
        return self._keyed_digest(secret, f"w{len(wrote)}|{wrote}{text}" if wrote else text, 6)

    def _keyed_digest(self, secret: int, text: str, size: int) -> str:
        """Return a digest with one of the secrets as its key, in 4 characters for 3 bytes."""
        state = self._states.get((secret, size))
        if state is None:
            state = self._states[secret, size] = blake2b(digest_size=size, key=self._secrets[secret])
        state = state.copy()  # to begin with the key costs as much as all that follows
        state.update(text.encode("utf-8", "surrogatepass"))
        return b2a_base64(state.digest(), newline=False).decode()

    def sign(self, text: str) -> str:
        """Return the signature of a message to the worker: 96 bits of BLAKE2b."""
        return self._keyed_digest(0, text, 12)

    def is_signed(self, text: str, signature: str) -> bool:
        """Return whether this ledger signed a message."""
        expected_signatures = [self._keyed_digest(secret, text, 12) for secret in range(len(self._secrets))]
        return signature.isascii() and any(compare_digest(signature, expected) for expected in expected_signatures)

    def _signed_with(self, held: str | None, rule: str, key: ItemKey, guard: Guard | str = _UNSIGNED) -> int | None:
        """Return the number of the secret that a signature was made with, or None."""
        if held is None or not held.isascii():
            return None
        for secret in range(len(self._secrets)):
            if compare_digest(held, self._signature(secret, rule, key, guard)):
                return secret
        return None

    def following(self, rule: str, key: ItemKey, before: str, at: str) -> str:
        """Return a version as one that follows another one on an item, for guards whose versions may begin again."""
        return at + self._keyed_digest(0, f"f{len(rule)}|{len(before)}|{rule}{before}{at}{encode_key(key)}", 3)

    def follows(self, rule: str, key: ItemKey, before: Guard | None, after: Guard) -> bool:
        """Whether the version of a guard was made by `following` the one before: else the guard is repeated."""
        if self._identity is None:
            return True
        last, at = before.at if before is not None else "", after.at[:-4]
        text = f"f{len(rule)}|{len(last)}|{rule}{last}{at}{encode_key(key)}"
        digests = [self._keyed_digest(secret, text, 3) for secret in range(len(self._secrets))]
        return after.at.isascii() and any(compare_digest(after.at[-4:], digest) for digest in digests)

    def names(self, rule: Rule, key: ItemKey, names: Collection[str]) -> str:
        """Return the digest, for the guard of a copy of all attributes, of the names that it wrote; else the empty text.

        Those that it has on each copy are always among them; attributes that are no copied ones are left out.
        """
        if not isinstance(rule, CopyRule) or not rule.copies_all:
            return ""
        return self._names_digest(rule, key, {*names, *rule.owned()} if names else ())

    def _names_digest(self, rule: CopyRule, key: ItemKey, names: Iterable[str], *, former: bool = False) -> str:
        copied = sorted(name for name in names if name not in rule.not_copied and not self.is_guard(name))
        name = public_name(rule.name)
        text = f"n{len(name)}|{name}{encode_key(key)}|" + "".join(f"{len(name)}|{name}" for name in copied)
        return self._keyed_digest(int(former), text, 3)

    def unproven(self, rule: Rule, key: ItemKey, item: Image, known: Collection[str] = ()) -> set[str]:
        """The attributes of an item that are not those that a copy of all attributes wrote, as its guard shows.

        If the item has not exactly those that the rule wrote last, or no mark, these are all but `known` ones, which sources
        had: a guard of a former copy can be written to an item of the application that has the same names.
        """
        if not isinstance(rule, CopyRule) or not rule.copies_all:
            return set()
        always = set(rule.owned())
        unknown = {name for name in item.keys() - rule.not_copied - always.union(known) if not self.is_guard(name)}
        if not unknown or self._identity is None:
            return set()
        guard = self.read(rule.name, key, item) if self.is_marked(key, item) else None
        if guard is None or not guard.wrote:
            return unknown
        # another version may have had others on each copy, and the application may have removed one of them
        shown = item.keys(), item.keys() | always
        proven = any(self._names_digest(rule, key, each, former=guard.former) == guard.wrote for each in shown)
        return set() if proven else unknown

    def is_marked(self, key: ItemKey, image: Image | None) -> bool:
        """Whether an item has the mark of items that a rule created."""
        held = image.get(self.mark) if image is not None else None
        return held is not None and (self._identity is None or self._mark_secret(key, held) is not None)

    def adds_mark(self, key: ItemKey, old: Image, new: Image) -> bool:
        """Return whether an update added a mark. That of another ledger, which the item had before, stays."""
        return self.mark in new and not self.is_marked(key, old) and not same(old.get(self.mark), new[self.mark])

    def is_created(self, key: ItemKey, image: Image | None) -> bool:
        """Whether an item is marked as created by a rule. A copy of all attributes must have nothing else."""
        if image is None or not self.is_marked(key, image):
            return False
        rules = self._program.whole_copies
        item = self._program.recognise(key, image) if rules else None
        rule = rules.get(item.entity.name) if item is not None else None
        return rule is None or not self.unproven(rule, key, image)

    def _mark_secret(self, key: ItemKey, held: Value) -> int | None:
        """Return the number of the secret with which a mark was made, or None if it is invalid."""
        return self._signed_with(_text({"mark": held}, "mark"), "", key)

    def renewed_mark(self, key: ItemKey, image: Image) -> dict[str, Value]:
        """Return the mark to write with an update of an item: its mark was made with a secret that is being replaced."""
        held = image.get(self.mark)
        former = held is not None and len(self._secrets) > 1 and self._mark_secret(key, held) == 1
        return {self.mark: self.mark_of(key)} if former else {}

    def owned_attributes(self, rule: Rule, key: ItemKey, item: Image | None, *images: Image | None) -> Collection[str]:
        """The attributes of an item that belong to a rule.

        For a copy of all attributes, these are the attributes in any of these images of its source, and those of the item
        itself if the rule wrote them all, also if only its former version copied all.
        """
        sources = map(valued, images)
        if item is None or self.unproven(rule, key, item):
            return rule.owned(*sources)
        return self._copied_before(rule, key, item).union(rule.owned(item, *sources))

    def _copied_before(self, rule: Rule, key: ItemKey, item: Image) -> set[str]:
        """The attributes of an item that a copy of some attributes wrote when it copied all, as its guard shows."""
        if not isinstance(rule, CopyRule) or rule.copies_all or not self.is_marked(key, item):
            return set()
        guard = self.read(rule.name, key, item)
        if guard is None or not guard.wrote or self._names_digest(rule, key, item, former=guard.former) != guard.wrote:
            return set()
        return {name for name in item if name not in rule.not_copied and not self.is_guard(name)}

    def mark_of(self, key: ItemKey) -> Value:
        """The mark of an item that a rule creates."""
        return {"S": self._signature(0, "", key)}

    def stamp(
        self, rule: str, key: ItemKey, at: str, *, by: str | None = None, n: int | None = None, wrote: str = ""
    ) -> Value:
        """Return a guard of a copy or an embed in wire form."""
        at = self._stored_version(rule, at)
        fields: dict[str, Value] = {"d": {"S": self.digest(rule, key)}, "at": {"S": at}}
        if by is not None:
            fields["by"] = {"S": by}
        if n is not None:
            fields["n"] = {"N": str(n)}
        if wrote:
            fields["w"] = {"S": wrote}
        fields["s"] = {"S": self._signature(0, rule, key, Guard(at, by or "", n, wrote=wrote))}
        return {"M": fields}

    def stamp_group(self, rule: str, key: ItemKey, at: str, n: int) -> Value:
        """Return the guard of a group in wire form, by its version and the number of its contributions."""
        digits = digits_of(at, n)
        return {"S": f"{self.digest(rule, key)}{digits}{self._signature(0, rule, key, digits)}"}

    def read(self, rule: str, key: ItemKey, image: Image | None) -> Guard | None:
        """Return the guard of a rule on an item; None if there is no guard, or an invalid one."""
        value = image.get(self.name(rule)) if image is not None else None
        return self.parse(rule, key, value) if value is not None else None

    def valid(self, attribute: str, key: ItemKey, image: Image | None) -> bool:
        """Whether an attribute of an item is a valid guard of any rule, or the mark."""
        if attribute == self.mark:
            return self.is_created(key, image)
        return self.read(self.rule(attribute), key, image) is not None

    def parse(self, rule: str, key: ItemKey, value: Value) -> Guard | None:
        """Return the guard of a rule in an attribute of an item; None if it is invalid.

        Raises Reload for a guard of a newer promotion than the registry has, and nothing else.
        """
        rule = public_name(rule)  # all versions have the same guard
        known = self._parsed.get(id(value))
        if known is not None and known[0] is value and known[1] == rule and known[2] == key:
            return known[3]
        if len(self._parsed) >= _MOST_PARSED:
            self._parsed.clear()
        guard = self._parse(rule, key, value)
        if guard is not None and 0 < self.promotion(rule) < guard.promotion:
            raise Reload(guard.promotion, rule)
        self._parsed[id(value)] = value, rule, key, guard
        return guard

    def _parse(self, rule: str, key: ItemKey, value: Value) -> Guard | None:
        fields = value.get("M")
        parts = self._parts_of_map(fields) if isinstance(fields, Mapping) else parts_of_text(value)
        if parts is None:
            return None
        digest, guard, signed, signature = parts
        if self._identity is not None and digest != self.digest(rule, key):  # not this ledger, rule or item
            return None
        secret = self._signed_with(signature, rule, key, signed) if self._identity is not None else 0
        if secret is None:
            return None
        at = guard.at
        return guard._replace(at=self._own_part(rule, at), promotion=promotion_in(at), former=secret > 0)

    def _parts_of_map(self, fields: Mapping[str, Value]) -> _Parts | None:
        at, by, digest = _text(fields, "at"), _text(fields, "by"), _text(fields, "d")
        if at is None or digest is None:
            return None
        if "by" in fields and not self._names_item(by):
            return None
        n = None
        if "n" in fields:
            number = fields["n"].get("N") if isinstance(fields["n"], Mapping) else None
            if not _is_count(number):
                return None
            n = int(number)
        wrote = _text(fields, "w") if "w" in fields else ""
        if wrote is None or len(wrote) != 4 * ("w" in fields):
            return None
        guard = Guard(at, by or "", n, wrote=wrote)
        return _Parts(digest, guard, guard, _text(fields, "s"))

    def _own_part(self, rule: str, at: str) -> str:
        """Return a stored version without a promotion that does not belong to it.

        A rule may have published groups before, and publish versions of sources now, or the other way round. These are never
        compared: each is older than all that the rule publishes now.
        """
        published = self._program.published.get(rule)
        if _has_prefix(at):
            return "" if published is not None and published.recorded else at.partition("|")[2]
        return "" if published is not None and not published.recorded and promotion_in(at) else at

    def other_ledger(self, rule: str, key: ItemKey, image: Image | None) -> str:
        """Return the id of the other ledger that wrote the guard of a rule on an item; the empty text if none did.

        Its signature cannot be verified, so anybody who may write the attribute can pretend to be another ledger.
        """
        value = image.get(self.name(rule)) if image is not None else None
        parts = parts_of_text(value)
        digest = parts.digest if parts is not None else _field(value, "d")
        rule = public_name(rule)
        if self._identity is None or len(digest) != 8 or digest[:4] == self._ledger:
            return ""
        known = digest[:4].isascii() and digest[:4].isalnum()  # it is printed
        return digest[:4] if known and digest[4:] == _digest(digest[:4], rule, key) else ""

    def healing_without_guard(self, rule: str, key: ItemKey, old: Image | None, new: Image | None) -> Healing | None:
        """Return whether to heal an item on which no valid guard of the rule is left, as its record shows.

        A guard of another ledger shows that the item was imported or restored. But if it took the place of ours, that ledger
        is a rival: to leave its guards ends what both would write for ever.
        """
        name = self.name(rule)
        if new is None or name not in new:
            return "guard removed" if old is not None and name in old else None
        ledger = self.other_ledger(rule, key, new)
        if not ledger:
            return "guard invalid"
        self.rivals[ledger, self.read(rule, key, old) is not None] += 1
        return None if ledger in self.leaves else "another ledger"

    def is_left(self, rule: str, key: ItemKey, old: Image) -> bool:
        """Return whether the guard that the rule replaced was that of a rival, whose guards stay now.

        To read the item again, which the rival may have written meanwhile, would be the next heal of both, for ever.
        """
        ledger = self.other_ledger(rule, key, old)
        if ledger:
            self.rivals[ledger, False] += 1
        return ledger in self.leaves

    def adopt(self, key: ItemKey, image: Image) -> Image:
        """Return the image with its guards as this ledger would have written them, for events of another ledger."""
        anywhere = Guards(self._program, None)
        own_image: dict[str, Value] = dict(image)
        for name, value in image.items():
            if name == self.mark:
                own_image[name] = self.mark_of(key)
            elif self.is_guard(name):
                fields = value.get("M")
                held = {"M": {"d": {"S": ""}, **fields}} if isinstance(fields, Mapping) else value
                guard = anywhere.parse(self.rule(name), key, held)
                if guard is not None:
                    rule = self._program.published.get(self.rule(name))
                    wrote = self.names(rule, key, image) if rule is not None and guard.wrote else ""
                    at = guard.at
                    if rule is not None and promotion_in(at):  # as if this ledger's version had published it
                        at = f"{self.promotion(rule.name):0{PROMOTION_DIGITS}d}.{at.partition('.')[2]}"
                    own_image[name] = (
                        self.stamp_group(self.rule(name), key, at, guard.n or 0)
                        if held is value
                        else self.stamp(self.rule(name), key, at, by=guard.by or None, n=guard.n, wrote=wrote)
                    )
        return own_image

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
        sort = schema.sort is None or _is_key(schema.sort[1], key.sort or "", SORT_KEY_BYTES)
        return sort and _is_key(schema.partition[1], key.partition, PARTITION_KEY_BYTES)

    # Conditions

    def older(self, rule: LedgerRule, key: ItemKey, stamp: Value) -> Condition:
        """The condition that the item has no guard of a rule that publishes groups, one of another ledger, or one that is
        older than `stamp`.

        It does not hold for every invalid guard: an item that does not meet it has to be read.
        """
        if not rule.claimed:
            return self._older_group(rule.name, stamp["S"][: _DIGEST + _ORDER])
        name = rule.name
        return AnyOf((self._invalid(name, key), Below((self.name(name), "at"), stamp["M"]["at"])))

    def _older_group(self, rule: str, start: str) -> AnyOf:
        """The condition that the item has no guard, or a text of another ledger, item or rule, or one before this start."""
        guard = (self.name(rule),)
        return AnyOf((Missing(guard), Below(guard, {"S": start}), Above(guard, {"S": start[:_DIGEST] + "~"})))

    def older_or_foreign(self, rule: str, key: ItemKey, by: str, at: str, wrote: str = "") -> Condition:
        """The condition that the item has no valid guard of the rule, that of another source or an older one.

        Versions of different sources are never compared. The guard of a copy of all attributes must show that the rule wrote
        the attributes of which `wrote` is the digest: of others, it would be lost who wrote them.
        """
        guard = self.name(rule)
        foreign: Condition = NotEqual((guard, "by"), {"S": by})
        if promotion := self.promotion(rule):  # a guard of a newer promotion is not replaced, whatever its source
            following = f"{promotion + 1:0{PROMOTION_DIGITS}d}"
            foreign = AllOf((foreign, Below((guard, "at"), {"S": following})))
        older = AnyOf((self._invalid(rule, key), foreign, Below((guard, "at"), {"S": self._stored_version(rule, at)})))
        return AllOf((Equal((guard, "w"), {"S": wrote}), older)) if wrote else older

    def _invalid(self, rule: str, key: ItemKey) -> Condition:
        """The condition that the item has no guard of a copy or an embed, or that of another item, rule or ledger.

        Nor one of a newer promotion: a version of the rule may publish groups, whose guard has no `d`.
        """
        digest = (self.name(rule), "d")
        other = NotEqual(digest, {"S": self.digest(rule, key)})
        promotion = self.promotion(rule)
        if not promotion:
            return other
        start = self.digest(rule, key) + digits_of(group_at(promotion + 1, 0), 0)[:_ORDER]
        return AllOf((other, AnyOf((Exists(digest), *self._older_group(rule, start).conditions))))

    def as_read(self, rule: str, image: Image | None) -> Condition:
        """The condition that the guard attribute is as in the image, whether valid or not."""
        guard = self.name(rule)
        return as_read(guard, image.get(guard) if image is not None else None)


class _Parts(NamedTuple):
    """What a guard attribute has in either form: `signed` is what its signature signs."""

    digest: str
    guard: Guard
    signed: Guard | str
    signature: str | None


_TEXT = re.compile(r"(.{8})([-\w]{24})(.{8})", re.ASCII | re.DOTALL)
"""The guard of a group: `d`, digits, signature."""

_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_SORTED = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_TO_SORTED, _FROM_SORTED = bytes.maketrans(_STANDARD, _SORTED), bytes.maketrans(_SORTED, _STANDARD)
_PROMOTION, _VERSION, _COUNT = 36, 54, 54
"""Bits in the digits of a guard, 6 for each: epochs to the year 4147, versions to 18 * 10^15."""

_MOST_PROMOTION, _MOST_VERSION = (1 << _PROMOTION) - 1, (1 << _VERSION) - 1
_ZERO = 1 << _COUNT - 1  # added to a count: that of a damaged group may be below zero

_DIGEST, _ORDER = 8, (_PROMOTION + _VERSION) // 6
"""Characters of the digest, and how many of the digits order guards."""


def digits_of(at: str, n: int) -> str:
    """Return the version of a group and the number of its contributions as 24 digits. Numbers that do not fit are cut."""
    promotion, _, version = at.partition(".")
    number = min(int(promotion), _MOST_PROMOTION) << _VERSION | min(int(version), _MOST_VERSION)
    number = number << _COUNT | max(0, min(n + _ZERO, 2 * _ZERO - 1))
    return b2a_base64(number.to_bytes(18, "big"), newline=False).translate(_TO_SORTED).decode()


def parts_of_text(value: Value | None) -> _Parts | None:
    """Return the parts of the guard of a group, valid or not; None for another value."""
    text = value.get("S") if value is not None else None
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    digest, digits, signature = match.groups()
    number = int.from_bytes(a2b_base64(digits.encode().translate(_FROM_SORTED)), "big")
    version, n = number >> _COUNT, (number & 2 * _ZERO - 1) - _ZERO
    at = group_at(version >> _VERSION, version & _MOST_VERSION)
    return _Parts(digest, Guard(at, n=n), digits, signature)


_NOBODY = Identity("", (b"",))

_MOST_PARSED = 1000


def _digest(ledger: str, rule: str, key: ItemKey) -> str:
    """Return 4 characters, which differ for most ledgers, rules and items: no secret is needed to compute them."""
    text = f"{ledger}|{rule}|{encode_key(key)}"
    return urlsafe_b64encode(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=3).digest()).decode()


def _text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    text = value.get("S") if isinstance(value, dict | Mapping) else None
    return text if isinstance(text, str) else None


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


def _has_prefix(at: str) -> bool:
    """Whether a stored version begins with a promotion that is not part of it."""
    return at[PROMOTION_DIGITS : PROMOTION_DIGITS + 1] == "|" and at[:PROMOTION_DIGITS].isdecimal()


def at_of(guard: Value | None) -> str:
    """Return the version in a guard attribute, valid or not; without a version the empty text, which is less than any."""
    at = order_of(guard)
    return at.partition("|")[2] if _has_prefix(at) else at


def order_of(guard: Value | None) -> str:
    """Return what the guards of a rule on an item are ordered by: promotion, then version."""
    parts = parts_of_text(guard)
    return parts.guard.at if parts is not None else _field(guard, "at")


def contributions_of(guard: Value) -> int | None:
    """Return the number of contributions in a guard attribute, valid or not; None if it has none."""
    parts, fields = parts_of_text(guard), guard.get("M", {})
    number = fields.get("n", {}).get("N")
    return parts.guard.n if parts is not None else int(number) if _is_count(number) else None


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
    guards: Guards, rule: str, key: ItemKey, owned: Iterable[str], old: Image | None, new: Image | None
) -> Healing | None:
    """Return why the values that a rule published on a target may be wrong now, as its record shows; None if they are not.

    `owned` names the rule's attributes. Removals are not handled here.
    """
    if new is None:
        return None
    if old is None:
        return "created"
    name = guards.name(rule)
    after = guards.read(rule, key, new)
    if after is None:
        return guards.healing_without_guard(rule, key, old, new)
    names = set(owned)
    if same(old.get(name), new.get(name)):
        return "values changed" if any(not same(old.get(each), new.get(each)) for each in names) else None
    if after.promotion < guards.promotion(rule):
        return "another version"
    before = guards.read(rule, key, old)
    if before is not None and (before.promotion, before.at) >= (after.promotion, after.at):
        return "guard not advanced"
    if before is None and guards.is_left(rule, key, old):
        return None
    names.add(name)
    foreign = (each for each in old.keys() | new.keys() if each not in names)
    return "put back" if any(not same(old.get(each), new.get(each)) for each in foreign) else None
