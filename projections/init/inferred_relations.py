"""Relations between items, and attributes that are stored twice: of a parent in its children, of an item in its copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from projections.init.contradictions import Case, Verdict, contradiction, identity, judge
from projections.init.proposal import Relation, Rule, Table
from projections.init.rows import Group, Row, group_by, lower_camel, normal, pascal, plural, small_numbers, words
from projections.language.syntax import PATH

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
    def children(self) -> list[list[Row]]:
        """The children's rows of each of the parent's rows."""
        children: dict[int, list[Row]] = {id(row): [] for row in self.parent.rows}
        for child, parent in self.pairs:
            children[id(parent)].append(child)
        return list(children.values())


def links(groups: Sequence[Group], complete: bool) -> list[Link]:
    """Return the relations that the sample confirms. In a complete sample, most children have their parent."""
    confirmed = []
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
                confirmed.append(link)
    return confirmed


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
    attributes = [
        each.name for each in child.entity.attributes if each.type in ("S", "N") and PATH.fullmatch(each.name)
    ]
    if variable in own or (variable in attributes and variable.lower() != "id"):
        yield variable
    elif normal(variable) in ("id", "pk", "key"):
        variable = parent.entity.name + "Id"
    for name in dict.fromkeys([*own, *attributes]):
        if name != variable and _may_reference(name, variable, parent, values):
            texts = {text for row in child.rows if (text := row.text(name)) is not None}
            if len(texts & values) >= min(2, len(texts)) and texts & values:
                yield name


def _may_reference(name: str, variable: str, parent: Group, values: set[str]) -> bool:
    """Return whether a name may reference the parent. If its key has several variables, the names must match."""
    parts = words(name)
    if not parts:
        return False
    if normal(name).endswith((normal(variable), normal(parent.entity.name))):
        return True
    return len(parent.entity.variables) == 1 and parts[-1] in ("id", "by", "ref", "key") and not small_numbers(values)


def name_suffix(relation: Relation) -> str:
    """Return a suffix that distinguishes relations between the same entities: `ByAuthorId`."""
    return "".join("By" + pascal(name) for variable, name in relation.binding.items() if name != variable)


def rule_body(link: Link, kind: str, action: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule from the children of a relation into its parents."""
    body: dict[str, Any] = {"from": link.relation.child}
    if link.relation.bind:
        body["bind"] = link.relation.bind
    if link.child.entity.expires:
        body["expired"] = "retract"
    return {**body, kind: dict(action)}


# Attributes that follow from related items

_LEAST = 3
_AGREE = 0.8
_BY_CHANCE = 0.05
_COPIED = 0.6


@dataclass(frozen=True)
class Candidate:
    """An attribute that may follow from related items: of a parent from its children (`aggregate`), or of a child from its
    parent (`embed`). `form` is its value as a rule has it. `certain`: no item contradicts it. `every` are the cases of all
    items that the rule would write to; `unseen` items have the attribute and could not be compared.
    """

    kind: str
    link: Link
    attribute: str
    form: str
    evidence: str
    certain: bool
    verdict: Verdict
    every: Sequence[Case]
    unseen: int

    @property
    def entity(self) -> str:
        """The entity that has the attribute."""
        return self.link.relation.parent if self.kind == "aggregate" else self.link.relation.child


def derived_rules(
    candidates: Iterable[Candidate], links: Sequence[Link], table: Table, taken: set[tuple[str, str]]
) -> Iterator[Rule]:
    """Yield a rule for the certain attributes of each relation, and one as a comment for each other attribute.

    An attribute has the first certain candidate, or that with the largest share. `taken` are the (entity, attribute) that
    other rules write.
    """
    counts = Counter((link.relation.child, link.relation.parent) for link in links)
    best: dict[tuple[str, str], Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: -2 if candidate.certain else -candidate.verdict.share):
        if (candidate.entity, candidate.attribute) not in taken:
            best.setdefault((candidate.entity, candidate.attribute), candidate)
    together = group_by(best.values(), lambda each: (id(each.link), each.kind, each.certain or each.attribute))
    for same in together.values():
        first, relation = same[0], same[0].link.relation
        values = {candidate.attribute: candidate.form for candidate in same}
        by = name_suffix(relation) if counts[relation.child, relation.parent] > 1 else ""
        if first.kind == "aggregate":
            name = f"{lower_camel(plural(relation.child))}Of{relation.parent}{by}"
            body = rule_body(first.link, "aggregate", {"into": relation.parent, "set": values})
        else:
            name = f"{lower_camel(relation.parent)}In{relation.child}{by}"
            match = {attribute: "{" + variable + "}" for variable, attribute in relation.binding.items()}
            body = {"from": relation.parent, "embed": {"into": relation.child, "match": match, "attributes": values}}
        rule = Rule(name, body, "; ".join(candidate.evidence for candidate in same))
        if not first.certain:
            evidence = contradiction(
                first.verdict, first.every, first.entity, first.attribute, table, unseen=first.unseen
            )
            rule = replace(rule, doubt=evidence.doubt, contradiction=evidence)
        yield rule


def embed_candidates(links: Sequence[Link], table: Table, complete: bool) -> Iterator[Candidate]:
    """Yield the attributes of children that may repeat an attribute of their parent."""
    ordered = sorted(links, key=lambda link: -link.relation.seen)
    pairs = [(link, own, theirs) for link in ordered for own, theirs in _similar_attributes(link, table)]
    for link, own, theirs in pairs:
        every = [Case(child, child.item.get(own), parent.item.get(theirs)) for child, parent in link.pairs]
        cases = [case for case in every if None not in (case.stored, case.computed)]
        alone, verdict = judge(cases, 1), judge(cases, len(pairs))
        certain = alone.all_right and alone.by_chance <= _BY_CHANCE
        if certain or verdict.accepted:
            with_it = sum(own in row.item for row in link.child.rows)
            orphans = 0 if complete else with_it - sum(own in row.item for row, _ in link.pairs)
            of = f"{verdict.right} of {len(cases)} {link.relation.child} items"
            evidence = f"{own} is the {theirs} of its {link.relation.parent} in {of}"
            yield Candidate("embed", link, own, theirs, evidence, certain, verdict, every, orphans)


def _similar_attributes(link: Link, table: Table) -> Iterator[tuple[str, str]]:
    """Yield (child's attribute, parent's attribute) of one type where the names allow a repetition."""
    never = _structural(link.child, table) | set(link.relation.binding.values())
    keys = set(link.parent.entity.variables) | _structural(link.parent, table)
    for own in link.child.entity.attributes:
        if own.name in never or own.type not in ("S", "N", "BOOL"):
            continue
        for theirs in link.parent.entity.attributes:
            if theirs.name not in keys and theirs.type == own.type and _repeats(own.name, theirs.name):
                yield own.name, theirs.name


def _repeats(own: str, theirs: str) -> bool:
    """Return whether a name may repeat another one: `name` as `name`, `userName` or `author_name`."""
    return normal(own).endswith(normal(theirs)) and normal(theirs) != ""


def _structural(group: Group, table: Table) -> set[str]:
    """Return the attributes that identify an item or its kind."""
    own = {group.entity.kind[0]} if group.entity.kind else set()
    unusable = {each.name for each in group.entity.attributes if not PATH.fullmatch(each.name) or "." in each.name}
    return own | unusable | set(table.key_names) | set(table.index_names)


# Copies


def copy_rules(links: Sequence[Link], table: Table) -> list[tuple[Link, Rule]]:
    """Return a rule for each pair of entities whose items have the same attributes under different keys."""
    rules: list[tuple[Link, Rule]] = []
    targets: set[str] = set()
    for link in sorted(links, key=lambda link: -link.relation.seen):
        # The source is the child here: its values form the key of the target.
        source, target = link.child, link.parent
        if target.entity.name in targets or not _one_to_one(link):
            continue
        shared, of, differing = _shared_attributes(link, table)
        own = [attribute for attribute in target.entity.attributes if attribute.name not in _structural(target, table)]
        smaller = len(target.entity.attributes) <= len(source.entity.attributes)
        if not smaller or len(shared) < 2 or len(shared) < _COPIED * len(own):
            continue
        targets.add(target.entity.name)
        body = rule_body(link, "copy", {"into": target.entity.name, "attributes": shared})
        evidence = (
            f"{of} of {len(target.rows)} {target.entity.name} items belong to one {source.entity.name} each "
            f"and repeat {len(shared)} of their {len(own)} attributes"
        )
        if differing:
            evidence += f"; they differ in {', '.join(f'{name} of {count}' for name, count in differing.items())}"
        why = (
            f"a copy rule creates and deletes its items: when it is published, `apply --allow-delete` would delete each "
            f"{target.entity.name} without its {source.entity.name}, and only this rule may write these attributes"
        )
        name = f"{lower_camel(source.entity.name)}As{target.entity.name}"
        rules.append((link, Rule(name, body, evidence, why)))
    return rules


def _one_to_one(link: Link) -> bool:
    parents = [id(parent) for _, parent in link.pairs]
    share = len(link.pairs) >= _AGREE * min(len(link.child.rows), len(link.parent.rows))
    return len(parents) >= _LEAST and len(set(parents)) == len(parents) and share


def _shared_attributes(link: Link, table: Table) -> tuple[list[str], int, dict[str, int]]:
    """Return the names of shared attributes, the number of pairs, and in how many pairs an attribute differs."""
    never = _structural(link.parent, table) | _structural(link.child, table)
    names = {each.name for each in link.child.entity.attributes} & {each.name for each in link.parent.entity.attributes}
    repeated = []
    differing: dict[str, int] = {}
    for name in sorted(names - never):
        values = [(a.item[name], b.item[name]) for a, b in link.pairs if name in a.item and name in b.item]
        equal = sum(identity(source_value) == identity(target_value) for source_value, target_value in values)
        if len(values) >= _LEAST and equal >= _AGREE * len(values):
            repeated.append(name)
            differing |= {name: len(values) - equal} if equal < len(values) else {}
    return repeated, len(link.pairs), differing
