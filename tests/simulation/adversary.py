"""A writer that knows every guard, for histories in which nothing of what it writes may last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from projections.engine.guards import Guards, Identity, digits_of, parts_of_text
from projections.engine.store import ItemKey, Update, Value
from projections.testing.simulation.item_writer import ItemWriter

_FIELDS: dict[str, tuple[Value, ...]] = {
    "at": ({"S": ""}, {"S": "0"}, {"S": "~"}, {"S": "9999999999.999999999999999"}, {"S": "999999999.forged"}),
    "by": ({"S": "main|USER#1|PROFILE"}, {"S": ""}),
    "n": ({"N": "0"}, {"N": "1"}, {"N": "1000000"}),
    "s": ({"S": "AAAAAAAA"}, {"S": ""}),
    "w": ({"S": "AAAA"}, {"S": ""}),
}
_VALUES: tuple[Value, ...] = ({"N": "1000000"}, {"S": "ADMIN"}, {"L": []})


class Adversary:
    """Writes any attribute of any item, and knows every guard and mark that was ever in the tables.

    It repeats guards, copies them to other items and rules, edits and forges them, and pretends to be another ledger; each
    time together with other values of the rule, and with nothing that tells its writes from a publish. `chance` is the
    probability that it does at a write of the application. Its random numbers are its own, so that the histories without
    it stay as they are.
    """

    def __init__(self, writer: ItemWriter, seed: int, chance: float) -> None:
        self._writer = writer
        self._rng = Random(f"adversary {seed}")
        self._chance = chance
        self._seen: dict[str, dict[ItemKey, list[Value]]] = {}
        """The guards and marks that it has seen, by attribute and item."""

    def write(self) -> str:
        """Perhaps make one write. Return its name, or the empty text."""
        writer, prefix = self._writer, self._writer.program.guard_prefix
        for key, image in writer.items.items():
            for name, value in image.items():
                if name.startswith(prefix):
                    seen = self._seen.setdefault(name, {}).setdefault(key, [])
                    if value not in seen:
                        seen.append(value)
        if self._rng.random() >= self._chance:
            return ""
        targets = [key for key in writer.items if self._rules(key)]
        if not targets:
            return ""
        key = self._rng.choice(targets)
        rule = self._rng.choice(self._rules(key))
        name = prefix + rule.name
        attack = self._rng.choice(("repeat", "copy", "edit", "forge", "pose", "mark", "state"))
        marks = attack in ("mark", "state")
        forged = self._mark(key) if marks else self._guard(attack, key, rule.name)
        if forged is None:
            return ""
        image = writer.items[key]
        owned = [each for each in sorted(rule.owned(image)) if each not in rule.into.constants and each != "PK"]
        owned = [each for each in owned if each not in rule.into.schema.key_attributes]
        changed = {each: self._rng.choice(_VALUES) for each in owned if self._rng.random() < 0.9}
        writer.touched[key] = None
        writer.tampering = writer.forging = True
        if marks:
            former = self._former(key) if attack == "state" else {}
            writer.store.write(Update(key, set={**former, prefix: forged}))
        else:
            writer.store.write(Update(key, set={**changed, name: forged}))
        return f"adversary: {attack}"

    def _rules(self, key: ItemKey) -> list[Any]:
        """The rules with guards that write to an item."""
        item = self._writer.program.recognise(key, self._writer.items[key])
        rules = self._writer.rules_into(item.entity) if item is not None else []
        return [rule for rule in rules if rule.has_guard]

    def _guard(self, attack: str, key: ItemKey, rule: str) -> Value | None:
        name = self._writer.program.guard_prefix + rule
        own = self._seen.get(name, {}).get(key, [])
        if attack == "repeat":
            return self._rng.choice(own) if own else None
        if attack == "copy":  # of the same rule on another item, or of another rule on the same item
            others = [value for place, seen in self._seen.get(name, {}).items() if place != key for value in seen]
            if self._rng.random() < 0.5:
                others = [value for each, held in self._seen.items() if each != name for value in held.get(key, ())]
            others = [value for value in others if "M" in value or parts_of_text(value)]
            return self._rng.choice(others) if others else None
        if attack == "pose":
            posing = Guards(self._writer.program, Identity("else", (b"another",)))
            at = "0000000000.000000000000009"
            return (
                posing.stamp_group(rule, key, at, 1)
                if any("S" in each for each in own)
                else posing.stamp(rule, key, at, n=1)
            )
        texts = [parts for value in own if (parts := parts_of_text(value))]
        if texts:
            return self._group_guard(attack, key, rule, self._rng.choice(texts))
        whole = [value["M"] for value in own if {"d", "at", "s"} <= value.get("M", {}).keys()]
        if not whole:
            return None
        fields: Mapping[str, Value] = self._rng.choice(whole)
        if attack == "forge":  # as this ledger would, but for its secret
            ledger = str(fields["d"].get("S", ""))[:4]
            forging = Guards(self._writer.program, Identity(ledger, (b"guess",)))
            by, n = fields.get("by", {}).get("S"), fields.get("n", {}).get("N")
            version: Value = self._rng.choice(_FIELDS["at"])
            return forging.stamp(rule, key, version["S"], by=by, n=int(n) if n is not None else None)
        edited = self._rng.choice([field for field in _FIELDS if field in fields])
        return {"M": {**fields, edited: self._rng.choice(_FIELDS[edited])}}

    def _group_guard(self, attack: str, key: ItemKey, rule: str, parts: Any) -> Value:
        """The guard of a group with other parts; where it is forged, signed as this ledger would, but for its secret."""
        at = self._rng.choice(("0000000000.000000000000000", "9999999999.999999999999999", parts.guard.at))
        n = self._rng.choice((0, 1, 1_000_000))
        if attack == "forge":
            forging = Guards(self._writer.program, Identity(parts.digest[:4], (b"guess",)))
            return forging.stamp_group(rule, key, at, n)
        signature = self._rng.choice((parts.signature, "AAAAAAAA"))
        return {"S": f"{parts.digest}{digits_of(at, n)}{signature}"}

    def _former(self, key: ItemKey) -> dict[str, Value]:
        """The guards of rules on this item, each as it was once."""
        return {name: self._rng.choice(seen[key]) for name, seen in sorted(self._seen.items()) if key in seen}

    def _mark(self, key: ItemKey) -> Value | None:
        """A mark of this item, seen earlier, or of another one."""
        marks = self._seen.get(self._writer.program.guard_prefix, {})
        own = marks.get(key, [])
        others = [value for values in marks.values() for value in values]
        return self._rng.choice(own or others) if others else None


def adversary_of(chance: float) -> Callable[[ItemWriter, int], Callable[[], str]]:
    """Return the attacker of a `Setup`."""
    return lambda writer, seed: Adversary(writer, seed, chance).write if chance else lambda: ""
