"""Partition keys that probably have few values, and index keys that the application could write itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import FEW_PARTITIONS, STATIC_INDEX_KEY
from projections.language.mistakes import Location
from projections.language.patterns import Pattern
from projections.language.shapes import cases, key_attributes
from projections.language.templates import Field, Template
from projections.language.yaml_text import block

__all__ = ["static"]

_FEW = re.compile(
    r"(?i)(?:.*[._])?(?:is)?(?:country|countrycode|state|region|continent|status|type|kind|category|role|gender|language|"
    r"locale|currency|plan|tier|level|priority|stage|active|archived|enabled|published|visibility)"
)


def static(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about keys, of rule files that have queries."""
    if not facts.rules.queries:
        return
    yield from _few(facts)
    for name in facts.projections:
        yield from _written_once(facts, name)


def _few(facts: Facts) -> Iterator[Remark]:
    for key in facts.index_keys:
        if key.whole and not key.listed.keys() & {slot.name for made in key.partition for slot in made.slots}:
            fields = [
                Field(slot.name, slot.pipes, expression=slot.expression)
                for made in key.partition
                for slot in made.slots
            ]
            yield from _few_values(fields, key.partition[0].place, f"{key.index} has {key.entity} items")
    for entity, declared in facts.rules.entities.items():
        if facts.made_by_rules(entity):
            continue  # its items are as many as the groups or sources of its rules
        (attribute, _), *sort = key_attributes(facts.table(entity).key)
        if sort and Template.parse(declared.key[sort[0][0]]).names:
            fields = [*Template.parse(declared.key[attribute]).fields]
            yield from _few_values(fields, ("entities", entity, "key", attribute), f"the table has {entity} items")


def _few_values(fields: list[Field], place: Location, what: str) -> Iterator[Remark]:
    names = [field.name for field in fields]
    if names and all(_FEW.fullmatch(field.name) and field.plain for field in fields):
        listed = " and ".join(names)
        yield Remark(
            FEW_PARTITIONS,
            place,
            f"{what} of one {listed} in one partition, and {listed} probably has few values, of which some are far more "
            "frequent",
            "add another attribute from `by` of the queries to the key, or a bucket; if there are few writes, accept this",
        )


def _written_once(facts: Facts, name: str) -> Iterator[Remark]:
    """Yield a remark about a rule whose index keys never change."""
    rule = facts.projections[name]
    if rule.index is None or not rule.publishes or facts.made_by_rules(rule.source):
        return
    variables = {*facts.variables(rule.source)}
    forms = cases(rule.index)
    conditions = [where for where in (rule.where, *(where for _, where, _ in forms)) if where]
    names = {one for where in conditions for one in Pattern.parse(where).names}
    texts = [text for _, _, made in forms for text in made.values()]
    names |= {one for text in texts for one in Template.parse(text).names}
    if len(forms) > 1 or not names <= variables:
        return
    ((_, _, keys),) = forms
    yield Remark(
        STATIC_INDEX_KEY,
        ("projections", name),
        f"the keys that it writes never change: they have only constants and variables of the key of {rule.source}",
        f"let the application write them with each new {rule.source} (this saves one write), remove the rule, and declare "
        "the keys",
        at_key=True,
        paste=block({"entities": {rule.source: {"index_key": keys}}}),
    )
