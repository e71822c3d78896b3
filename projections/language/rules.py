"""Compiled rules: each computes its copies, index attributes or contributions from a source item.

Pure. A rule that cannot be evaluated on an item raises BadInput.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from projections.errors import BadInput
from projections.language.attribute_sources import Pick
from projections.language.contribution import (
    DIGITS_AFTER,
    ELEMENTS,
    MOST_ELEMENTS,
    Contributed,
    check_amount,
    check_levels,
    check_merged,
    member_digest,
    merge,
)
from projections.language.entity import Entity, Item, Refused, Resolve, ignore, resolver
from projections.language.keys import Image, ItemKey, Value, check_key, encode_key, key_text
from projections.language.measures import EXTREMES, PICKED, TYPED
from projections.language.syntax import name_of
from projections.language.values import CONTEXT, Resolver, encode_order, number_text, size, valued

MOST_VALUES = 100
"""The most keys of a `counts` and elements of a `values`."""

REST = "*"
"""The key of the values that a `counts` does not list."""

Condition = Callable[[Resolve], bool]
Render = Callable[[Resolver], str | None]
Evaluate = Callable[[Resolve], Value | None]

MOST_OF_A_KEY = 20_000
"""An upper bound of the bytes of a key in JSON. It has at most 3,072 bytes, each escaped as at most six."""

LIST_BYTES = 32 * 1024
"""The size limit of a published list, map or set.

The application and all rules share the 400 KB of an item: with a long list, the application's own update would fail.
"""


class Each(NamedTuple):
    """One contribution per element: of a list or set, or per ancestor of a path."""

    variable: str
    path: str
    ancestors: bool = False
    separator: str = "/"
    most: int = ELEMENTS

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Each:
        """Return the `each` of a rule file, which has no mistakes."""
        ((variable, path),) = [one for one in form.items() if one[0] != "most"]
        most = form.get("most", ELEMENTS)
        if isinstance(path, Mapping):
            return cls(variable, name_of(path["ancestors"]), True, path.get("separator", "/"), most)
        return cls(variable, name_of(path), most=most)

    def elements(self, resolve: Resolve) -> Sequence[Value]:
        """Return the elements. Raises BadInput, also if there are more than `most`."""
        found = list(self._elements(resolve))
        if len(found) > self.most:
            raise BadInput(
                f'"{self.path}" has {len(found):,} elements, and `each` takes at most {self.most:,} of one item: raise '
                f"`most` in `each` (up to {MOST_ELEMENTS:,}), or divide the item into several"
            )
        return found

    def _elements(self, resolve: Resolve) -> Iterator[Value]:
        value = resolve(self.path)
        if value is None:
            return
        kind, content = next(iter(value.items()))
        if self.ancestors:
            if kind != "S":
                raise BadInput(f'"{self.path}" is of type {kind}; ancestors need a string')
            yield from ({"S": ancestor} for ancestor in _ancestors(content, self.separator))
        elif kind in ("SS", "NS"):
            yield from ({kind[0]: element} for element in sorted(set(content)))
        elif kind == "L":
            seen: set[tuple[str, str]] = set()
            for element in content:
                of, inner = next(iter(element.items()))
                if of in ("S", "N"):  # scalars once each
                    scalar = (of, key_text(of, inner))
                    if scalar in seen:
                        continue
                    seen.add(scalar)
                elif of == "NULL":
                    continue
                elif of != "M":
                    raise BadInput(f'"{self.path}" has an element of type {of}; it may hold strings, numbers or maps')
                yield element
        else:
            raise BadInput(f'"{self.path}" is of type {kind}; "each" needs a list or a set of strings or numbers')


def _ancestors(path: str, separator: str) -> Iterator[str]:
    """`/a/b/c.txt` gives `/a`, `/a/b`; `a/b/c` gives `a`, `a/b`."""
    start = len(separator) if path.startswith(separator) else 0
    while (end := path.find(separator, start)) >= 0:
        if end > start:
            yield path[:end]
        start = end + len(separator)


def version_name(rule: str, number: int) -> str:
    """Return the name of a version of a rule, such as `likes.3`. No rule can have such a name."""
    return f"{rule}.{number}"


@lru_cache(maxsize=4096)  # each guard that is read or written asks for it several times
def public_name(version: str) -> str:
    """Return the name of the rule, by the name of one of its versions or its own."""
    return version.partition(".")[0]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rule:
    """The properties of all kinds."""

    recorded: ClassVar[bool] = False
    """Whether the ledger records its contributions, from which it publishes."""
    claimed: ClassVar[bool] = False
    """Whether it is a claimed copy."""
    has_guard: ClassVar[bool] = True
    """Whether it leaves a guard on its targets."""
    writes_items: ClassVar[bool] = True
    """Whether it writes to items of `into`; a `rank` only names its groups after their keys."""

    name: str
    """That of the file; in a program of the registry, the name of the version where the ledger records the rule."""
    kind: str
    source: Entity
    """The entity whose items this variant of the rule reads: a rule with several sources has one variant for each."""
    sources: tuple[Entity, ...]
    """The sources of all variants."""
    into: Entity
    """The entity whose items it writes to; of an index rule the source."""
    where: Condition | None
    bind: tuple[tuple[str, Render], ...]
    each: Each | None
    expired: str | None
    held: bool
    """Whether it is not to be published; in a registry's program: whether it is not published."""
    fingerprint: str

    @property
    def creates(self) -> bool:
        """Whether its writes create the target item, and delete it after the last contribution."""
        return False

    @property
    def copies_all(self) -> bool:
        """Whether it copies all attributes of its source."""
        return False

    @property
    def removes(self) -> bool:
        """Whether it removes its attributes from items to which it does not apply any more."""
        return True

    @abstractmethod
    def owned(self, *images: Image | None) -> Collection[str]:
        """Return the attributes that the rule writes on its targets, without its guard.

        A copy of all attributes writes those of its sources: `images` are the images to take them from.
        """

    def scopes(self, item: Item, refused: Refused = ignore) -> Iterable[tuple[Resolve, Resolve]]:
        """Return the scopes in which the rule applies to an item: none, one, or one per element of `each`.

        A scope is a pair of resolvers: for the source with the element, and for the variables of the target's key, which
        also has those of `bind`.
        """
        plain = resolver(item)
        if self.each is not None:
            elements = [{self.each.variable: one} for one in self.each.elements(plain)]
            if not elements:
                refused(("each",), plain)
            return self._scopes(item, plain, elements, refused)
        if self.bind:
            return self._scopes(item, plain, ({},), refused)
        return ((plain, plain),) if self.fits(plain, refused) else ()

    def fits(self, resolve: Resolve, refused: Refused) -> bool:
        """Return whether `where` holds."""
        if self.where is None or self.where(resolve):
            return True
        refused(("where",), resolve)
        return False

    def _scopes(
        self, item: Item, plain: Resolve, elements: Iterable[Mapping[str, Value]], refused: Refused
    ) -> Iterator[tuple[Resolve, Resolve]]:
        for element in elements:
            resolve = resolver(item, element) if element else plain
            if not self.fits(resolve, refused):
                continue
            if not self.bind:
                yield resolve, resolve
                continue
            texts = {name: render(resolve) for name, render in self.bind}
            if None not in texts.values():
                yield resolve, resolver(item, {**element, **{name: {"S": text} for name, text in texts.items()}})
            else:
                refused(("bind",), resolve)

    @abstractmethod
    def applies(self, item: Item, refused: Refused = ignore) -> bool:
        """Return whether the rule derives anything from an item of its source entity. Raises BadInput."""


class Totals(NamedTuple):
    """The totals of a group: the number of contributions and the amounts per slot."""

    n: int
    amounts: Mapping[str, Decimal]


class Member(NamedTuple):
    """One member of a group: the value that orders it, the attributes it holds, and its source's encoded key."""

    value: Value
    payload: Image
    source: str


Members = Mapping[str, Sequence[Member]]
"""The members that a rule's queries returned, by the name of the query, in its order."""


class MemberQuery(NamedTuple):
    """A query for members that a publish needs: the first `limit` of a slot."""

    name: str
    slot: str
    descending: bool
    limit: int
    counts: bool = False
    """Whether these members are value counters."""


class LedgerRule(Rule):
    """A rule whose sources contribute to groups in the ledger, and which publishes from there."""

    __slots__ = ()

    recorded = True

    @property
    def carries(self) -> bool:
        """Whether members of its groups hold attributes of their sources."""
        return True

    @property
    def most_of_one(self) -> int:
        """An upper bound of the bytes that it contributes to one target."""
        return MOST_OF_A_KEY + 3_000

    def applies(self, item: Item, refused: Refused = ignore) -> bool:
        return bool(self.contributions(item, refused)[0])

    def contributions(
        self, item: Item, refused: Refused = ignore
    ) -> tuple[dict[str, Contributed], dict[tuple[str, str], Image]]:
        """Return an item's contributions by encoded target key, and the attributes of its members by target key and member.

        Raises BadInput.
        """
        contributed: dict[str, Contributed] = {}
        held: dict[tuple[str, str], Image] = {}
        merged: dict[str, None] = {}
        for position, (resolve, named) in enumerate(self.scopes(item, refused)):
            target = self.into.target_key(named)
            if target is None:
                refused(("into",), named)
                continue
            amounts, payloads = self._contribution(resolve, position)
            if not amounts:
                refused(("by",), resolve)
                continue
            text = encode_key(target)
            if text in contributed:
                merge(contributed[text], amounts)
                merged[text] = None
            else:
                contributed[text] = amounts
            for member, payload in payloads.items():
                held[text, member] = payload
        for text in merged:
            check_merged(contributed[text])
        return contributed, held

    def _contribution(self, resolve: Resolve, position: int) -> tuple[Contributed, Mapping[str, Image]]:
        """Return the contribution of one scope, and the attributes that its members hold; empty without a value for `by`."""
        raise NotImplementedError

    def shards_of(self, target: str) -> int:
        """Return over how many ledger items a group is spread."""
        return 1

    @property
    @abstractmethod
    def member_queries(self) -> tuple[MemberQuery, ...]:
        """The members that `published` needs."""

    @abstractmethod
    def published(self, totals: Totals, members: Members) -> dict[str, Value | None]:
        """Return the attributes of the target: value, or None where absent."""

    @property
    def creates(self) -> bool:
        return self.into.created_by_publishes

    @property
    def created_with(self) -> Image:
        """Constants that a publish sets beside `published`, so that an item that it creates is recognised."""
        return self.into.constants if self.creates else {}

    def claimant(self, members: Members) -> str | None:
        """Return the source of a claimed copy; None without a claim, and for other rules."""
        return None

    def cut(self, members: Members) -> bool:
        """Return whether the published list lacks elements because they would exceed `LIST_BYTES`."""
        return False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CopyRule(Rule):
    """A copy under another key, guarded or claimed. `attributes` is None if it copies all."""

    attributes: tuple[str, ...] | None
    pick: Pick
    templates: tuple[tuple[str, Render], ...]
    constants: Image
    not_copied: frozenset[str]
    """If it copies all: the attributes that other rules write on the target, and its key attributes."""
    guard_prefix: str

    def applies(self, item: Item, refused: Refused = ignore) -> bool:
        return bool(self.copies(item, refused))

    def copies(self, item: Item, refused: Refused = ignore) -> dict[ItemKey, Image]:
        """Return the copies of an item: target key → attributes, without key attributes and guard."""
        found: dict[ItemKey, Image] = {}
        for resolve, named in self.scopes(item, refused):
            target = self.into.target_key(named)
            if target is None:
                refused(("into",), named)
                continue
            if self.attributes is None:
                attributes: dict[str, Value] = {}
                for name, value in valued(item.image).items():
                    if name not in self.not_copied and not name.startswith(self.guard_prefix):
                        attributes[name] = value
            else:
                attributes = self.pick(resolve)
            texts = {name: render(resolve) for name, render in self.templates}
            if None in texts.values():  # a template lacks a value: there is no copy
                refused(("values",), resolve)
                continue
            attributes.update((name, {"S": text}) for name, text in texts.items() if text is not None)
            attributes.update(self.constants)
            found.setdefault(target, attributes)
        return found

    @property
    def creates(self) -> bool:
        return True

    @property
    def copies_all(self) -> bool:
        return self.attributes is None

    def owned(self, *images: Image | None) -> frozenset[str]:
        names = {name for name, _ in self.templates} | self.constants.keys() | self.into.constants.keys()
        if self.attributes is not None:
            return frozenset(names.union(self.attributes))
        seen = {name for image in images if image for name in image if not name.startswith(self.guard_prefix)}
        return frozenset(names | (seen - self.not_copied))


class GuardedCopyRule(CopyRule):
    """A copy whose target can belong to one source only."""

    __slots__ = ()


class ClaimedCopyRule(CopyRule, LedgerRule):
    """A copy whose target several sources can have: each claims it with a member, and the least source key wins."""

    __slots__ = ()

    claimed = True

    def contributions(
        self, item: Item, refused: Refused = ignore
    ) -> tuple[dict[str, Contributed], dict[tuple[str, str], Image]]:
        contributed: dict[str, Contributed] = {}
        payloads: dict[tuple[str, str], Image] = {}
        for target, attributes in self.copies(item, refused).items():
            text = encode_key(target)
            contributed[text] = {"n": 1, "+": {"claim|": member_digest(attributes)}}
            payloads[text, "claim|"] = attributes
        return contributed, payloads

    @property
    def member_queries(self) -> tuple[MemberQuery, ...]:
        return (MemberQuery("claim", "claim", False, 1),)

    def published(self, totals: Totals, members: Members) -> dict[str, Value | None]:
        claims = members["claim"]
        payload = claims[0].payload if claims else {}
        if self.attributes is None:
            return dict(payload)
        owned = self.owned()  # another version of the rule, which was rolled back, may have recorded more
        return {name: value for name, value in payload.items() if name in owned}

    @property
    def created_with(self) -> Image:
        return {}  # its members hold them

    def claimant(self, members: Members) -> str | None:
        claims = members["claim"]
        return claims[0].source if claims else None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ItemRule(Rule):
    """A rule that writes attributes of the source item itself, computed from its other attributes. It needs no guard."""

    has_guard = False

    reads: frozenset[str]
    """The top-level attributes that the written values depend on. A write is conditional on them."""

    def applies(self, item: Item, refused: Refused = ignore) -> bool:
        return any(value is not None for value in self.desired(item, refused).values())

    @abstractmethod
    def desired(self, item: Item, refused: Refused = ignore, stored: Item | None = None) -> dict[str, Value | None]:
        """Return each of the rule's attributes with its value; None if it should be absent. Raises BadInput.

        `stored` is the item as it is stored, if `item` also has what other rules are about to write.
        """

    def without(self, item: Item) -> dict[str, Value | None]:
        """Return the same for an item to which the rule does not apply."""
        return dict.fromkeys(self.owned())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IndexRule(ItemRule):
    """Key attributes of indexes, on the source item itself: the first case that matches applies."""

    cases: tuple[tuple[Condition | None, tuple[tuple[str, Render], ...]], ...]
    indexes: tuple[tuple[frozenset[str], ...], ...]
    """For each case: of every index that it writes, the attributes that it sets. They are written together or not at all."""
    attributes: tuple[tuple[str, str, int], ...]
    """Name, type and size limit of each attribute that any case sets."""

    def owned(self, *images: Image | None) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.attributes)

    def desired(self, item: Item, refused: Refused = ignore, stored: Item | None = None) -> dict[str, Value | None]:
        values: dict[str, Value | None] = {name: None for name, _, _ in self.attributes}
        resolve = resolver(item)
        if not self.fits(resolve, refused):
            return values
        for number, (where, templates) in enumerate(self.cases):
            if where is not None and not where(resolve):
                refused((number, "where"), resolve)
                continue
            texts = {name: render(resolve) for name, render in templates}
            missing = {name for name, text in texts.items() if text is None}
            if missing:
                refused((number,), resolve)
            written = self._complete(number, missing) if missing else texts
            for name, kind, most in self.attributes:
                text = texts.get(name)
                if text is not None and name in written:
                    values[name] = {kind: check_key(name, kind, text, most)}
            return values
        return values

    def _complete(self, number: int, missing: Collection[str]) -> Collection[str]:
        """Return the attributes of the indexes of a case that need none of the missing attributes."""
        return {name for index in self.indexes[number] if index.isdisjoint(missing) for name in index}


class Measure(NamedTuple):
    """One attribute of an aggregate. `slot` is shared by measures over the same members.

    `digits` is how many digits after the decimal point are published, None for all. `path` and `by` are of `first` and
    `last`: what is shown, and the order.
    """

    name: str
    function: str
    evaluate: Callable[[Resolve], Decimal | str | None] | None
    where: Condition | None
    slot: str
    digits: int | None = None
    path: str | None = None
    by: str | None = None
    text: bool = False
    """Whether its values are text."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AggregateRule(LedgerRule):
    """Counters and other aggregates set on a target."""

    measures: tuple[Measure, ...]
    shards: int
    lanes: bool = field(default=False, kw_only=True)
    """Whether its groups are counted by the shards of the stream (`engine.lanes`)."""

    def owned(self, *images: Image | None) -> tuple[str, ...]:
        return tuple(measure.name for measure in self.measures)

    @property
    def slots(self) -> list[str]:
        """Return the slots of totals in which a contribution may have an amount; `n` is always among them."""
        slots = ["n"]
        for measure in self.measures:
            if measure.function != "count" or measure.where is not None:
                slots.append("=" + measure.slot)
            if measure.function == "avg":
                slots.append("#" + measure.slot)
        return slots

    def shards_of(self, target: str) -> int:
        return self.shards

    @property
    def most_of_one(self) -> int:
        return MOST_OF_A_KEY + 3_000 * len(self.measures)

    def _contribution(self, resolve: Resolve, position: int) -> tuple[Contributed, Mapping[str, Image]]:
        amounts: Contributed = {"n": 1}
        held: dict[str, Image] = {}
        for measure in self.measures:
            if measure.where is not None and not measure.where(resolve):
                continue
            if measure.by is not None:
                self._hold(measure, resolve, position, held)
                continue
            if measure.evaluate is None:  # a count; without a condition it is n
                if measure.where is not None:
                    amounts["=" + measure.slot] = 1
                continue
            value = measure.evaluate(resolve)
            if value is None:
                continue
            if measure.function in TYPED:
                wire: Value = {"S": value} if isinstance(value, str) else {"N": number_text(value)}
                if measure.function in EXTREMES:
                    amounts.setdefault("+", {})[f"{measure.slot}|{encode_order(wire)}"] = ""
                elif value != "":  # no key of a map, and no element of a set
                    amounts.setdefault("%", {})[f"{measure.slot}|{encode_order(wire)}"] = 1
                    if measure.function == "counts":
                        amounts["#" + measure.slot] = 1
                continue
            assert isinstance(value, Decimal)
            text = number_text(value)
            if len(text) > DIGITS_AFTER + 1:  # a shorter text has fewer digits on both sides
                check_amount(measure.name, text)
            amounts["=" + measure.slot] = text
            if measure.function == "avg":
                amounts["#" + measure.slot] = 1
        for member, payload in held.items():
            amounts.setdefault("+", {})[member] = member_digest(payload)
        return amounts, held

    def _hold(self, measure: Measure, resolve: Resolve, position: int, held: dict[str, Image]) -> None:
        """Add what `first` or `last` shows to the attributes of its member, which measures of one order share."""
        assert measure.by is not None
        assert measure.path is not None
        by = resolve(measure.by)
        if by is None:
            return
        member = member_of(measure.slot, by, None if self.each is None else position)
        value = resolve(measure.path)
        held[member] = {**held.get(member, {}), **({measure.name: value} if value is not None else {})}

    @property
    def carries(self) -> bool:
        return any(measure.by is not None for measure in self.measures)

    @property
    def member_queries(self) -> tuple[MemberQuery, ...]:
        found: dict[str, MemberQuery] = {}
        for measure in self.measures:
            function, slot = measure.function, measure.slot
            if function in ("counts", "values"):  # one more than are shown: one of them may be the text *
                found[f"values {slot}"] = MemberQuery(f"values {slot}", slot, False, MOST_VALUES + 1, counts=True)
            elif function in (*EXTREMES, *PICKED):
                name = f"{function} {slot}"
                found[name] = MemberQuery(name, slot, function in ("max", "last"), 1)
        return tuple(found.values())

    def published(self, totals: Totals, members: Members) -> dict[str, Value | None]:
        values: dict[str, Value | None] = {}
        for measure in self.measures:
            if measure.function == "count":
                count = totals.n if measure.where is None else int(totals.amounts.get("=" + measure.slot, 0))
                values[measure.name] = {"N": str(count)}
            elif measure.function == "sum":
                values[measure.name] = {
                    "N": rounded(totals.amounts.get("=" + measure.slot, Decimal(0)), 1, measure.digits)
                }
            elif measure.function == "avg":
                count = int(totals.amounts.get("#" + measure.slot, 0))
                total = totals.amounts.get("=" + measure.slot, Decimal(0))
                values[measure.name] = {"N": rounded(total, count, measure.digits)} if count else None
            elif measure.function == "distinct":
                values[measure.name] = {"N": number_text(totals.amounts.get("%" + measure.slot, Decimal(0)))}
            elif measure.function == "counts":
                number = int(totals.amounts.get("#" + measure.slot, 0))
                values[measure.name] = _counts(members[f"values {measure.slot}"], number)
            elif measure.function == "values":
                values[measure.name] = _set(members[f"values {measure.slot}"])
            elif measure.by is not None:
                picked = members[f"{measure.function} {measure.slot}"]
                values[measure.name] = picked[0].payload.get(measure.name) if picked else None
            else:
                found = members[f"{measure.function} {measure.slot}"]
                values[measure.name] = found[0].value if found else None
        return values


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FlagRule(AggregateRule):
    """Attributes that a target has while at least one source contributes: a count that is published as other values."""

    values: Image

    def owned(self, *images: Image | None) -> tuple[str, ...]:
        return tuple(self.values)

    def published(self, totals: Totals, members: Members) -> dict[str, Value | None]:
        return {name: value if totals.n > 0 else None for name, value in self.values.items()}


def rounded(total: Decimal, count: int, digits: int | None) -> str:
    """Return a total divided by a number, as text. With `digits` it is rounded once, from the exact quotient."""
    if digits is None:
        return number_text(CONTEXT.divide(total, Decimal(count)) if count != 1 else total)
    numerator, denominator = total.as_integer_ratio()
    denominator *= count
    whole, rest = divmod(numerator * 10**digits, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and whole % 2):  # half-even; the rest is never negative
        whole += 1
    return number_text(Decimal(f"{whole}E-{digits}"))


def _counts(counters: Sequence[Member], number: int) -> Value:
    """Return the map of a `counts`, from its first counters and the number of all values."""
    shown: dict[str, Value] = {}
    rest, size_now = number, 3
    listed = [counter for counter in counters if counter.value.get("S") != REST]
    for counter in listed[:MOST_VALUES]:
        ((_, value),) = counter.value.items()
        count = counter.payload["c"]
        size_now += 1 + len(value.encode()) + size(count)
        if size_now > LIST_BYTES:
            break
        shown[value] = count
        rest -= int(count["N"])
    if rest > 0:
        shown[REST] = {"N": str(rest)}
    return {"M": shown}


def _set(counters: Sequence[Member]) -> Value | None:
    """Return the set of a `values`: None without values, because DynamoDB has no empty sets."""
    elements: list[str] = []
    size_now = 0
    for counter in counters[:MOST_VALUES]:
        size_now += size(counter.value)
        if size_now > LIST_BYTES:
            break
        elements.append(next(iter(counter.value.values())))
    return {f"{next(iter(counters[0].value))}S": elements} if elements else None


def member_of(slot: str, by: Value, position: int | None) -> str:
    """Return a member ordered by a value. Elements of one source can have the same value, so each has a position."""
    return f"{slot}|{encode_order(by)}" + (f" {position:06d}" if position is not None else "")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PickRule(LedgerRule):
    """`top` (a list of the first few items) and `latest` (attributes of the first item), by an order."""

    by: str
    descending: bool
    limit: int
    list_name: str | None
    """The list attribute of a `top`, None for a `latest`."""
    names: tuple[str, ...]
    """The attributes of each element, or of the target."""
    pick: Pick

    def owned(self, *images: Image | None) -> tuple[str, ...]:
        return (self.list_name,) if self.list_name is not None else self.names

    def _contribution(self, resolve: Resolve, position: int) -> tuple[Contributed, Mapping[str, Image]]:
        by = resolve(self.by)
        if by is None:
            return {}, {}
        payload = self.pick(resolve)
        if self.list_name is not None:
            check_levels(payload, 2)
        member = member_of("pick", by, None if self.each is None else position)
        return {"n": 1, "+": {member: member_digest(payload)}}, {member: payload}

    @property
    def member_queries(self) -> tuple[MemberQuery, ...]:
        return (MemberQuery("pick", "pick", self.descending, self.limit),)

    def published(self, totals: Totals, members: Members) -> dict[str, Value | None]:
        found = members["pick"]
        if self.list_name is not None:
            elements = [{"M": member.payload} for member in found]
            return {self.list_name: {"L": elements[: _fitting(elements)]}}
        first: Image = found[0].payload if found else {}
        return {name: first.get(name) for name in self.names}

    def cut(self, members: Members) -> bool:
        elements = [{"M": member.payload} for member in members["pick"]] if self.list_name is not None else []
        return _fitting(elements) < len(elements)


def _fitting(elements: Sequence[Value]) -> int:
    """Return how many of the elements, from the first, take at most `LIST_BYTES`."""
    total = 3
    for position, element in enumerate(elements):
        total += 1 + size(element)
        if total > LIST_BYTES:
            return position
    return len(elements)


def owned_on(entity: str, rules: Iterable[Rule]) -> frozenset[str]:
    """Return the attributes that rules write on items of an entity, without guards and without those of `copies_all`."""
    return frozenset(name for rule in rules if rule.into.name == entity for name in rule.owned())
