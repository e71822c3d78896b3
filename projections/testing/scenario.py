"""A scenario: the application writes, the deployed functions run in memory until nothing changes, and items are compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from projections.engine.rejections import Rejected
from projections.engine.store import Image, ItemKey, Update
from projections.errors import InvalidRequest, UsageError
from projections.language.keys import decode_key
from projections.language.program import Program
from projections.language.ruleset import RuleSet
from projections.language.values import plain_item
from projections.stores.memory import MemoryStore
from projections.testing.comparison import Comparison
from projections.testing.items import key_of, key_words, wire_item
from projections.testing.local_run import LocalRun
from projections.testing.simulated import assert_simulation

__all__ = ["Scenario"]

Item = Mapping[str, Any]
Key = Mapping[str, Any] | Sequence[Any]
Refused = Mapping[str, Any]


class Scenario:
    """Tables in memory under rules. An item is a mapping of plain Python values (or in wire form).

    What the application writes takes effect when the scenario settles, which every reading and `then` begin with. With
    `redeliver` every batch is delivered twice, and in the end the whole stream once more: nothing may count twice.

    Where rules have several tables, `table` names the one that is meant.
    """

    def __init__(self, rules: RuleSet, *, redeliver: bool = False) -> None:
        self.rules = rules
        self.program: Program = rules.program
        self._local = LocalRun(self.program, redeliver=redeliver)
        self._store = self._local.store
        self._written = MemoryStore(self.program.tables, streams=())
        """The items as the application wrote them."""

    # What the application writes

    def given(self, *items: Item, table: str | None = None) -> Scenario:
        """Items that the application wrote before, in this order; they have settled. Gives the scenario itself."""
        for item in items:
            self._put("given", item, table)
        self.settle()
        return self

    def put(self, item: Item, *, table: str | None = None) -> Scenario:
        """PutItem: the item replaces what was there."""
        self._put("put", item, table)
        return self

    def update(
        self,
        key: Key,
        set: Item | None = None,  # noqa: A002 - DynamoDB's own word
        *,
        remove: Iterable[str] = (),
        add: Item | None = None,
        table: str | None = None,
    ) -> Scenario:
        """UpdateItem: SET, REMOVE and ADD of top-level attributes; creates the item where there is none.

        Attributes beside the key in `key` are set, as in case files: `update({"PK": "A", "SK": "B", "title": "New"})`. So
        `key` may be a whole item; what `set`, `remove` and `add` name goes before.
        """
        name, remove = self._table(table, "update"), tuple(remove)
        beside = _beside_key(key, self.program.tables[name].key_attributes)
        given = wire_item(set or {}, "update")
        named = {*given, *remove, *(add or {})}
        update = Update(
            key_of(self.program, name, key, "update"),
            set={**{name: value for name, value in beside.items() if name not in named}, **given},
            remove=remove,
            add=wire_item(add or {}, "update: add"),
        )
        for store in (self._store, self._written):
            try:
                store.write(update)
            except InvalidRequest as error:
                raise UsageError(f"update {self._name(update.key)}: {error}") from None
        return self

    def delete(self, key: Key, *, table: str | None = None) -> Scenario:
        """DeleteItem."""
        self._remove("delete", key, table, by_ttl=False)
        return self

    def expire(self, key: Key, *, table: str | None = None) -> Scenario:
        """The deletion of an expired item by DynamoDB's TTL, which rules may treat differently (`expired`)."""
        self._remove("expire", key, table, by_ttl=True)
        return self

    def _put(self, what: str, item: Item, table: str | None) -> None:
        name = self._table(table, what)
        image = wire_item(item, what)
        key_of(self.program, name, image, what)
        for store in (self._store, self._written):
            try:
                store.put(name, image)
            except InvalidRequest as error:
                raise UsageError(f"{what}: {error}") from None

    def _remove(self, what: str, key: Key, table: str | None, *, by_ttl: bool) -> None:
        name = self._table(table, what)
        found = key_of(self.program, name, key, what)
        if by_ttl and self._store.get(found) is None:
            raise UsageError(f"{what} {self._name(found)}: there is no such item that could expire")
        self._store.remove(found, by_ttl)
        self._written.remove(found)

    # What comes of it

    @property
    def store(self) -> MemoryStore:
        """The tables and the ledger, for operations on them (`projections.verify` and others). They have settled."""
        self.settle()
        return self._store

    def settle(self) -> None:
        """Run the functions until nothing changes. Raises AssertionError if records fail, or the items change forever."""
        __tracebackhide__ = True
        self._local.settle()

    def items(self, table: str | None = None, *, guards: bool = False) -> list[dict[str, Any]]:
        """All items of a table as plain values, in the order of their keys."""
        self.settle()
        return [self._plain(image, guards) for image in self._store.items(self._table(table, "items"))]

    def item(self, key: Key, *, table: str | None = None, guards: bool = False) -> dict[str, Any] | None:
        """One item as plain values, None if there is none."""
        self.settle()
        image = self._store.get(key_of(self.program, self._table(table, "item"), key, "item"))
        return None if image is None else self._plain(image, guards)

    @property
    def quarantined(self) -> list[dict[str, Any]]:
        """What rules refused: `rule`, `key` (a mapping of key attributes), `reason`."""
        self.settle()
        return [
            {"rule": one.rule, "key": self._key_attributes(one.key), "reason": one.reason}
            for one in self._local.rejected.values()
        ]

    def then(
        self,
        *items: Item,
        gone: Iterable[Key] = (),
        quarantined: Iterable[Refused] | Literal["any"] = (),
        table: str | None = None,
        guards: bool = False,
    ) -> None:
        """Asserts what the tables hold: these items exactly, none of `gone`, and else what the application wrote.

        `quarantined` names what rules refuse, each with `rule`, `key` and a part of its `reason` as far as they matter;
        `"any"` does not look. Guards (`~rule`) are compared only with `guards`. With several tables, `table` is that of
        `items` and `gone`; use `then_all` for items of more than one.
        """
        __tracebackhide__ = True
        name = self._table(table, "then") if items or gone else next(iter(self.program.tables))
        self.then_all({name: items}, gone={name: gone}, quarantined=quarantined, guards=guards)

    def then_all(
        self,
        items: Mapping[str, Iterable[Item]],
        *,
        gone: Mapping[str, Iterable[Key]] | None = None,
        quarantined: Iterable[Refused] | Literal["any"] = (),
        guards: bool = False,
    ) -> None:
        """The same, with items and keys by table."""
        __tracebackhide__ = True
        expected = {
            key: image for name in self.program.tables for key, image in self._keyed(name, self._written.items(name))
        }
        listed: dict[ItemKey, Image] = {}
        for name, some in items.items():
            for key, image in self._keyed(self._table(name, "then"), [wire_item(item, "then") for item in some]):
                if key in listed:
                    raise UsageError(f"then: {self._name(key)} stands there twice")
                listed[key] = image
        absent = [
            key_of(self.program, self._table(name, "gone"), key, "gone")
            for name, keys in (gone or {}).items()
            for key in keys
        ]
        expected |= listed
        for key in absent:
            expected.pop(key, None)
        self.settle()
        actual = {
            key: image for name in self.program.tables for key, image in self._keyed(name, self._store.items(name))
        }
        comparison = Comparison(self.program)
        problems = comparison.differences(actual, expected, frozenset([*listed, *absent]), guards=guards)
        if quarantined != "any":
            problems += self._refused(list(quarantined))
        if problems:
            raise AssertionError("\n" + "\n".join([*problems, *self._strangers()]))

    def assert_simulation(self, histories: int = 200, *, seed: int = 0) -> None:
        """Asserts that random histories end right, whatever Lambda, DynamoDB and the application do to these rules.

        As `projections simulate`; 27 to 60 a second. The message of a failure has seed, problems, trace, and the command
        that plays it again.
        """
        __tracebackhide__ = True
        assert_simulation(self.rules, histories, seed=seed)

    # Parts

    def _table(self, name: str | None, what: str) -> str:
        tables: list[str] = list(self.program.tables)
        if name is None and len(tables) == 1:
            return tables[0]
        if name is None:
            raise UsageError(f"{what}: in which table? There are {', '.join(tables)}; say table=…")
        if name not in tables:
            raise UsageError(f"{what}: the rules have no table {name!r}; they have {', '.join(tables)}")
        return name

    def _keyed(self, table: str, images: Iterable[Image]) -> Iterator[tuple[ItemKey, Image]]:
        return ((key_of(self.program, table, image, "then"), image) for image in images)

    def _name(self, key: ItemKey) -> str:
        return key_words(key, several=len(self.program.tables) > 1)

    def _plain(self, image: Image, guards: bool) -> dict[str, Any]:
        prefix = self.program.guard_prefix
        return plain_item({name: value for name, value in image.items() if guards or not name.startswith(prefix)})

    def _key_attributes(self, text: str | None) -> dict[str, Any]:
        if text is None:
            return {}
        key = decode_key(text)
        return plain_item(self.program.tables[key.table].wire(key))

    def _refused(self, wanted: Sequence[Refused]) -> Iterator[str]:
        """What was refused and not named, and what was named and not refused."""
        met = set()
        for mark, one in self._local.rejected.items():
            fitting = [number for number, refused in enumerate(wanted) if self._fits(one, refused)]
            met.update(fitting)
            if not fitting:
                where = self._name(decode_key(one.key)) if one.key else "a record"
                by = f"rule {mark[0]} refuses" if mark[0] else "refused:"
                yield f"{by} {where}: {one.reason}\n    (if that is meant: quarantined=[{{'rule': {mark[0]!r}}}])"
        for number, refused in enumerate(wanted):
            if number not in met:
                yield f"nothing was refused like {dict(refused)!r}"

    def _fits(self, one: Rejected, refused: Refused) -> bool:
        unknown = refused.keys() - {"rule", "key", "reason", "table"}
        if unknown:
            raise UsageError(f"quarantined: unknown {', '.join(sorted(unknown))}; there are rule, key, reason, table")
        if "rule" in refused and refused["rule"] != one.rule:
            return False
        if "reason" in refused and str(refused["reason"]) not in one.reason:
            return False
        if "key" not in refused:
            return True
        if one.key is None:
            return False
        key = decode_key(one.key)
        return key == key_of(
            self.program, self._table(refused.get("table", key.table), "quarantined"), refused["key"], "quarantined"
        )

    def _strangers(self) -> Iterator[str]:
        """Items that the application wrote and that no rule can know: misspelt keys, most often."""
        strange = [
            self._name(key)
            for name in self.program.tables
            for key, image in self._keyed(name, self._written.items(name))
            if self.program.recognise(key, image) is None
        ]
        if strange:
            yield f"(of no entity, so no rule sees them: {', '.join(strange)})"


def _beside_key(key: Key, names: Sequence[str]) -> Image:
    """The attributes that stand beside those of the key."""
    if not isinstance(key, Mapping):
        return {}
    return {name: value for name, value in wire_item(key, "update").items() if name not in names}
