"""A store that writes down what is asked of it: each request with its writes, their purpose, its units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from projections.engine.store import Image, ItemKey, Page, Purpose, Update, Value, WrappedStore, Write, rounds
from projections.errors import ConditionFailed, InvalidRequest, StoreError, TransactionCancelled
from projections.language.keys import encode_key
from projections.language.rules import public_name
from projections.language.values import item_size
from projections.stores.limits import TRANSACTIONAL, Units, cost_of, read_units
from projections.stores.memory import MemoryStore
from projections.stores.requests import BATCH_STATEMENTS


def purpose_of(write: Write) -> Purpose:
    """Return why a write that the engine made is made, and which item it is about: a source, target, parent, or itself.

    Rules have the names of the file.
    """
    purpose = write.purpose
    rules = tuple(dict.fromkeys(map(public_name, purpose.rules)))
    return purpose._replace(rules=rules, about=purpose.about or encode_key(write.key))


KEYS_PER_REQUEST = 100
"""Of one BatchGetItem."""

ActionOutcome = Literal["done", "condition", "cancelled", "refused"]
DONE: ActionOutcome = "done"
CONDITION: ActionOutcome = "condition"
CANCELLED: ActionOutcome = "cancelled"
REFUSED: ActionOutcome = "refused"


@dataclass(frozen=True, slots=True)
class Action:
    """One write: the item before and after it, and what it costs.

    `outcome` is "done"; "condition" if the item did not satisfy its condition; "cancelled" if another action of the same
    transaction failed; "refused" if DynamoDB would not take it. Only what is done changes the item; all of it is charged.
    """

    write: Write
    before: Image | None
    after: Image | None
    units: Units
    outcome: ActionOutcome


class Read(NamedTuple):
    """What was looked for, and how many items were found: a key, or a partition of a table or index."""

    key: ItemKey | None
    item_count: int
    query: str = ""


class Request(NamedTuple):
    """One call of DynamoDB, by the name it has there. `factor` is 2 in transactions."""

    operation: str
    actions: tuple[Action, ...] = ()
    reads: tuple[Read, ...] = ()
    read_units: float = 0.0
    factor: int = 1

    @property
    def outcome(self) -> ActionOutcome:
        """The worst of its actions'."""
        outcomes = {action.outcome for action in self.actions}
        return next((o for o in (REFUSED, CONDITION, CANCELLED) if o in outcomes), DONE)

    @property
    def write_units(self) -> int:
        """As DynamoDB charges them: also where a condition fails, or a transaction is cancelled."""
        return self.factor * sum(action.units.total for action in self.actions if action.outcome != REFUSED)


@dataclass(slots=True)
class Spent:
    """Sums over requests. `in_vain` are the write units of what was not done; they are among `write_units`."""

    write_units: float = 0.0
    read_units: float = 0.0
    in_vain: float = 0.0
    calls: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, requests: Sequence[Request]) -> Spent:
        spent = cls()
        for request in requests:
            spent.write_units += request.write_units
            spent.read_units += request.read_units
            failed = [action for action in request.actions if action.outcome not in (DONE, REFUSED)]
            spent.in_vain += request.factor * sum(action.units.total for action in failed)
            spent.calls[request.operation] = spent.calls.get(request.operation, 0) + 1
        return spent

    @property
    def call_count(self) -> int:
        return sum(self.calls.values())


class RecordingStore(WrappedStore):
    """A store in memory, seen through: it behaves as `memory` does, and `requests` has what the engine asks of DynamoDB."""

    def __init__(self, memory: MemoryStore) -> None:
        super().__init__(memory)
        self._memory = memory
        self.requests: list[Request] = []

    def take_requests(self) -> list[Request]:
        """The requests since the last call."""
        requests, self.requests = self.requests, []
        return requests

    # Reads

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        whole = self._memory.get(key)
        self._note("GetItem", reads=(Read(key, int(whole is not None)),), read_units=read_units(_size(whole)))
        return self._memory.get(key, attributes)

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        unique = list(dict.fromkeys(keys))
        images = self._memory.get_many(unique)
        for start in range(0, len(unique), KEYS_PER_REQUEST):
            part = unique[start : start + KEYS_PER_REQUEST]
            self._note(
                "BatchGetItem",
                reads=tuple(Read(key, int(key in images)) for key in part),
                read_units=sum(read_units(_size(images.get(key))) for key in part),
            )
        return images

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        attributes = options.pop("attributes", None)
        whole = self._memory.query(table, values, **options)
        index, prefix = options.get("index"), options.get("prefix")
        text = "|".join(str(next(iter(value.values()))) for value in values)
        self._note(
            "Query",
            reads=(Read(None, len(whole.items), f"{index or table} {text}" + (f" {prefix}…" if prefix else "")),),
            read_units=read_units(sum(map(_size, whole.items)), consistent=index is None),
        )
        return whole if attributes is None else self._memory.query(table, values, **options, attributes=attributes)

    # Writes

    def write(self, write: Write) -> Image | None:
        operation = "UpdateItem" if isinstance(write, Update) else "DeleteItem"
        with self._writing(operation, [write]):
            return self._memory.write(write)

    def transact(self, writes: Sequence[Write]) -> None:
        with self._writing("TransactWriteItems", writes, TRANSACTIONAL):
            self._memory.transact(writes)

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        """In batches of 25, as DynamoDB takes them; one alone is an UpdateItem."""
        answers: list[StoreError | None] = [None] * len(writes)
        for places in rounds(writes):
            for start in range(0, len(places), BATCH_STATEMENTS):
                batch = places[start : start + BATCH_STATEMENTS]
                actions = []
                for place in batch:
                    before = self._memory.get(writes[place].key)
                    (answer,) = self._memory.write_each([writes[place]])
                    answers[place] = answer
                    actions.append(self._action(writes[place], before, answer))
                self._note("UpdateItem" if len(batch) == 1 else "BatchExecuteStatement", actions=tuple(actions))
        return answers

    def update_each(self, writes: Sequence[Update]) -> list[Image | StoreError]:
        """In batches of 25. Those that fail, or create their item, are made again alone."""
        answers: list[Image | StoreError] = []
        for start in range(0, len(writes), BATCH_STATEMENTS):
            batch = writes[start : start + BATCH_STATEMENTS]
            statements: list[Action] = []
            again: list[Action] = []
            for write in batch:
                before = self._memory.get(write.key)
                (answer,) = self._memory.update_each([write])
                answers.append(answer)
                error = answer if isinstance(answer, StoreError) else None
                action = self._action(write, before, error)
                if len(batch) > 1 and error is None and before is not None:
                    statements.append(action)
                    continue
                again.append(action)
                if len(batch) > 1:
                    statements.append(self._action(write, before, ConditionFailed()))
            if statements:
                self._note("BatchExecuteStatement", actions=tuple(statements))
            for action in again:
                self._note("UpdateItem", actions=(action,))
        return answers

    @contextmanager
    def _writing(self, operation: str, writes: Sequence[Write], factor: int = 1) -> Iterator[None]:
        """Notes what the writes find and leave, however they end."""
        before = [self._memory.get(write.key) for write in writes]
        errors: list[StoreError | None] = [None] * len(writes)
        try:
            yield
        except TransactionCancelled as cancelled:
            reasons = [reason.kind if reason is not None else "none" for reason in cancelled.reasons]
            failed = {"condition": ConditionFailed(), "invalid": InvalidRequest("")}
            errors = [failed.get(kind, StoreError("cancelled")) for kind in reasons]
            raise
        except (ConditionFailed, InvalidRequest) as error:
            errors = [error] * len(writes)
            raise
        finally:
            actions = [
                self._action(write, image, error) for write, image, error in zip(writes, before, errors, strict=True)
            ]
            self._note(operation, actions=tuple(actions), factor=factor)

    def _action(self, write: Write, before: Image | None, error: StoreError | None) -> Action:
        after = before if error is not None else self._memory.get(write.key)
        outcome = DONE
        if error is not None:
            kinds = ((ConditionFailed, CONDITION), (InvalidRequest, REFUSED), (StoreError, CANCELLED))
            outcome = next(outcome for kind, outcome in kinds if isinstance(error, kind))
        units = cost_of(before, after, self._memory.schema(write.key.table))
        return Action(write, before, after, units, outcome)

    def _note(self, operation: str, **fields: Any) -> None:
        self.requests.append(Request(operation, **fields))


def _size(image: Mapping[str, Value] | None) -> int:
    return item_size(image) if image is not None else 0
