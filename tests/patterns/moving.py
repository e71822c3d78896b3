"""What a migration needs around it: an application that writes all the time, and deployed functions that follow streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from projections.aws.clients import client
from projections.aws.streams import StreamReader
from projections.dev.target import Followed
from projections.engine.rejections import Rejected
from projections.language.program import Program
from projections.language.values import plain_item, wire
from projections.local.functions import Functions

__all__ = ["Application", "Deployed"]

Item = dict[str, Any]
Key = tuple[str, ...]

DAYS = [f"2026-03-{day:02}T10:00:00Z" for day in range(1, 29)]


class Application:
    """A shop that knows what it has. It writes the old tables, or nothing, or the new one: `writes` says which.

    `users`, `orders` and `lines` are its own account of what there is, under the new names.
    """

    def __init__(self, dynamodb: Any, names: Mapping[str, str], seed: int) -> None:
        self.writes = "old"
        self.users: dict[Key, Item] = {}
        self.orders: dict[Key, Item] = {}
        self.lines: dict[Key, Item] = {}
        self.count = 0
        self._dynamodb = dynamodb
        self._names = names
        self._chance = Random(seed)
        self._lock = threading.RLock()
        self._busy = False
        self._error: BaseException | None = None

    @contextmanager
    def at_work(self, pause: float, may: Callable[[], bool]) -> Iterator[None]:
        """Writes a little whenever it `may`, in a thread of its own, with pauses of so many seconds."""
        done = threading.Event()

        def work() -> None:
            try:
                while not done.wait(pause):
                    for _ in range(3 if may() else 0):
                        self.act()
            except BaseException as error:
                self._error = error

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        if self._error is not None:
            raise self._error

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing is written meanwhile."""
        with self._lock:
            yield

    def act(self) -> None:
        """One write of somebody, or the few that make an order."""
        with self._lock:
            if self.writes == "none":
                return
            self.count += 1
            match self._chance.randrange(10):
                case 0:
                    self._register()
                case 1:
                    self._rename()
                case 2 | 3 | 4:
                    self._order()
                case 5 | 6:
                    self._change_status()
                case 7 | 8:
                    self._change_line()
                case 9:
                    self.forget_order()

    def forget_order(self, key: Key | None = None) -> None:
        """Delete this order, or any, with its lines."""
        with self._lock:
            key = key or self._any(self.orders)
            if key is not None:
                for line in [line for line in self.lines if line[0] == key[0]]:
                    self._remove(self.lines, line)
                self._remove(self.orders, key)

    def _register(self) -> None:
        number = str(self.count)
        self._put(self.users, (number,), userId=number, name=f"N{number}", email=f"{number}@example.org")

    def _rename(self) -> None:
        key = self._any(self.users)
        if key is not None:
            self._set(self.users, key, name=f"Renamed {self.count}")

    def _order(self) -> None:
        user = self._any(self.users)
        if user is None:
            return
        number = f"o{self.count}"
        for sku in self._chance.sample(["lamp", "bulb", "cable", "plug"], self._chance.randint(1, 3)):
            quantity = self._chance.randint(1, 5)
            self._put(self.lines, (number, sku), orderId=number, sku=sku, quantity=quantity, price=100 * len(sku))
        day, total = self._chance.choice(DAYS), self._chance.randint(1, 99) * 100
        order = {"orderId": number, "userId": user[0], "placedAt": day, "status": "placed", "total": total}
        self._put(self.orders, (number,), **order)

    def _change_status(self) -> None:
        key = self._any(self.orders)
        if key is not None:
            self._set(self.orders, key, status=self._chance.choice(["placed", "paid", "shipped", "cancelled"]))

    def _change_line(self) -> None:
        key = self._any(self.lines)
        if key is None:
            return
        if self._chance.random() < 0.5:
            self._set(self.lines, key, quantity=self._chance.randint(1, 9))
        elif self._chance.random() < 0.5:
            self._put(self.lines, key, **{**self.lines[key], "quantity": 2})  # the whole item, and only what is ours
        else:
            self._remove(self.lines, key)

    def _any(self, items: Mapping[Key, Item]) -> Key | None:
        return self._chance.choice(list(items)) if items else None

    # Under the keys and names of the tables that are written.

    def _put(self, items: dict[Key, Item], key: Key, **attributes: Any) -> None:
        items[key] = attributes
        self._dynamodb.put_item(TableName=self._table(items), Item=self._image(items, key))

    def _set(self, items: dict[Key, Item], key: Key, **attributes: Any) -> None:
        items[key] |= attributes
        image = self._image(items, key)
        names = [self._name(items, name) for name in attributes]
        self._dynamodb.update_item(
            TableName=self._table(items),
            Key=self._key(items, key),
            UpdateExpression="SET " + ", ".join(f"#{n} = :{n}" for n in range(len(names))),
            ExpressionAttributeNames={f"#{n}": name for n, name in enumerate(names)},
            ExpressionAttributeValues={f":{n}": image[name] for n, name in enumerate(names)},
        )

    def _remove(self, items: dict[Key, Item], key: Key) -> None:
        del items[key]
        self._dynamodb.delete_item(TableName=self._table(items), Key=self._key(items, key))

    def _table(self, items: Any) -> str:
        return self._names["shop" if self.writes == "new" else self._kind(items)]

    def _kind(self, items: Any) -> str:
        return next(kind for kind in ("users", "orders", "lines") if getattr(self, kind) is items)

    def _name(self, items: Any, name: str) -> str:
        return name if self.writes == "new" else OLD_NAMES[self._kind(items)].get(name, name)

    def _key(self, items: Any, key: Key) -> Item:
        if self.writes == "new":
            found = new_key(self._kind(items), key)
        else:
            found = dict(zip(OLD_KEYS[self._kind(items)], key, strict=True))
        return {name: wire(value) for name, value in found.items()}

    def _image(self, items: dict[Key, Item], key: Key) -> Item:
        constants = {"type": TYPES[self._kind(items)]} if self.writes == "new" else {}
        attributes = {self._name(items, name): wire(value) for name, value in (items[key] | constants).items()}
        return attributes | self._key(items, key)

    # What there should be.

    def new_table(self) -> list[Item]:
        """The items that the new table must hold, with what the rules add to them; in the order of their keys."""
        found = []
        for user, item in self.users.items():
            orders = [order for order in self.orders.values() if order["userId"] == user[0]]
            spent = sum(order["total"] for order in orders if order["status"] in ("paid", "shipped"))
            found.append(new_key("users", user) | item | {"type": "User", "orderCount": len(orders), "spent": spent})
        for key, item in self.orders.items():
            units = sum(line["quantity"] for line in self.lines.values() if line["orderId"] == key[0])
            listed = {"GSI1PK": f"USER#{item['userId']}", "GSI1SK": f"{item['placedAt']}#{key[0]}"}
            found.append(new_key("orders", key) | item | {"type": "Order", "units": units} | listed)
        found += [new_key("lines", key) | item | {"type": "Line"} for key, item in self.lines.items()]
        return in_order(found)

    def old_table(self, kind: str) -> list[Item]:
        """The rows that an old table must hold."""
        names = OLD_NAMES[kind]
        return in_order([{names.get(n, n): v for n, v in item.items()} for item in getattr(self, kind).values()])


TYPES = {"users": "User", "orders": "Order", "lines": "Line"}
OLD_KEYS = {"users": ["user_id"], "orders": ["order_id"], "lines": ["order_id", "sku"]}
OLD_NAMES = {
    "users": {"userId": "user_id", "name": "full_name"},
    "orders": {"orderId": "order_id", "userId": "user_id", "placedAt": "created_at"},
    "lines": {"orderId": "order_id"},
}


def new_key(kind: str, key: Key) -> Item:
    if kind == "users":
        return {"PK": f"USER#{key[0]}", "SK": "PROFILE"}
    return {"PK": f"ORDER#{key[0]}", "SK": "ORDER" if kind == "orders" else f"LINE#{key[1]}"}


def in_order(items: list[Item]) -> list[Item]:
    return sorted(items, key=lambda item: sorted((name, str(value)) for name, value in item.items()))


class Deployed:
    """The functions of a stack: they follow the streams of the tables that their rules have."""

    def __init__(self, url: str, store: Callable[[Program], Any], names: Mapping[str, str]) -> None:
        self.rejected: list[Rejected] = []
        self.failed: list[object] = []
        self._dynamodb, self._streams = client("dynamodb", url), client("dynamodbstreams", url)
        self._store = store
        self._names = names
        self._functions: Functions | None = None
        self._followed: dict[str, Followed] = {}
        self._lock = threading.Lock()
        self._quiet = 0
        self._looked = 0.0

    def deploy(self, program: Program) -> None:
        """From the next invocation on these rules, on the streams of their tables from the beginning."""
        with self._lock:
            self._functions = Functions(
                program,
                self._store(program),
                tables={self._names[name]: name for name in program.tables},
                quarantine=self.rejected.extend,
                filled=False,
            )
            self._followed = {
                name: self._followed.get(name) or self._follow(self._names[name]) for name in program.tables
            }

    def _follow(self, table: str) -> Followed:
        arn = self._dynamodb.describe_table(TableName=table)["Table"]["LatestStreamArn"]
        reader = StreamReader(self._streams, arn)
        followed = Followed(reader, latest=False, on_failure=self._gave_up)
        followed.discover()
        return followed

    def _gave_up(self, records: Sequence[object], error: BaseException | None) -> None:
        self.failed.append((records, error))

    @contextmanager
    def running(self) -> Iterator[None]:
        done = threading.Event()

        def run() -> None:
            try:
                while not done.wait(0.2):
                    with self._lock:
                        self._quiet = 0 if self._round() else self._quiet + 1
            except BaseException as error:
                self.failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    @property
    def idle(self) -> bool:
        """Whether there was nothing in the streams when they were last read."""
        return self._quiet > 0

    def drain(self) -> None:
        """Waits until nothing has been in the streams for a while, as the stream's lag tells one at AWS."""
        self._quiet, end = 0, time.monotonic() + 60
        while self._quiet < 4:
            assert time.monotonic() < end, "the streams are not worked off"
            assert not self.failed, self.failed
            time.sleep(0.05)

    def _round(self) -> bool:
        found = False
        looks = time.monotonic() - self._looked > 1.0
        for followed in self._followed.values():
            if looks:
                followed.discover()
            followed.poll()
            while (batch := followed.next_batch()) is not None:
                found = True
                assert self._functions is not None
                followed.finish(batch, self._functions.stream(batch.event()))
        self._looked = time.monotonic() if looks else self._looked
        return bool(self._functions and self._functions.work()) or found

    def items(self, table: str) -> list[Item]:
        """What a table holds, without the guards of rules."""
        images = self.images(table)
        return in_order([plain_item({n: v for n, v in image.items() if n[0] != "~"}) for image in images])

    def images(self, table: str) -> list[Item]:
        """What a table holds, in DynamoDB's form."""
        pages = self._dynamodb.get_paginator("scan").paginate(TableName=self._names[table], ConsistentRead=True)
        return [image for page in pages for image in page["Items"]]
