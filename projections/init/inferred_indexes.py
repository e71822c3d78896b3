"""Keys of indexes: those that (nearly) all items of an entity have, which are its `index_key`; and those that items have by
templates and a condition, as an `index` rule writes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from projections.init.contradictions import Case, add_contradiction, judge
from projections.init.proposal import Entity, Rule, Table
from projections.init.rows import (
    Group,
    Row,
    cut,
    escape_braces,
    few_words,
    is_marker,
    is_usable,
    lower_camel,
    pascal,
    scalar,
)
from projections.language.templates import Template
from projections.language.values import Value

_INDEXED = 0.95
_MOSTLY = 0.75
_LEAST = 3


def index_keys(entity: Entity, rows: Sequence[Row], table: Table, separator: str) -> dict[str, str]:
    """Return templates for index keys that (nearly) all items of an entity have, `{name}` where none gives all of them."""
    index_key: dict[str, str] = {}
    for partition, sort in table.indexes.values():
        templates: dict[str, str] = {}
        for name, kind in (*partition, *sort):
            with_it = [row for row in rows if kind in row.item.get(name, {})]
            if name not in table.key_names and is_usable(name) and with_it and len(with_it) >= _INDEXED * len(rows):
                made = _template(entity, name, kind, with_it, separator)
                all_right = made is not None and all(_render(made, row) == row.text(name) for row in with_it)
                templates[name] = made if made is not None and all_right else "{" + name + "}"
        if all("{" in templates.get(name, "") for name, _ in partition):
            index_key |= templates  # a partition with all items does not lead to the children of a parent
    return index_key


def index_rules(groups: Sequence[Group], table: Table, separator: str) -> Iterator[Rule]:
    """Yield a rule for the keys of each index that items of an entity have, if all items agree with it, or most."""
    tested = [(group, list(_candidates(group, index, table, separator))) for group in groups for index in table.indexes]
    tries = sum(len(candidates) for _, candidates in tested)
    for group, candidates in tested:
        verdicts = [(judge(cases, tries), rule) for rule, cases in candidates]
        usable = [(verdict, rule) for verdict, rule in verdicts if verdict.accepted or verdict.certain]
        if usable:
            verdict, rule = max(usable, key=lambda each: each[0].share)
            own = {name: text for name, text in group.entity.index_key.items() if name not in rule.attributes}
            group.entity = replace(group.entity, index_key=own)  # only one of application and rule writes a key
            have = sum(case.stored is not None for case in verdict.cases)
            of = f"{verdict.right} of {len(verdict.cases)} {rule.into} items"
            rule = replace(rule, evidence=f"{rule.evidence} in {of}; {have} have them")
            yield rule if verdict.all_right else add_contradiction(rule, verdict, verdict.cases, table)


def _candidates(group: Group, index: str, table: Table, separator: str) -> Iterator[tuple[Rule, list[Case]]]:
    """Yield a rule without a condition, and one with each possible condition, with stored and computed keys."""
    partition, sort = table.indexes[index]
    keys = [key for key in (*partition, *sort) if key[0] not in table.key_names]
    ordinary = {attribute.name for attribute in group.entity.attributes}
    unusable = any(name in ordinary or not is_usable(name) for name, _ in keys)
    with_it = [row for row in group.rows if all(kind in row.item.get(name, {}) for name, kind in keys)]
    own = group.entity.index_key
    known = any(own.get(name) not in (None, "{" + name + "}") for name, _ in partition)  # rules find children by it
    if not keys or unusable or known or len(with_it) < _LEAST:
        return
    templates = {name: _template(group.entity, name, kind, with_it, separator) for name, kind in keys}
    written = {name: text for name, text in templates.items() if text is not None}
    if len(written) < len(templates) or not any("{" in text for text in written.values()):
        return
    stored = [_keys({name: row.text(name) or "" for name in written if name in row.item}) for row in group.rows]
    computed = [_keys({name: _render(text, row) for name, text in written.items()}) for row in group.rows]
    entity, evidence = group.entity.name, f"{' and '.join(written)} follow from other attributes"
    rule = Rule(f"{lower_camel(entity)}In{pascal(index) or 'Index'}", {"from": entity, "index": written}, evidence)
    yield rule, list(map(Case, group.rows, stored, computed))
    for attribute, values in _conditions(group, with_it):
        body = {"from": entity, "where": {attribute: sorted(values, key=str)}, "index": written}
        fits = [scalar(row.item, attribute) in values for row in group.rows]
        chosen = [value if fit else None for value, fit in zip(computed, fits, strict=True)]
        rule = replace(rule, body=body, evidence=f"{evidence} and a condition on {attribute}")
        yield rule, list(map(Case, group.rows, stored, chosen))


def _keys(texts: Mapping[str, str | None]) -> Value | None:
    """Return index keys as one value, None if there is none or one is missing."""
    return {"M": {name: {"S": text} for name, text in texts.items()}} if texts and None not in texts.values() else None


def _conditions(group: Group, with_it: Sequence[Row]) -> Iterator[tuple[str, set[str | bool]]]:
    """Yield attributes with few words as values, such as a status, and the values that most items with the index keys have.

    These words are in the rule file; other texts of the table are not.
    """
    for attribute, every in few_words(group):
        present = Counter(scalar(row.item, attribute) for row in with_it)
        values = {value for value, count in every.items() if 2 * present[value] > count}
        if values and len(values) < len(every):
            yield attribute, values


# Templates


def _render(template: str, row: Row) -> str | None:
    """Return the key that a rule with this template gives an item, None if a part is missing."""
    return Template.parse(template).render(lambda name: None if (text := row.text(name)) is None else {"S": text})


def _template(entity: Entity, name: str, kind: str, rows: Sequence[Row], separator: str) -> str | None:
    """Return the template that gives the key of most rows, None if there is none."""
    if kind == "B":
        return None
    names = [*entity.variables, *(each.name for each in entity.attributes if each.type in ("S", "N"))]
    cuts = [(row, cut(row.text(name) or "", separator)) for row in rows]
    ((length, count),) = Counter(len(parts) for _, parts in cuts).most_common(1)
    if count < _MOSTLY * len(rows):
        return None
    alike = [(row, parts) for row, parts in cuts if len(parts) == length]
    template = []
    for number in range(length):
        texts = [parts[number] for _, parts in alike]
        source = _source(names, [row for row, _ in alike], texts)
        ((text, same),) = Counter(texts).most_common(1)
        constant = same >= _MOSTLY * len(texts) and (is_marker(text) or not text)
        if constant and (not source or number == 0):
            template.append(escape_braces(text))
        elif source:
            template.append("{" + source + "}")
        else:
            return None
    return separator.join(template)


def _source(names: Sequence[str], rows: Sequence[Row], texts: Sequence[str]) -> str:
    """Return the variable or attribute that equals most of the texts, empty if there is none."""
    same = {name: sum(row.text(name) == text for row, text in zip(rows, texts, strict=True)) for name in names}
    best = max(names, key=lambda name: same[name], default="")
    return best if best and same[best] >= _MOSTLY * len(rows) else ""
