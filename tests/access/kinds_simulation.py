"""Histories with items that change their entity, values of parents, targets that the application replaces, and copies.

See `reads_simulation`. The source items are two documents of a customer: bills, credits or letters. The customer is the
target of both, and the parent of the bills; the application replaces it, too. Labels are embedded in bills as a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reads_simulation import ReadHistory

from projections.access.look import Look, Needed
from projections.access.own_reads import OwnRead, own_read
from projections.access.waiting import look_at
from projections.engine.store import Image, ItemKey
from projections.language.loader import loads
from projections.language.values import plain, wire
from projections.stores.memory import MemoryStore
from projections.testing.oracle import Oracle

ENTITIES = """
table: {key: [PK, SK]}
entities:
  Bill: {key: {PK: "C#{c}", SK: "DOC#{number}"}, match: {type: bill}}
  Credit: {key: {PK: "C#{c}", SK: "DOC#{number}"}, match: {type: credit}}
  Customer: {key: {PK: "C#{c}", SK: PROFILE}}
  Note: {key: {PK: "C#{c}", SK: "NOTE#{note}"}}
  Label: {key: {PK: "LABEL#{label}", SK: LABEL}}
  Tier: {key: {PK: "TIER#{tier}", SK: STATS}%s}
  ByNumber: {key: {PK: "BILL#{c}", SK: "{number}"}, match: {kind: bill}}
  ByCredit: {key: {PK: "BILL#{c}", SK: "{number}"}, match: {kind: credit}}
  ByStatus: {key: {PK: "STATUS#{status}", SK: "{c}#{number}"}}
projections:
"""
ON_BILLS = """
  tier: {from: Customer, embed: {into: Bill, match: {c: "{c}"}, attributes: {tier: level}}}
  labels: {from: Label, embed: {into: Bill, match: {labelIds: "{label}"}, as: labels, attributes: [text]}}
  net: {from: Bill, compute: {set: {net: "total - 1"}}}
"""
AGGREGATES = """
  billed: {from: Bill, aggregate: {into: Customer, set: {billed: sum(total), bills: count}}}
  credited: {from: Credit, aggregate: {into: Customer, set: {credited: sum(total)}}}
  noted: {from: Note, aggregate: {into: Customer, set: {notes: count}}}
  tiers: {from: Bill, aggregate: {into: Tier, set: {tierTotal: sum(total)}}}
"""
COPIED = """
  byNumber: {from: Bill, copy: {into: ByNumber, attributes: [total]}}
  byCredit: {from: Credit, copy: {into: ByCredit, attributes: [total]}}
  byStatus: {from: Bill, where: {status: [open, paid]}, copy: {into: ByStatus, attributes: [total]}}
"""
WITH_AGGREGATES = ENTITIES % ", derived: true" + ON_BILLS + AGGREGATES
ALL = WITH_AGGREGATES + COPIED
DOCUMENTS = [loads(rules).canonical() for rules in (ENTITIES % "" + ON_BILLS, WITH_AGGREGATES, ALL, ALL)]
"""The rules of histories: what is late hides other things that are late, so some have fewer rules."""
CUSTOMER = ItemKey("main", "C#1", "PROFILE")
DOCS = tuple(ItemKey("main", "C#1", f"DOC#{number}") for number in (1, 2))
TIERS = tuple(ItemKey("main", f"TIER#{tier}", "STATS") for tier in ("gold", "plain"))
COPIES = {key: ItemKey("main", "BILL#1", key.sort[-1]) for key in DOCS if key.sort is not None}
BY_STATUS = {
    key: [ItemKey("main", f"STATUS#{s}", f"1#{to.sort}") for s in ("open", "paid")] for key, to in COPIES.items()
}
RULE_OF = {
    "billed": "billed",
    "bills": "billed",
    "credited": "credited",
    "notes": "noted",
    "tierTotal": "tiers",
    "tier": "tier",
    "labels": "labels",
    "net": "net",
}
OF_CUSTOMER = ("billed", "bills", "credited", "notes")
OF_DOCUMENT = ("tier", "labels", "net")


class KindHistory(ReadHistory):
    """One history. `_quiet` is the number of writes when the functions had processed all records last."""

    _quiet = 0

    def __init__(self, seed: int) -> None:
        self._number = seed
        super().__init__(seed)

    def _rules(self, more: bool) -> Any:
        return DOCUMENTS[self._number % len(DOCUMENTS)]

    def _begin(self) -> None:
        for label in "xy":
            self._store.put("main", _wired(ItemKey("main", f"LABEL#{label}", "LABEL"), text=label * 2))
        self._store.put("main", _wired(ItemKey("main", "C#1", "NOTE#1")))
        self._store.put("main", _wired(ItemKey("main", "C#1", "DOC#3"), type="credit", total=1000))
        self._put_customer()
        for key in DOCS:
            if self._rng.random() < 0.7:
                self._put(key)

    def _started(self) -> None:
        self._remember()

    # The application

    def _put(self, key: ItemKey) -> None:
        rng = self._rng
        held = MemoryStore.get(self._store, key) if rng.random() < 0.4 else None  # an update keeps what rules have set
        self._store.put("main", {**(held or {}), **_wired(
            key, type=rng.choice(("bill", "bill", "credit", "letter")), total=rng.randrange(1, 10**6),
            status=rng.choice(("open", "paid", "void")), labelIds=rng.choice((["x"], ["y", "x"], ["x", "y"], [], ["z"])),
        )})  # fmt: skip

    def _put_customer(self) -> None:
        """Replace the customer as a whole, without guards."""
        self._store.put("main", _wired(CUSTOMER, level=self._rng.choice(("gold", "plain")), mark=self._rng.random()))

    def _write(self) -> None:
        if not self._depth and self._rng.random() < 0.6:  # so that the next waits are for one write
            for _ in range(20):
                self._deliver(len(self._store.stream("main")))
        key = self._rng.choice((*DOCS, DOCS[0], CUSTOMER))
        if key == CUSTOMER:
            self._put_customer()
        elif self._rng.random() < 0.2:
            self._store.remove(key)
        else:
            self._put(key)
        self._remember()
        self._contributed.append((key, None, len(self._store.stream("main"))))

    def _remember(self) -> None:
        found = Oracle(self._document).expected({"main": self._store.items("main")})
        self._states.append(dict(found.items))

    # The functions

    def _deliver(self, end: int, back: int = 0) -> None:
        super()._deliver(end, back)
        if not self._depth and self._position == len(self._store.stream("main")):
            self._quiet = len(self._contributed)

    # The reader

    def _own(self) -> Iterator[None]:
        target = self._rng.choice((CUSTOMER, CUSTOMER, DOCS[0], *TIERS))
        states: dict[ItemKey, int] = {}
        bills = False

        def seen(needed: Needed) -> None:
            nonlocal bills
            for key in needed.keys:
                if key in DOCS or key == target:
                    states[key] = len(self._states) - 1
                if key in DOCS:
                    bills |= _is_bill(MemoryStore.get(self._store, key))

        answer: OwnRead = yield from self._drive(own_read(self._program, target, DOCS), seen)
        if len(set(states.values())) > 1:
            return
        self.reads["own"] += 1
        right = self._states[states[target]].get(target)
        if target in TIERS and bills:  # what tier a bill has is not known
            if answer.corrected:
                self.problems.append(f"own: {answer.corrected} of {target} is corrected")
            return
        names: Sequence[str] = ("tierTotal",) if target in TIERS else OF_CUSTOMER if target == CUSTOMER else OF_DOCUMENT
        if (answer.image is None) != (right is None):
            self.problems.append(f"own: {target} is {answer.image}, not {right}")
            return
        for name in names if answer.image is not None else ():
            shown, wanted = _value(answer.image, name), _value(right, name)
            if name in answer.uncorrected or shown == wanted:
                continue
            if target in DOCS and (name != "net") and self._quiet < len(self._contributed) and shown is not None:
                continue  # the value of an earlier write
            if target in DOCS and not _is_bill(right):
                continue  # a value of its former entity
            self.problems.append(f"own: {name} of {target} is {shown}, not {wanted}")

    def _look(self) -> Iterator[None]:
        source = self._rng.choice((*DOCS, DOCS[0], CUSTOMER))
        children = [key for key in DOCS if self._rng.random() < 0.7] if source == CUSTOMER else []
        began: list[int] = []

        def seen(needed: Needed) -> None:
            if source in needed.keys and not began:
                began.append(len(self._states) - 1)

        quiet = self._quiet
        look: Look = yield from self._drive(look_at(self._program, source, children), seen)
        if any((look.missing, look.filling, look.quarantined, look.unknown)):
            self.reads["late"] += 1
            return
        since = self._contributed[quiet:]
        if len(self._contributed) > began[0]:
            return  # something was written during the wait
        self.reads["reached"] += 1
        others = any(key != source for key, _, _ in since)
        some = self._states[began[0]]
        for target, names in self._covered(source, children).items():
            if others and target in (CUSTOMER, *TIERS):
                continue  # values of other writes are on their way
            image = MemoryStore.get(self._store, target)
            for name, rule in names.items():
                if rule in look.not_covered:
                    continue
                shown, wanted = _value(image, name), _value(some.get(target), name)
                if target in DOCS and not _is_bill(some.get(target)):
                    wanted = None  # the oracle takes values of its former entity for the application's
                if len(since) > 1 and wanted in self._before(target, name, quiet):
                    continue  # changed and changed back
                if shown != wanted:
                    self.problems.append(f"reached: {name} of {target} is {shown}, not {wanted}")

    def _before(self, target: ItemKey, name: str, quiet: int) -> list[Any]:
        return [_value(state.get(target), name) for state in self._states[quiet:-1]]

    def _covered(self, source: ItemKey, children: Sequence[ItemKey]) -> Mapping[ItemKey, Mapping[str, str]]:
        """The attributes that a wait covers, with their rules, by target."""
        if source == CUSTOMER:
            of_customer = {name: RULE_OF[name] for name in OF_CUSTOMER}
            return {CUSTOMER: of_customer, **{child: {"tier": "tier"} for child in children}}
        return {
            source: {name: RULE_OF[name] for name in OF_DOCUMENT},
            CUSTOMER: {"billed": "billed", "bills": "billed", "credited": "credited"},
            COPIES[source]: {"total": self._copier(source), "PK": self._copier(source)},
            **{target: {"total": "byStatus"} for target in BY_STATUS[source]},
            **{target: {"tierTotal": "tiers"} for target in TIERS},
        }

    def _copier(self, source: ItemKey) -> str:
        image = MemoryStore.get(self._store, source) or {}
        return "byCredit" if image.get("type") == {"S": "credit"} else "byNumber"


def _wired(key: ItemKey, **attributes: Any) -> Image:
    return {
        "PK": wire(key.partition),
        "SK": wire(key.sort),
        **{name: wire(value) for name, value in attributes.items()},
    }


def _value(image: Image | None, name: str) -> Any:
    return plain(image[name]) if image is not None and name in image else None


def _is_bill(image: Image | None) -> bool:
    return image is not None and image.get("type") == {"S": "bill"}
