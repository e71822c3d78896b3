"""References between items: variables or attributes of a child that form the key of a parent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from projections.init.inference.proposal import Relation
from projections.init.inference.rows import Group, Row
from projections.init.inference.words import normal, pascal, small_numbers, words
from projections.language.syntax import PATH

__all__ = ["Link", "links", "named_by", "related_twice", "rule_body"]

_LEAST_SEEN = 3
_SHARE = 0.5
_MOST_CHOICES = 4


@dataclass(frozen=True)
class Link:
    """A relation with the pairs of child and parent in the sample."""

    relation: Relation
    child: Group
    parent: Group
    pairs: Sequence[tuple[Row, Row]]

    @property
    def children(self) -> Mapping[int, list[Row]]:
        """The children's rows by the number of the parent's row in its group."""
        numbers = {id(row): number for number, row in enumerate(self.parent.rows)}
        found: dict[int, list[Row]] = {number: [] for number in numbers.values()}
        for child, parent in self.pairs:
            found[numbers[id(parent)]].append(child)
        return found


def links(groups: Sequence[Group], complete: bool) -> list[Link]:
    """Return the relations that the sample confirms. In a complete sample, most children have their parent."""
    found = []
    for child, parent in product(groups, groups):
        if child is parent or not parent.entity.variables:
            continue
        for binding in _bindings(child, parent):
            link = _link(child, parent, binding)
            least = 1 if not link.relation.bind else _LEAST_SEEN
            seen, of = link.relation.seen, link.relation.of
            # Several variables may agree with some parent by chance, which is improbable for a key of one variable.
            share = _SHARE if complete else 0 if len(binding) == 1 else _SHARE / 2
            if of and seen >= min(_LEAST_SEEN if complete else least, of) and seen >= share * of:
                found.append(link)
    return found


def _link(child: Group, parent: Group, binding: Mapping[str, str]) -> Link:
    variables = parent.entity.variables
    known = {tuple(row.variables[name] for name in variables): row for row in parent.rows}
    named = [(row, tuple(row.text(binding[name]) for name in variables)) for row in child.rows]
    complete = [(row, key) for row, key in named if None not in key]
    pairs = [(row, known[key]) for row, key in complete if key in known]  # type: ignore[index]
    relation = Relation(child.entity.name, parent.entity.name, dict(binding), len(pairs), len(complete))
    return Link(relation, child, parent, pairs)


def _bindings(child: Group, parent: Group) -> Iterator[dict[str, str]]:
    """Yield, for each variable of the parent's key, candidates of the child."""
    choices = []
    for variable in parent.entity.variables:
        values = {row.variables[variable] for row in parent.rows}
        names = list(_names(child, parent, variable, values))
        if not names:
            return
        choices.append(names[:_MOST_CHOICES])
    for names_ in product(*choices):
        if len(set(names_)) == len(names_):
            yield dict(zip(parent.entity.variables, names_, strict=True))


def _names(child: Group, parent: Group, variable: str, values: set[str]) -> Iterator[str]:
    """Yield the same name first, then similar names, or names like the parent's, with values of the parent's key."""
    own = child.entity.variables
    attributes = [one.name for one in child.entity.attributes if one.type in ("S", "N") and PATH.fullmatch(one.name)]
    if variable in own or (variable in attributes and variable.lower() != "id"):
        yield variable
    elif normal(variable) in ("id", "pk", "key"):
        variable = parent.entity.name + "Id"
    for name in dict.fromkeys([*own, *attributes]):
        if name != variable and _is_called(name, variable, parent, values):
            texts = {text for row in child.rows if (text := row.text(name)) is not None}
            if len(texts & values) >= min(2, len(texts)) and texts & values:
                yield name


def _is_called(name: str, variable: str, parent: Group, values: set[str]) -> bool:
    """Return whether a name may reference the parent. If its key has several variables, the names must match."""
    mine = words(name)
    if not mine:
        return False
    if normal(name).endswith((normal(variable), normal(parent.entity.name))):
        return True
    return len(parent.entity.variables) == 1 and mine[-1] in ("id", "by", "ref", "key") and not small_numbers(values)


def named_by(relation: Relation) -> str:
    """Return a suffix that distinguishes relations between the same entities: `ByAuthorId`."""
    return "".join("By" + pascal(name) for variable, name in relation.binding.items() if name != variable)


def related_twice(links: Sequence[Link]) -> set[tuple[str, str]]:
    """Return (child, parent) of entities with several relations."""
    counts = Counter((link.relation.child, link.relation.parent) for link in links)
    return {pair for pair, count in counts.items() if count > 1}


def rule_body(link: Link, kind: str, action: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule from the children of a relation into its parents."""
    body: dict[str, Any] = {"from": link.relation.child}
    if link.relation.bind:
        body["bind"] = link.relation.bind
    if link.child.entity.expires:
        body["expired"] = "retract"
    return {**body, kind: dict(action)}
