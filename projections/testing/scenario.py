"""A scenario: the application writes, the functions run in memory until nothing changes, and items are compared."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from projections.api import ask
from projections.engine.rejections import Rejected
from projections.engine.store import Image, ItemKey
from projections.errors import UsageError
from projections.language.keys import decode_key
from projections.language.program import Program
from projections.language.ruleset import RuleSet
from projections.language.values import python_item
from projections.local.items import key_of, wire_item
from projections.local.steps import Application, Item, Key, step_mistakes
from projections.stores.memory import MemoryStore
from projections.testing.item_comparison import LEGEND, Comparison, Difference
from projections.testing.local_run import LocalRun

Rejection = Mapping[str, Any]


class Scenario:
    """Tables in memory under rules. An item is a mapping of plain Python values, or in wire form.

    The functions process what the application wrote when the scenario settles: before every read and every `then`. With
    `redeliver` every batch is delivered twice, and at the end the whole stream once more: nothing may count twice.

    Pass `table` where the rules have several tables.
    """

    def __init__(self, rules: RuleSet, *, redeliver: bool = False) -> None:
        self.rules = rules
        self.program: Program = rules.program
        self._local = LocalRun(self.program, redeliver=redeliver)
        self._store = self._local.store
        self._written = MemoryStore(self.program.tables, streams=())
        """The items as the application wrote them."""
        self._application = Application(self.program, self._store, self._written)

    # What the application writes

    def given(self, *items: Item, table: str | None = None) -> Scenario:
        """Put items in this order, and settle. Returns the scenario, as all methods that write do.

        >>> projections.given({"PK": "POST#p1", "SK": "METADATA"}, {"PK": "POST#p1", "SK": "LIKE#ann"}).items()[1]
        {'PK': 'POST#p1', 'SK': 'METADATA', 'likeCount': Decimal('1'), 'stars': Decimal('0')}
        """
        for item in items:
            self._application.put(item, table, "given")
        self.settle()
        return self

    def put(self, item: Item, *, table: str | None = None) -> Scenario:
        """Put an item, which replaces one under the same key (PutItem).

        >>> _ = projections.put({"PK": "POST#p1", "SK": "METADATA"}).put({"PK": "POST#p1", "SK": "LIKE#ann"})
        >>> projections.put({"PK": "POST#p1", "SK": "LIKE#ann", "stars": 3}).item(["POST#p1", "METADATA"])
        {'PK': 'POST#p1', 'SK': 'METADATA', 'likeCount': Decimal('1'), 'stars': Decimal('3')}
        """
        self._application.put(item, table)
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
        """Set, remove and add to top-level attributes of an item (UpdateItem), which is created if it does not exist.

        Attributes in `key` that are not key attributes are set, as in case files: `update({"PK": "A", "SK": "B", "title":
        "New"})`. So `key` may be a whole item; `set`, `remove` and `add` override its attributes.

        >>> _ = projections.given({"PK": "POST#p1", "SK": "METADATA", "draft": True, "views": 1})
        >>> _ = projections.update({"PK": "POST#p1", "SK": "METADATA", "title": "New"}, remove=["draft"], add={"views": 2})
        >>> projections.then({"PK": "POST#p1", "SK": "METADATA", "title": "New", "views": 3}, partial=True)
        """
        self._application.update(key, set, remove=remove, add=add, table=table)
        return self

    def delete(self, key: Key, *, table: str | None = None) -> Scenario:
        """Delete an item, if it exists (DeleteItem).

        >>> _ = projections.given({"PK": "POST#p1", "SK": "METADATA"}, {"PK": "POST#p1", "SK": "LIKE#ann"})
        >>> projections.delete(["POST#p1", "LIKE#ann"]).items()
        [{'PK': 'POST#p1', 'SK': 'METADATA', 'likeCount': Decimal('0'), 'stars': Decimal('0')}]
        """
        self._application.delete(key, table)
        return self

    def expire(self, key: Key, *, table: str | None = None) -> Scenario:
        """Delete an item as DynamoDB's TTL does, which rules may treat differently (`expired`).

        >>> _ = projections.given({"PK": "POST#p1", "SK": "METADATA"}, {"PK": "POST#p1", "SK": "LIKE#ann", "stars": 3})
        >>> projections.expire(["POST#p1", "LIKE#ann"]).items()
        [{'PK': 'POST#p1', 'SK': 'METADATA', 'likeCount': Decimal('1'), 'stars': Decimal('0')}]
        """
        self._application.expire(key, table)
        return self

    def do(self, step: Mapping[str, Any] | Literal["settle"]) -> Scenario:
        """Do a step as case files have it, such as `{"put": {…}}` or `"settle"`.

        >>> projections.do({"put": {"PK": "POST#p1", "SK": "METADATA"}}).item(["POST#p1", "METADATA"])["likeCount"]
        Decimal('0')
        """
        if step == "settle":
            self.settle()
            return self
        if mistakes := list(step_mistakes(step, (), self.program)):
            raise UsageError(*(": ".join(["do", *map(str, mistake.path), mistake.message]) for mistake in mistakes))
        self._application.step(step)
        return self

    # Results

    @property
    def store(self) -> MemoryStore:
        """The settled tables and the ledger, for operations on them (`projections.verify` and others).

        >>> import projections as package
        >>> _ = projections.given({"PK": "POST#p1", "SK": "METADATA"}).put({"PK": "POST#p1", "SK": "LIKE#ann"})
        >>> package.verify(projections.store, projections.rules, patience=0).ok
        True
        """
        self.settle()
        return self._store

    def settle(self) -> None:
        """Run the functions until nothing changes. Raises AssertionError if records fail, or the items change forever.

        >>> projections.put({"PK": "POST#p1", "SK": "METADATA"}).settle()
        """
        __tracebackhide__ = True
        self._local.settle()

    def items(self, table: str | None = None) -> list[dict[str, Any]]:
        """Return all items of a table with the values of boto3, in the order of their keys.

        >>> projections.given({"PK": "POST#p1", "SK": "METADATA"}).items()
        [{'PK': 'POST#p1', 'SK': 'METADATA', 'likeCount': Decimal('0'), 'stars': Decimal('0')}]
        """
        self.settle()
        return [self._plain(image) for image in self._store.items(self._application.table(table, "items"))]

    def item(self, key: Key, *, table: str | None = None) -> dict[str, Any] | None:
        """Return one item with the values of boto3, None if it does not exist.

        >>> projections.given({"PK": "POST#p1", "SK": "METADATA"}).item({"PK": "POST#p1", "SK": "METADATA"})["likeCount"]
        Decimal('0')
        >>> projections.item(["POST#p2", "METADATA"])
        """
        self.settle()
        image = self._store.get(key_of(self.program, self._application.table(table, "item"), key, "item"))
        return None if image is None else self._plain(image)

    def query(self, name: str, /, **parameters: Any) -> list[dict[str, Any]]:
        """Return the items of the first page of a query's answer, in order; all items if the query has no `limit`.

        The bounds of `range: x` are a mapping or a pair: `x={"from": 1, "to": 5}` or `x=(1, 5)`; `to="2026-04"` includes
        April. For other pages use `projections.ask` on `store`.

        >>> _ = projections.given({"PK": "POST#p1", "SK": "LIKE#ben"}, {"PK": "POST#p1", "SK": "LIKE#ann"})
        >>> projections.query("likers", postId="p1")
        [{'userId': 'ann'}, {'userId': 'ben'}]
        """
        return ask(self.store, self.rules, name, parameters).page().items

    @property
    def quarantined(self) -> list[dict[str, Any]]:
        """What rules rejected, each as `rule`, `key` (a mapping of key attributes) and `reason`.

        >>> rejected = projections.given({"PK": "POST#p1", "SK": "LIKE#ann", "stars": "five"}).quarantined
        >>> [(bad["rule"], bad["key"]) for bad in rejected]
        [('stars', {'PK': 'POST#p1', 'SK': 'LIKE#ann'})]
        """
        self.settle()
        return [
            {"rule": rejection.rule, "key": self._key_attributes(rejection.key), "reason": rejection.reason}
            for rejection in self._local.rejected.values()
        ]

    def then(
        self,
        *items: Item,
        gone: Iterable[Key] = (),
        quarantined: Iterable[Rejection] | Literal["any"] = (),
        table: str | None = None,
        partial: bool = False,
    ) -> None:
        """Assert that the tables hold exactly these items, none of `gone`, and otherwise what the application wrote.

        With `partial`, only the attributes of `items` are compared, and no other items.

        `quarantined` lists the expected rejections, each with any of `rule`, `key` and a part of its `reason`; "any" accepts
        all. With several tables, `table` is that of `items` and `gone`; use `then_all` for items of more than one.

        >>> _ = projections.given({"PK": "POST#p1", "SK": "METADATA", "title": "Notes"}, {"PK": "POST#p1", "SK": "LIKE#ann"})
        >>> projections.then({"PK": "POST#p1", "SK": "METADATA", "title": "Notes", "likeCount": 1, "stars": 0})
        >>> projections.then({"PK": "POST#p1", "SK": "METADATA", "likeCount": 1}, partial=True)
        >>> projections.then({"PK": "POST#p1", "SK": "METADATA", "likeCount": 2}, partial=True)
        Traceback (most recent call last):
        AssertionError:
        Differences: - expected, + found
        POST#p1 · METADATA  (Post)
          - likeCount: 2
          + likeCount: 1    rule likes: count of Like
        """
        __tracebackhide__ = True
        name = self._application.table(table, "then") if items or gone else next(iter(self.program.tables))
        self.then_all({name: items}, gone={name: gone}, quarantined=quarantined, partial=partial)

    def then_all(
        self,
        items: Mapping[str, Iterable[Item]] | None,
        *,
        gone: Mapping[str, Iterable[Key]] | None = None,
        quarantined: Iterable[Rejection] | Literal["any"] = (),
        partial: bool = False,
    ) -> None:
        """Assert what the tables hold, with items and keys by table. None for `items` only compares rejections.

        >>> _ = projections.given({"PK": "POST#p1", "SK": "METADATA"})
        >>> projections.then_all({"main": [{"PK": "POST#p1", "SK": "METADATA", "likeCount": 0, "stars": 0}]})
        """
        __tracebackhide__ = True
        self.settle()
        comparison = Comparison(self.program, partial=partial)
        differences: list[Difference] = []
        if items is not None:
            expected, listed, actual = self._compare(items, gone or {})
            differences = comparison.differences(actual, expected, listed)
        problems = [LEGEND] if differences else []
        problems += [line for difference in differences for line in comparison.lines(difference)]
        if quarantined != "any":
            problems += self._rejections(list(quarantined))
        if problems:
            raise AssertionError("\n" + "\n".join([*problems, *self._unrecognised_words()]))

    def assert_simulation(self, histories: int = 200, *, seed: int = 0) -> None:
        """Assert that random histories pass under these rules, with every fault of Lambda and DynamoDB.

        Does what `projections simulate` does, 27 to 60 histories per second. The message of a failure has the seed, the
        problems, the trace, and the command that runs the history again.

        >>> projections.assert_simulation(histories=3)
        """
        __tracebackhide__ = True
        from projections.testing.simulation.campaign import assert_simulation

        assert_simulation(self.rules, histories, seed=seed)

    # Parts

    def _compare(
        self, items: Mapping[str, Iterable[Item]], gone: Mapping[str, Iterable[Key]]
    ) -> tuple[dict[ItemKey, Image], dict[ItemKey, Collection[str]], dict[ItemKey, Image]]:
        """Return the expected items, the listed ones with the attributes of each, and those that were found."""
        expected = {
            key: image for name in self.program.tables for key, image in self._by_key(name, self._written.items(name))
        }
        listed: dict[ItemKey, Image] = {}
        for name, table_items in items.items():
            for key, image in self._by_key(
                self._application.table(name, "then"), [wire_item(item, "then") for item in table_items]
            ):
                if key in listed:
                    raise UsageError(f"then: {self._application.name(key)} is listed twice")
                listed[key] = image
        absent = [
            key_of(self.program, self._application.table(name, "gone"), key, "gone")
            for name, keys in gone.items()
            for key in keys
        ]
        expected |= listed
        for key in absent:
            expected.pop(key, None)
        actual = {
            key: image for name in self.program.tables for key, image in self._by_key(name, self._store.items(name))
        }
        names: dict[ItemKey, Collection[str]] = {key: image.keys() for key, image in listed.items()}
        return expected, names | dict.fromkeys(absent, ()), actual

    def _by_key(self, table: str, images: Iterable[Image]) -> Iterator[tuple[ItemKey, Image]]:
        return ((key_of(self.program, table, image, "then"), image) for image in images)

    def _plain(self, image: Image) -> dict[str, Any]:
        prefix = self.program.guard_prefix
        return python_item({name: value for name, value in image.items() if not name.startswith(prefix)})

    def _key_attributes(self, text: str | None) -> dict[str, Any]:
        if text is None:
            return {}
        key = decode_key(text)
        return python_item(self.program.tables[key.table].wire(key))

    def _rejections(self, wanted: Sequence[Rejection]) -> Iterator[str]:
        """Yield the rejections that were not expected, and expected ones that are absent."""
        met = set[int]()
        unexpected: list[Rejected] = []
        for rejection in self._local.rejected.values():
            fitting = [number for number, expected in enumerate(wanted) if self._fits(rejection, expected)]
            met.update(fitting)
            if not fitting:
                unexpected.append(rejection)
        for rejection in unexpected:
            where = self._application.name(decode_key(rejection.key)) if rejection.key else "a record"
            by = f"rule {rejection.rule} rejected" if rejection.rule else "rejected:"
            fit = f'{{"rule": "{rejection.rule}"}}' if rejection.rule else '{"reason": "…"}'
            yield f"{by} {where}: {rejection.reason}\n    (if this is expected, add {fit} to the list `quarantined`)"
        yield from (f"no rejection matches {dict(entry)!r}" for number, entry in enumerate(wanted) if number not in met)

    def _fits(self, rejection: Rejected, expected: Rejection) -> bool:
        unknown = expected.keys() - {"rule", "key", "reason", "table"}
        if unknown:
            raise UsageError(f"quarantined: unknown {', '.join(sorted(unknown))}; allowed are rule, key, reason, table")
        if "rule" in expected and expected["rule"] != rejection.rule:
            return False
        if "reason" in expected and str(expected["reason"]) not in rejection.reason:
            return False
        if "key" not in expected:
            return True
        if rejection.key is None:
            return False
        key = decode_key(rejection.key)
        return key == key_of(
            self.program,
            self._application.table(expected.get("table", key.table), "quarantined"),
            expected["key"],
            "quarantined",
        )

    def _unrecognised_words(self) -> Iterator[str]:
        """Yield the items that the application wrote and that belong to no entity: most often their keys are misspelt."""
        names = [
            self._application.name(key)
            for name in self.program.tables
            for key, image in self._by_key(name, self._written.items(name))
            if self.program.recognise(key, image) is None
        ]
        if names:
            yield f"(these items belong to no entity, so no rule reads them: {', '.join(names)})"
