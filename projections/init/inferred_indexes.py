"""Keys of indexes: those that (nearly) all items of an entity have, which are its `index_key`; and those that items have by
templates and a condition, as an `index` rule writes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from projections.init.contradictions import Case, Verdict, contradiction, judge
from projections.init.proposal import Entity, Rule, Table
from projections.init.rows import Group, Row, cut, escape_braces, is_marker, lower_camel, pascal
from projections.language.syntax import PATH
from projections.language.templates import Template
from projections.language.values import Resolver, Value

_INDEXED = 0.95
_MOSTLY = 0.75
_LEAST = 3
_MOST_VALUES = 8
_BY_CHANCE = 0.05


@dataclass(frozen=True)
class _Candidate:
    body: dict[str, Any]
    cases: Sequence[Case]
    condition: str


def index_keys(entity: Entity, rows: Sequence[Row], table: Table, separator: str) -> dict[str, str]:
    """Return templates for index keys that (nearly) all items of an entity have, `{name}` where none gives all of them."""
    index_key: dict[str, str] = {}
    for partition, sort in table.indexes.values():
        templates: dict[str, str] = {}
        for name, kind in (*partition, *sort):
            with_it = [row for row in rows if kind in row.item.get(name, {})]
            if name not in table.key_names and with_it and len(with_it) >= _INDEXED * len(rows):
                made = _template(entity, name, kind, with_it, separator)
                all_right = made is not None and all(_render(made, row) == row.text(name) for row in with_it)
                templates[name] = made if made is not None and all_right else "{" + name + "}"
        if all("{" in templates.get(name, "") for name, _ in partition):
            index_key |= templates  # a partition with all items does not lead to the children of a parent
    return index_key


def index_rules(groups: Sequence[Group], table: Table, separator: str) -> Iterator[Rule]:
    """Yield a rule for the keys of each index that items of an entity have, if all items agree with it, or most."""
    tested = [
        (group, index, candidates)
        for group in groups
        for index in table.indexes
        if (candidates := list(_candidates(group, index, table, separator)))
    ]
    tries = sum(len(candidates) for *_, candidates in tested)
    for group, index, candidates in tested:
        verdicts = [(judge(candidate.cases, tries), candidate) for candidate in candidates]
        usable = [
            each for each in verdicts if each[0].accepted or (each[0].all_right and each[0].by_chance <= _BY_CHANCE)
        ]
        if usable:
            verdict, candidate = max(usable, key=lambda each: each[0].share)
            own = {name: text for name, text in group.entity.index_key.items() if name not in candidate.body["index"]}
            group.entity = replace(group.entity, index_key=own)  # only one of application and rule writes a key
            yield _rule(group, index, candidate, verdict, table)


def _rule(group: Group, index: str, candidate: _Candidate, verdict: Verdict, table: Table) -> Rule:
    entity = group.entity.name
    written = " and ".join(candidate.body["index"])
    of = f"{verdict.right} of {len(verdict.cases)} {entity} items"
    have = sum(case.stored is not None for case in candidate.cases)
    evidence = f"{written} follow from other attributes{candidate.condition} in {of}; {have} have them"
    rule = Rule(f"{lower_camel(entity)}In{pascal(index) or 'Index'}", candidate.body, evidence)
    if verdict.all_right:
        return rule
    counter_evidence = contradiction(verdict, candidate.cases, entity, written, table)
    return replace(rule, doubt=counter_evidence.doubt, contradiction=counter_evidence)


def _candidates(group: Group, index: str, table: Table, separator: str) -> Iterator[_Candidate]:
    partition, sort = table.indexes[index]
    keys = [key for key in (*partition, *sort) if key[0] not in table.key_names]
    ordinary = {attribute.name for attribute in group.entity.attributes}
    unusable = any(name in ordinary or not PATH.fullmatch(name) or "." in name for name, _ in keys)
    with_it = [row for row in group.rows if all(kind in row.item.get(name, {}) for name, kind in keys)]
    own = group.entity.index_key
    known = any(own.get(name) not in (None, "{" + name + "}") for name, _ in partition)  # rules find children by it
    if not keys or unusable or known or len(with_it) < _LEAST:
        return
    templates = {name: _template(group.entity, name, kind, with_it, separator) for name, kind in keys}
    written = {name: text for name, text in templates.items() if text is not None}
    if len(written) < len(templates) or not any("{" in text for text in written.values()):
        return
    stored = [_stored_keys(row, [name for name, _ in keys]) for row in group.rows]
    computed = [_compute_keys(row, written, dict(keys)) for row in group.rows]
    entity = group.entity.name
    yield _Candidate({"from": entity, "index": written}, _cases(group.rows, stored, computed), "")
    for attribute, values in _conditions(group, with_it):
        fits = [_scalar(row, attribute) in values for row in group.rows]
        chosen = [value if fit else None for value, fit in zip(computed, fits, strict=True)]
        body = {"from": entity, "where": {attribute: sorted(values, key=str)}, "index": written}
        yield _Candidate(body, _cases(group.rows, stored, chosen), f" and a condition on {attribute}")


def _cases(rows: Sequence[Row], stored: Sequence[Value | None], computed: Sequence[Value | None]) -> list[Case]:
    return [Case(*fields) for fields in zip(rows, stored, computed, strict=True)]


def _stored_keys(row: Row, names: Sequence[str]) -> Value | None:
    attributes = {name: row.item[name] for name in names if name in row.item}
    return {"M": attributes} if attributes else None


def _compute_keys(row: Row, templates: Mapping[str, str], kinds: Mapping[str, str]) -> Value | None:
    texts = {name: _render(text, row) for name, text in templates.items()}
    if None in texts.values():
        return None
    return {"M": {name: {kinds[name]: text} for name, text in texts.items()}}


def _conditions(group: Group, with_it: Sequence[Row]) -> Iterator[tuple[str, set[str | bool]]]:
    """Yield attributes with few words as values, such as a status, and the values that most items with the index keys have.

    These words are in the rule file; other texts of the table are not.
    """
    has = {id(row) for row in with_it}
    for attribute in group.entity.attributes:
        if attribute.type not in ("S", "BOOL") or not PATH.fullmatch(attribute.name) or "." in attribute.name:
            continue
        every = Counter(value for row in group.rows if (value := _scalar(row, attribute.name)) is not None)
        if not 2 <= len(every) <= _MOST_VALUES or not all(
            isinstance(value, bool) or is_marker(value) for value in every
        ):
            continue
        present = Counter(_scalar(row, attribute.name) for row in group.rows if id(row) in has)
        values = {value for value, count in every.items() if 2 * present[value] > count}
        if values and len(values) < len(every):
            yield attribute.name, values


def _scalar(row: Row, name: str) -> str | bool | None:
    value = row.item.get(name, {})
    content = value.get("S", value.get("BOOL"))
    return content if isinstance(content, str | bool) else None


# Templates


def _render(template: str, row: Row) -> str | None:
    """Return the key that a rule with this template gives an item, None if a part is missing."""
    return _renderer(template)(lambda name: None if (text := row.text(name)) is None else {"S": text})


@lru_cache(maxsize=256)
def _renderer(template: str) -> Callable[[Resolver], str | None]:
    return Template.parse(template).compile()


def _template(entity: Entity, name: str, kind: str, rows: Sequence[Row], separator: str) -> str | None:
    """Return the template that gives the key of most rows."""
    if kind == "B":
        return None
    names = [*entity.variables]
    names += [each.name for each in entity.attributes if each.type in ("S", "N") and PATH.fullmatch(each.name)]
    if kind == "N":
        source = _source(names, rows, [row.text(name) for row in rows])
        return "{" + source + "}" if source else None
    cuts = [(row, *cut(row.item[name]["S"], separator)) for row in rows]
    ((signs, count),) = Counter(between for *_, between in cuts).most_common(1)
    if count < _MOSTLY * len(rows):
        return None
    alike = [(row, parts) for row, parts, between in cuts if between == signs]
    template = ""
    for number, sign in enumerate((*signs, "")):
        texts = [parts[number] for _, parts in alike]
        source = _source(names, [row for row, _ in alike], texts)
        ((text, same),) = Counter(texts).most_common(1)
        constant = same >= _MOSTLY * len(texts) and (is_marker(text) or not text)
        if constant and (not source or number == 0):
            template += escape_braces(text) + sign
        elif source:
            template += "{" + source + "}" + sign
        else:
            return None
    return template


def _source(names: Sequence[str], rows: Sequence[Row], texts: Sequence[str | None]) -> str:
    """Return the variable or attribute that equals most of the texts, empty if there is none."""
    best, most = "", _MOSTLY * len(rows)
    for name in names:
        same = sum(row.text(name) == text is not None for row, text in zip(rows, texts, strict=True))
        if same >= most and (not best or same > most):
            best, most = name, same
    return best
