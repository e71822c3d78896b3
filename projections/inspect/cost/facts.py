"""What the cost of a rule depends on, read from the rules: what it reads, how many items it touches, what indexes see."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from projections.engine.publishing import shares_calls
from projections.inspect.cost.figures import ATTRIBUTE_BYTES, VARIABLE_BYTES
from projections.language.embeds import EmbedRule
from projections.language.expressions import Expression
from projections.language.patterns import Pattern
from projections.language.program import Program
from projections.language.rules import AggregateRule, CopyRule, IndexRule, LedgerRule, PickRule, Rule
from projections.language.templates import Template

__all__ = ["IndexCase", "RuleFacts", "index_keys", "rule_facts"]


@dataclass(frozen=True)
class RuleFacts:
    """One rule. Names are top-level attributes of the source that can change: variables of its key cannot.

    `where` decides whether it applies, `target` where to, `values` what it writes there.
    """

    rule: Rule
    document: Mapping[str, Any]
    where: frozenset[str]
    target: frozenset[str]
    values: frozenset[str]
    writes: frozenset[str]
    """Attributes of the target; of a copy of all attributes those that are named."""
    everything: bool = False
    """A copy of all attributes: every change of the source is one of it."""

    @property
    def name(self) -> str:
        return self.rule.name

    @cached_property
    def reads(self) -> frozenset[str]:
        return self.where | self.target | self.values

    @property
    def into(self) -> str:
        return self.rule.into.name

    @property
    def writes_targets(self) -> bool:
        """Whether it writes to the application's tables: a rule in the shadow does not."""
        return self.rule.mode != "shadow"

    @property
    def ledger(self) -> bool:
        """Whether the ledger keeps its contributions."""
        return self.rule.recorded

    @property
    def creates(self) -> bool:
        """Whether publishing brings the target to life."""
        return self.rule.creates

    @property
    def members(self) -> int:
        """Members that one contribution has in the ledger: one per list, claim, and set of values with an extreme."""
        if isinstance(self.rule, AggregateRule):
            return len({m.slot for m in self.rule.measures if m.function in ("min", "max")})
        return 1

    @property
    def member_bytes(self) -> int:
        """Of what one member carries."""
        if isinstance(self.rule, PickRule):
            return ATTRIBUTE_BYTES * len(self.rule.picked)
        return ATTRIBUTE_BYTES * len(self.writes) if isinstance(self.rule, CopyRule) else 0

    @property
    def queries(self) -> int:
        """Queries for members that publishing one target takes."""
        return len(self.rule.member_queries) if isinstance(self.rule, LedgerRule) and self.ledger else 0

    @property
    def alone(self) -> bool:
        """Whether each publish is a call of its own; the others go in batches of statements."""
        return not (isinstance(self.rule, LedgerRule) and shares_calls(self.rule))

    def changed(self, attributes: frozenset[str] | None) -> frozenset[str]:
        """Those of its attributes that an edit changes; None stands for an edit of all."""
        return self.reads if attributes is None else self.reads & attributes

    @cached_property
    def fixed_targets(self) -> int | None:
        """How many targets there are at all, where the rule says so: a key without variables, or with buckets alone."""
        if isinstance(self.rule, IndexRule | EmbedRule):
            return None
        total = 1
        for name in {name for pattern in self.rule.into.patterns for name in pattern.names}:
            found = re.fullmatch(r"\{[\w.-]+\|bucket\((\d+)\)\}", self.document["bind"].get(name, ""))
            if found is None:
                return None
            total *= int(found[1])
        return total


@dataclass(frozen=True, slots=True)
class IndexCase:
    """One index as an index rule fills it: attributes of the source in its key, and its partition key's template."""

    index: str
    key_names: frozenset[str]
    partition: str


def rule_facts(program: Program) -> dict[str, RuleFacts]:
    """By name."""
    return {name: _facts(program, rule) for name, rule in program.rules.items()}


def _facts(program: Program, rule: Rule) -> RuleFacts:
    document = program.document["projections"][rule.name]
    fixed = {name for pattern in rule.source.patterns for name in pattern.names}
    variable = document["each"]["variable"] if document["each"] else None

    def roots(names: Iterable[str]) -> frozenset[str]:
        found = {name.split(".", 1)[0] for name in names}
        if variable in found and document["each"]:
            found.add(document["each"]["path"].split(".", 1)[0])
        return frozenset(found - fixed - {variable})

    where = set(_pattern(document["where"]))
    target: set[str] = set()
    values: set[str] = set()
    writes: set[str] = set()
    if isinstance(rule, IndexRule):
        for case in document["cases"]:
            where.update(_pattern(case["where"]))
            values.update(_templates(case["set"].values()))
            writes.update(case["set"])
        return RuleFacts(rule, document, roots(where), frozenset(), roots(values), frozenset(writes))
    if isinstance(rule, EmbedRule):
        values.update(path for _, path in rule.picked)
        target.update(_templates(document["match"].values()))
        return RuleFacts(rule, document, roots(where), roots(target), roots(values), frozenset(rule.owned()))
    into = program.entities[document["into"]]
    target.update(_templates(document["bind"].values()))
    target.update(n for pattern in into.patterns for n in pattern.names if n not in document["bind"])
    if document["each"]:
        target.add(document["each"]["path"])
    everything = False
    if isinstance(rule, AggregateRule):
        writes.update(rule.owned())
        for measure in document["set"].values():
            values.update(_pattern(measure["where"]))
            if measure["expression"]:
                values.update(Expression.parse(measure["expression"], True).names)
    elif isinstance(rule, PickRule):
        writes.update(rule.owned())
        values.update([rule.by, *(path for _, path in rule.picked)])
    elif isinstance(rule, CopyRule):
        writes.update(rule.owned())
        everything = rule.attributes is None
        values.update(path for _, path in rule.attributes or ())
        values.update(_templates(v["template"] for v in document["values"].values() if "template" in v))
    return RuleFacts(rule, document, roots(where), roots(target), roots(values), frozenset(writes), everything)


def _pattern(document: Mapping[str, Any] | None) -> tuple[str, ...]:
    return Pattern.parse(document).names if document else ()


def _templates(texts: Iterable[str]) -> list[str]:
    return [name for text in texts for name in Template.parse(text).names]


def index_keys(program: Program, facts: RuleFacts) -> list[IndexCase]:
    """The indexes that an index rule fills, in any of its cases."""
    schema = program.tables[facts.rule.source.table]
    fixed = {name for pattern in facts.rule.source.patterns for name in pattern.names}
    found: dict[str, IndexCase] = {}
    for index, (partition, sort) in schema.indexes.items():
        keys = [name for name, _ in (*partition, *sort)]
        for case in facts.document["cases"]:
            texts = {name: text for name, text in case["set"].items() if name in keys}
            if not texts:
                continue
            names = frozenset(name.split(".", 1)[0] for name in _templates(texts.values())) - fixed
            known = found.get(index)
            names |= known.key_names if known is not None else frozenset()
            template = " ".join(texts[name] for name, _ in partition if name in texts)
            found[index] = IndexCase(index, names, template if known is None else known.partition)
    return list(found.values())


def key_bytes(program: Program, entity: str) -> int:
    """About how long an encoded key of an entity is."""
    kind = program.entities[entity]
    size = len(kind.table) + 1
    for pattern in kind.patterns:
        literal = len(re.sub(r"\{[^}]*\}", "", pattern.text))
        size += 1 + literal + VARIABLE_BYTES * len(pattern.names)
    return size
