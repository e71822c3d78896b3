"""Which published values a promotion changes: the groups of a version are compared with those of the published one.

Where a rule has no published version, with the values on its targets, which the application maintains. The result
is of one moment: the application writes meanwhile.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from projections.engine.groups import read_groups, read_members
from projections.engine.ledger_items import LEDGER, Target, group_of
from projections.engine.registry import RegistrySnapshot
from projections.engine.store import Image, ItemKey, Store, Value, Values
from projections.language.keys import decode_key, encode_key, is_range
from projections.language.program import Program
from projections.language.rules import LedgerRule, public_name
from projections.language.values import number_text, plain, same
from projections.operations.backfill.backfill_runs import zeros
from projections.operations.dry import MOST_CHANGES, ValueChange
from projections.operations.verify.scanning import Scanner

_PAGE = 500

_ATTRIBUTES = ("pk", "sk", "key", "kept")


@dataclass(slots=True)
class AttributeChanges:
    """The changes of one attribute. `examples` are those with the largest difference; without numbers, the first.

    `total` is the sum of the differences where both values are numbers, None if there is none.
    """

    changed: int = 0
    total: Decimal | None = None
    examples: list[tuple[Decimal, ValueChange]] = field(default_factory=list)

    def add(self, key: ItemKey, name: str, old: Value | None, new: Value | None) -> None:
        """Note that the value on a target changes."""
        self.changed += 1
        difference = Decimal(0)
        if old is not None and new is not None and "N" in old and "N" in new:
            difference = Decimal(new["N"]) - Decimal(old["N"])
            self.total = (self.total or Decimal(0)) + difference
        example = ValueChange(encode_key(key), name, *(None if value is None else plain(value) for value in (old, new)))
        self.examples.append((abs(difference), example))
        self.examples.sort(key=lambda pair: -pair[0])
        del self.examples[MOST_CHANGES:]


@dataclass(slots=True)
class VersionChanges:
    """What the promotion of a version changes. `active` is the published version, None if there is none."""

    version: str
    active: str | None
    targets: int = 0
    """Targets that have been compared."""
    attributes: dict[str, AttributeChanges] = field(default_factory=dict)
    not_carried: Sequence[str] = ()
    """The attributes that begin without what has expired, and that former versions keep."""
    kept: int = 0
    """The entries that keep something which these attributes lack."""

    @property
    def rule(self) -> str:
        return public_name(self.version)

    @property
    def changed(self) -> int:
        """The number of values that change."""
        return sum(changes.changed for changes in self.attributes.values())

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "version": self.version,
            "published": self.active,
            "targets": self.targets,
            "changed": self.changed,
            "notCarried": {"attributes": list(self.not_carried), "entries": self.kept},
            "attributes": {
                name: {
                    "changed": changes.changed,
                    "sum": number_text(changes.total) if changes.total is not None else None,
                    "examples": [{"key": each.key, "old": each.old, "new": each.new} for _, each in changes.examples],
                }
                for name, changes in sorted(self.attributes.items())
            },
        }


def version_changes(
    program: Program,
    store: Store,
    snapshot: RegistrySnapshot,
    versions: Iterable[str],
    *,
    segments: int = 4,
    report: Callable[[int], None] = lambda items: None,
) -> list[VersionChanges]:
    """Return what the promotion of these versions changes, of those that write to items. It reads the ledger once.

    `program` is that of the registry, `report` is called with the number of items of the ledger that were read. Raises
    Transient.
    """
    compared: dict[str, VersionChanges] = {}
    for name in versions:
        rule = program.recorded.get(name)
        if rule is not None and rule.writes_items:
            active = snapshot.active.get(public_name(name))
            published = active.name if active is not None else None
            compared[name] = VersionChanges(name, published, not_carried=program.not_carried(name))
    if compared:
        comparison = _Comparison(program, store, compared)
        scanner = Scanner(store, threads=segments, report=lambda _, items: report(items), page=_PAGE)
        scanner.whole([(LEDGER, comparison.compare)], _ATTRIBUTES)
    return list(compared.values())


class _Comparison:
    def __init__(self, program: Program, store: Store, compared: Mapping[str, VersionChanges]) -> None:
        self._program = program
        self._store = store
        self._compared = compared
        self._of_active = {changes.active: changes for changes in compared.values() if changes.active is not None}
        self._lock = threading.Lock()

    def compare(self, items: Sequence[Image]) -> None:
        """Compare the groups of a page: those of the new versions, and those that only the published ones have."""
        targets: dict[str, list[str]] = {}
        for item in items:
            if "kept" in item:
                self._count_kept(json.loads(item["kept"]["S"]))
            if item["pk"]["S"].startswith("G|") and item["sk"]["S"] == "00":
                name, target = group_of(item)
                if not is_range(target):
                    targets.setdefault(name, []).append(target)
        for name, texts in targets.items():
            if name in self._compared:
                self._compare_targets(self._compared[name], texts, both=True)
            elif name in self._of_active:
                self._compare_targets(self._of_active[name], texts, both=False)

    def _count_kept(self, kept: Mapping[str, Any]) -> None:
        """Count an entry where a version lacks something that others keep of what has expired."""
        others = {public_name(version) for version in kept if version not in self._compared}
        with self._lock:
            for changes in self._compared.values():
                changes.kept += bool(changes.not_carried) and changes.rule in others

    def _compare_targets(self, changes: VersionChanges, texts: Sequence[str], *, both: bool) -> None:
        """Compare targets. Without `both`, only those of which the new version has no group."""
        new = self._shown_values(changes.version, texts)
        if not both:
            texts = [text for text in texts if new[text] is None]
        old = self._shown_values(changes.active, texts) if changes.active is not None else {}
        keys = {text: decode_key(text) for text in texts}
        differing = {text: key for text, key in keys.items() if changes.active is None or old[text] != new[text]}
        images = self._store.get_many(list(differing.values()))
        with self._lock:
            changes.targets += len(texts)
            for text, key in differing.items():
                self._note(changes, key, old.get(text), new[text], images.get(key))

    def _note(
        self, changes: VersionChanges, key: ItemKey, old: Values | None, new: Values | None, image: Image | None
    ) -> None:
        rule = self._program.recorded[changes.version]
        if image is None and not (rule.creates and new):
            return  # there is no item that shows the value
        after = new if new is not None else self._zeros(rule, key)
        before = old if old is not None else {}
        if changes.active is None:
            before = image or {}
        elif old is None:
            before = self._zeros(self._program.recorded[changes.active], key)
        for name in dict.fromkeys([*after, *(before if changes.active is not None else ())]):
            was, becomes = before.get(name), after.get(name)
            if not ((was is None and becomes is None) or (was and becomes and same(was, becomes))):
                changes.attributes.setdefault(name, AttributeChanges()).add(key, name, was, becomes)

    def _zeros(self, rule: LedgerRule, key: ItemKey) -> Values:
        """Return what a version shows on a target to which nothing contributes."""
        if rule.creates or not rule.into.at(key):
            return {}
        return zeros(rule)

    def _shown_values(self, version: str, texts: Collection[str]) -> dict[str, Values | None]:
        """Return what a version shows on targets; None where it has no group."""
        rule = self._program.recorded[version]
        targets: list[Target] = [(version, text) for text in texts]
        groups = read_groups(self._store, targets)
        shown: dict[str, Values | None] = {}
        for (_, text), group in groups.items():
            if group.version == 0 or group.damaged:
                shown[text] = None
            elif rule.creates and group.totals.n == 0:
                shown[text] = {}
            else:
                shown[text] = rule.published(group.totals, read_members(self._store, rule, text))
        return shown
