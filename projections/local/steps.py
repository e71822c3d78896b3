"""Writes of an application as plain items: the steps of case files and event files, and the methods of a scenario.

- put: {PK: USER#bob, SK: "LIKE#POST#p1"}
- update: {PK: "POST#p1", SK: METADATA, title: New}     # the key, and what is set
  remove: [draft]
  add: {views: 1}
- delete: {PK: USER#bob, SK: "LIKE#POST#p1"}             # or [USER#bob, "LIKE#POST#p1"]
- expire: {PK: USER#eve, SK: "LIKE#POST#p1"}             # deleted by TTL
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from projections.engine.records import is_value
from projections.engine.store import Image, ItemKey, Update
from projections.errors import InvalidRequest, UsageError
from projections.language.program import Program
from projections.language.syntax import Location, Mistake, suggest
from projections.local.items import key_of, key_words, value_words, wire_item
from projections.stores.memory import MemoryStore

STEPS = ("put", "update", "delete", "expire")

STEP = {
    "put": "an item, which replaces one under the same key (PutItem)",
    "update": "a key, and the attributes that are set (UpdateItem)",
    "delete": "a key: `{PK: …, SK: …}` or `[…, …]` (DeleteItem)",
    "expire": "a key, whose item is deleted as by DynamoDB's TTL",
    "remove": "with `update`: a list of attributes that are removed",
    "add": "with `update`: attributes with numbers or sets that are added",
    "table": "the table, if the rules have several",
    "settle": "this word alone, without a value: the functions run before the next step",
}
"""The names in a step, with their meaning."""

_EVENTS = {"insert": "put", "modify": "update"}

Item = Mapping[str, Any]
Key = Mapping[str, Any] | Sequence[Any]


def step_mistakes(step: object, path: Location, program: Program | None = None) -> Iterator[Mistake]:
    """Yield the mistakes in the form of a step. Messages show keys as those of a program."""
    if not isinstance(step, Mapping):
        yield Mistake(path, f"expected a step: one of {', '.join(STEPS)}, such as `put: {{…}}`")
        return
    if "settle" in step:
        yield Mistake(
            (*path, "settle"), "is a step without a value, and only of case files: write `- settle`", at_key=True
        )
        return
    if unknown := [name for name in step if name not in STEP]:
        for name in unknown:
            hint = suggest_step(name, STEP) or f"; allowed are {', '.join(sorted(STEP))}"
            yield Mistake((*path, name), f"unknown{hint}", at_key=True)
        return
    verbs = [name for name in STEPS if name in step]
    if not verbs and "remove" in step:
        words = "`remove` lists attributes of an `update`; to delete an item, write `delete`"
        yield Mistake((*path, "remove"), words, at_key=True)
        return
    if len(verbs) != 1:
        yield Mistake(path, f"a step is one of {', '.join(STEPS)}; this has {' and '.join(verbs) or 'none of them'}")
        return
    (verb,) = verbs
    if verb in ("put", "update") and not isinstance(step[verb], Mapping):
        yield Mistake((*path, verb), "expected an item")
    elif not isinstance(step[verb], Mapping | list | tuple):
        yield Mistake((*path, verb), f"expected a key, as {_key_forms(program)}")
    kinds: tuple[tuple[str, Any, str], ...] = (
        ("remove", list | tuple, "a list of attributes, such as `[draft]`"),
        ("add", Mapping, "attributes with numbers or sets"),
    )
    for name, kind, words in kinds:
        if name in step and verb != "update":
            yield Mistake((*path, name), f"only `update` has `{name}`", at_key=True)
        elif name in step and not isinstance(step[name], kind):
            yield Mistake((*path, name), f"expected {words}")
    if not isinstance(step.get("table", ""), str):
        yield Mistake((*path, "table"), "expected the name of a table")


def suggest_step(name: str, names: Iterable[str]) -> str:
    """Return a suggestion of one of some names for an unknown one, which may be that of a stream event."""
    return suggest(_EVENTS.get(name.lower(), name), sorted(names))


def _key_forms(program: Program | None) -> str:
    keys = [("PK", "SK")] if program is None else [schema.key_attributes for schema in program.tables.values()]
    return " or ".join(dict.fromkeys("`{" + ", ".join(f"{name}: …" for name in names) + "}`" for names in keys))


class Application:
    """An application that writes to stores in memory, to all the same. An item has plain values, or is in wire form.

    Every method raises UsageError, which begins with the name of the write, if an item or a key does not fit the rules.
    """

    def __init__(self, program: Program, *stores: MemoryStore) -> None:
        self._program = program
        self._stores = stores

    def step(self, step: Mapping[str, Any]) -> None:
        """Do a step without mistakes of form."""
        table = step.get("table")
        if "put" in step:
            self.put(step["put"], table)
        elif "delete" in step:
            self.delete(step["delete"], table)
        elif "expire" in step:
            self.expire(step["expire"], table)
        else:
            self.update(step["update"], remove=step.get("remove", ()), add=step.get("add"), table=table)

    def put(self, item: Item, table: str | None = None, what: str = "put") -> None:
        name = self.table(table, what)
        image = _image(item, what)
        key_of(self._program, name, image, what)
        self._write(what, lambda store: store.put(name, image))

    def update(
        self,
        key: Key,
        attributes: Item | None = None,
        *,
        remove: Iterable[str] = (),
        add: Item | None = None,
        table: str | None = None,
    ) -> None:
        """Set the attributes of `attributes`, and those in `key` that are not key attributes; remove and add others."""
        name, remove = self.table(table, "update"), tuple(map(str, remove))
        beside = _beside_key(key, self._program.tables[name].key_attributes)
        values = _image(attributes or {}, "update")
        named = {*values, *remove, *(add or {})}
        update = Update(
            key_of(self._program, name, key, "update"),
            set={**{name: value for name, value in beside.items() if name not in named}, **values},
            remove=remove,
            add=_image(add or {}, "update: add"),
        )
        self._write(f"update {self.name(update.key)}", lambda store: store.write(update))

    def delete(self, key: Key, table: str | None = None) -> None:
        item_key = key_of(self._program, self.table(table, "delete"), key, "delete")
        self._write(f"delete {self.name(item_key)}", lambda store: store.remove(item_key))

    def expire(self, key: Key, table: str | None = None) -> None:
        item_key = key_of(self._program, self.table(table, "expire"), key, "expire")
        self.require(item_key, "expire")
        self._write(f"expire {self.name(item_key)}", lambda store: store.remove(item_key, by_ttl=True))

    def require(self, key: ItemKey, what: str) -> None:
        """Raise UsageError if an item does not exist."""
        try:
            stored = self._stores[0].get(key)
        except InvalidRequest as error:
            raise UsageError(f"{what}: {error}") from None
        if stored is None:
            raise UsageError(f"{what} {self.name(key)}: there is no such item")

    def table(self, name: str | None, what: str) -> str:
        """Return the logical name of a table: the only one by default."""
        tables: list[str] = list(self._program.tables)
        if name is None and len(tables) == 1:
            return tables[0]
        if name is None:
            raise UsageError(f"{what}: the rules have several tables; pass table=…, one of {', '.join(tables)}")
        if name not in tables:
            raise UsageError(f"{what}: the rules have no table {name!r}; they have {', '.join(tables)}")
        return name

    def name(self, key: ItemKey) -> str:
        """Return a key as text, with its table if there are several."""
        return key_words(key, several=len(self._program.tables) > 1)

    def _write(self, what: str, write: Callable[[MemoryStore], object]) -> None:
        for store in self._stores:
            try:
                write(store)
            except InvalidRequest as error:
                raise UsageError(f"{what}: {error}") from None


def _image(item: object, what: str) -> Image:
    image = wire_item(item, what)
    for name, value in image.items():
        if not is_value({"M": {name: value}}):
            raise UsageError(f"{what}: {name} cannot be stored in DynamoDB: {value_words(value, 60)}")
    return image


def _beside_key(key: Key, names: Sequence[str]) -> Image:
    """Return the attributes that are not key attributes."""
    if not isinstance(key, Mapping):
        return {}
    return {name: value for name, value in _image(key, "update").items() if name not in names}
