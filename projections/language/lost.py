"""The parts of a rule file that have mistakes, and what depends on them.

The other parts are analysed as usual. A result about them is certain if no correction of a lost part can change it:

- a lost rule can write attributes and items of its target, or of every entity if its target is unknown;
- it can read attributes of its source, which shows that they exist;
- a lost entity can have items in every table, and takes its rules and queries with it;
- a lost query can read every index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from projections.language.mistakes import Mistake
from projections.language.models import KINDS, Rules
from projections.language.pruning import SECTIONS, entities_of, entities_read
from projections.language.source import Repeated

__all__ = ["NOTHING", "Dependence", "Lost", "LostRule"]

Dependence: TypeAlias = Literal["writers", "readers", "keys", "entities", "queries"]
"""What a result can depend on, besides the parts that it is about:

- writers: the rules that write to its entities, and to the sources of these rules
- readers: the rules that read its entities
- keys: the rules that create items, or write keys, in the tables of its entities
- entities: all entities
- queries: all queries
"""

_FIELDS = frozenset(["", *Rules.model_fields])
_VALUES = frozenset(["aggregate", "top", "latest", "embed"])
"""Kinds of rules that write no keys."""


@dataclass(frozen=True, slots=True)
class LostRule:
    """A rule with a mistake: its entities and its kind, None if they are not certain."""

    name: str
    sources: frozenset[str] | None
    target: str | None
    kind: str | None


@dataclass(frozen=True, slots=True)
class Lost:
    """The parts of a rule file that have mistakes."""

    rules: tuple[LostRule, ...] = ()
    entities: frozenset[str] = frozenset()
    queries: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    everything: bool = False
    """Whether nothing is certain: a table or a whole section has a mistake."""

    def __bool__(self) -> bool:
        return bool(self.everything or self.rules or self.entities or self.queries or self.writes)

    @classmethod
    def of(cls, data: Mapping[str, Any], mistakes: Iterable[Mistake]) -> Lost:
        """Return the parts of the data that have these mistakes, and the parts that need them."""
        named: dict[str, set[str]] = {section: set() for section in SECTIONS}
        everything = False
        mistakes = list(mistakes)
        for path in (path for mistake in mistakes for path in (mistake.path, *mistake.others)):
            section = str(path[0]) if path else ""
            if section in named and len(path) > 1:
                named[section].add(str(path[1]))
            elif not path or len(path) > 1 or section in data:  # a corrected name of a section is not in the data
                everything |= section != "retired" and (
                    section in _FIELDS or isinstance(data.get(section), dict | list)
                )
        lost = named["entities"]
        projections, queries, writes = (_entries(data, section) for section in ("projections", "queries", "writes"))
        rules = [
            _lost_rule(name, rule, _entries(data, "entities"))
            for name, rule in projections.items()
            if name in named["projections"] or not lost.isdisjoint(entity for _, entity in entities_of(rule))
        ]
        rules += [  # of two rules of one name, the data has the first only
            LostRule(str(mistake.path[1]), None, None, None)
            for mistake in mistakes
            if mistake.path[:1] == ("projections",)
            and isinstance(mistake.path[-1], Repeated)
            and len(mistake.path) == 2
        ]
        return cls(
            rules=tuple(rules),
            entities=frozenset(lost),
            queries=frozenset(named["queries"] | _reading(queries, lost)),
            writes=frozenset(named["writes"] | _reading(writes, lost)),
            everything=everything,
        )

    def rest(self, rules: Rules) -> Rules:
        """Return the rules without the lost parts."""
        names = {rule.name for rule in self.rules}
        kept: dict[str, Collection[str]] = {
            "projections": names,
            "entities": self.entities,
            "queries": self.queries,
            "writes": self.writes,
        }
        return rules.model_copy(
            update={
                section: {name: part for name, part in getattr(rules, section).items() if name not in gone}
                for section, gone in kept.items()
            }
        )

    def and_rules(self, rules: Rules, names: Iterable[str]) -> Lost:
        """Return these parts and some more rules."""
        more = [(name, rules.projections[name]) for name in dict.fromkeys(names)]
        found = [LostRule(name, frozenset(rule.sources), rule.into, rule.kind) for name, rule in more]
        return replace(self, rules=(*self.rules, *found))

    def concern(self, rules: Rules, entities: Iterable[str], depends: Collection[Dependence]) -> bool:
        """Return whether a correction of a lost part can change a result about entities of the rest of the rules."""
        if self.everything:
            return True
        if ("entities" in depends and self.entities) or ("queries" in depends and self.queries):
            return True
        about = set(entities)
        if "readers" in depends and any(one.sources is None or one.sources & about for one in self.rules):
            return True
        if "keys" in depends:
            tables = {rules.table_of(entity) for entity in about if entity in rules.entities}
            here = {entity for entity in rules.entities if rules.table_of(entity) in tables}
            if any(one.kind not in _VALUES and (one.target is None or one.target in here) for one in self.rules):
                return True
        if "writers" not in depends and "keys" not in depends:
            return False
        above = _above(rules, about)
        return any(one.target is None or one.target in above for one in self.rules)


NOTHING = Lost()


def _above(rules: Rules, entities: Collection[str]) -> set[str]:
    """Return the entities, and all from which rules derive their items and attributes."""
    found, fresh = set(entities), set(entities)
    while fresh:
        fresh = {name for rule in rules.projections.values() if rule.into in fresh for name in rule.sources} - found
        found |= fresh
    return found


def _entries(data: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    entries = data.get(section)
    return entries if isinstance(entries, dict) else {}


def _reading(entries: Mapping[str, Any], lost: Collection[str]) -> set[str]:
    return {name for name, entry in entries.items() if not set(lost).isdisjoint(one for _, one in entities_read(entry))}


def _lost_rule(name: str, rule: Any, known: Mapping[str, Any]) -> LostRule:
    form = rule if isinstance(rule, dict) else {}
    sources = form.get("from")
    sources = [*sources] if isinstance(sources, dict) else sources
    listed = [one for one in (sources if isinstance(sources, list) else [sources]) if isinstance(one, str)]
    certain = all(one in known for one in listed) and len(listed) == (len(sources) if isinstance(sources, list) else 1)
    kinds = [kind for kind in KINDS if kind in form]
    kind = kinds[0] if len(kinds) == 1 else None
    action = form.get(kind) if kind is not None else None
    target = action.get("into") if isinstance(action, dict) else None
    if kind in ("index", "compute") and certain and len(listed) == 1:
        target = listed[0]
    target = target if isinstance(target, str) and target in known else None
    return LostRule(name, frozenset(listed) if certain else None, target, kind)
