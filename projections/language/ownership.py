"""Writers of attributes: each attribute of each entity has one writer, and no attribute depends on itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from projections.language.arithmetic import Expression
from projections.language.attribute_sources import attribute_source
from projections.language.document import Rules, each_variable
from projections.language.measures import Measure
from projections.language.mistakes import Location, Mistake
from projections.language.models import Copy, Projection
from projections.language.patterns import Pattern
from projections.language.shapes import attribute_map, cases, computed_names, each_parts, source_names
from projections.language.syntax import root
from projections.language.templates import Template

Node: TypeAlias = tuple[str, str]
"""(entity, attribute)."""

EXISTS = "(exists)"
"""Stands for the item itself."""
RANK = "(rank)"
"""Stands for the groups of a rank rule, which are in the ledger and on no item."""
REST = "(all else)"
"""Stands for all attributes that no rule names, where a copy has all."""


def written(rule: Projection) -> dict[str, Location]:
    """Return the attributes that a rule names and writes, each with its place in the rule."""
    if rule.copy_ is not None:
        copied = {} if rule.copy_.attributes == "all" else rule.copy_.attributes
        found = _listed(copied, ("copy", "attributes"))
        return found | {name: ("copy", "values", name) for name in rule.copy_.values}
    if rule.aggregate is not None:
        return {name: ("aggregate", "set", name) for name in rule.aggregate.set}
    if rule.top is not None:
        return {rule.top.as_: ("top", "as")}
    if rule.index is not None:
        keys = [(name, ("index", *place, name)) for place, _, templates in cases(rule.index) for name in templates]
        return dict(reversed(keys))  # the first place of each
    if rule.compute is not None:
        return {name: ("compute", "set", name) for name in rule.compute.set}
    if rule.embed is not None and rule.embed.as_ is not None:
        return {rule.embed.as_: ("embed", "as")}
    action = rule.latest or rule.embed
    return _listed(action.attributes, (rule.kind, "attributes")) if action is not None else {}


def _listed(form: list[str] | dict[str, str] | str, place: Location) -> dict[str, Location]:
    if isinstance(form, dict):
        return {name: (*place, name) for name in form}
    return {root(name): (*place, index) for index, name in enumerate(form)}


def ownership_mistakes(rules: Rules) -> Iterator[Mistake]:
    """Yield attributes with two writers, and entities with two copy rules: one mistake for each pair of writers."""
    owners: dict[Node, Location] = {}
    copies: dict[str, str] = {}
    for name, entity in rules.entities.items():
        owners.update({(name, attribute): ("entities", name) for attribute in entity.index_key})
    for name, rule in rules.projections.items():
        place: Location = ("projections", name)
        shared: dict[Location, list[str]] = {}
        for attribute in written(rule):
            owner = owners.setdefault((rule.into, attribute), place)
            if owner != place:
                shared.setdefault(owner, []).append(attribute)
        if rule.copy_ is not None and copies.setdefault(rule.into, name) != name:
            other = copies[rule.into]
            message = f"{rule.into} is already created by rule {other}: an entity can have only one copy rule"
            yield Mistake((*place, "copy", "into"), message, others=(("projections", other),))
            shared.pop(("projections", other), None)
        for owner, attributes in shared.items():
            yield _two_writers(rule, (*place, *written(rule)[attributes[0]]), owner, attributes)


def _two_writers(rule: Projection, place: Location, owner: Location, attributes: list[str]) -> Mistake:
    section, name = owner
    writer = f"rule {name}" if section == "projections" else f"the application (`index_key` of {name})"
    names = [f"{rule.into}.{attribute}" for attribute in attributes]
    listed = f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are"
    message = f"{listed} already written by {writer}: an attribute can have only one writer"
    return Mistake(place, message, at_key=True, others=(owner,))


# --- cycles ---


def cycle_mistakes(rules: Rules) -> Iterator[Mistake]:
    """Yield attributes that depend on themselves and would change forever: one mistake for each group of rules."""
    edges = _edges(rules)
    reported: set[str] = set()
    for start in edges:
        steps = _way_back(edges, start)
        names = [rule for _, rule in steps]
        if not steps or reported.intersection(names):
            continue
        reported.update(names)
        way = " → ".join([_shown(start), *(f"{_shown(node)} (rule {rule})" for node, rule in steps)])
        first = next(name for name in rules.projections if name in names)
        others = tuple(("projections", name) for name in names)
        advice = _repeated(rules.projections[first].index, start[1]) if len(steps) == 1 else ""
        yield Mistake(("projections", first), f"circular dependency: {way}{advice}", at_key=True, others=others)


def _repeated(index: object, attribute: str) -> str:
    """Return the way out for an index rule that sets an attribute to its own value; empty for others."""
    if not isinstance(index, dict) or index.get(attribute) != f"{{{attribute}}}":
        return ""
    return f". Omit `{attribute}` from the rule: items have it already, so it is a key of the index without a rule"


def _way_back(edges: dict[Node, dict[Node, str]], start: Node) -> list[tuple[Node, str]]:
    """Return the shortest path from a node to itself as (node, rule that leads to it); empty if there is none."""
    ways: dict[Node, list[tuple[Node, str]]] = {}
    queue: list[tuple[Node, list[tuple[Node, str]]]] = [(start, [])]
    for node, way in queue:
        for following, rule in edges.get(node, {}).items():
            if following == start:
                return [*way, (following, rule)]
            if following not in ways:
                ways[following] = [*way, (following, rule)]
                queue.append((following, ways[following]))
    return []


def _shown(node: Node) -> str:
    entity, attribute = node
    return f"{entity}{attribute if attribute.startswith('(') else '.' + attribute}"


def _edges(rules: Rules) -> dict[Node, dict[Node, str]]:
    """Return for each (entity, attribute) those that are computed from it, each with its rule."""
    edges: dict[Node, dict[Node, str]] = {}
    for name, pairs in _all_flows(rules).items():
        for read, write in pairs:
            edges.setdefault(read, {}).setdefault(write, name)
    return edges


def chains(rules: Rules) -> dict[str, tuple[str, ...]]:
    """Return for each rule the longest chain of rules that ends with it: each writes what the next one reads.

    Its length is the number of passes through the stream that the effect takes. The rules must be free of cycles.
    """
    ways = attribute_chains(rules)
    return {
        name: max((_longer(rules, ways.get(read, ()), name) for read, _ in pairs), key=len, default=(name,))
        for name, pairs in _all_flows(rules).items()
    }


def attribute_chains(rules: Rules) -> dict[Node, tuple[str, ...]]:
    """Return for each attribute that depends on others the longest chain of rules that ends with it, as `chains` does."""
    into: dict[Node, list[tuple[Node, str]]] = {}
    for name, pairs in _all_flows(rules).items():
        for read, write in pairs:
            into.setdefault(write, []).append((read, name))
    known: dict[Node, tuple[str, ...]] = {}

    def way_to(node: Node) -> tuple[str, ...]:
        if node not in known:
            ways = (_longer(rules, way_to(read), name) for read, name in into.get(node, ()))
            known[node] = max(ways, key=len, default=())
        return known[node]

    return {node: way_to(node) for node in into}


def _longer(rules: Rules, way: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return a chain with one more rule. Rules that write on their source items themselves do so in one write."""
    rule, last = rules.projections[name], rules.projections[way[-1]] if way else None
    together = last is not None and last.on_source and rule.on_source and last.source == rule.source
    return (*way[:-1], name) if together else (*way, name)


def _all_flows(rules: Rules) -> dict[str, list[tuple[Node, Node]]]:
    """Return for each rule pairs of what it reads and computes from it; a copy of all attributes has one for each."""
    flows: dict[str, list[tuple[Node, Node]]] = {name: [] for name in rules.projections}
    for name, variant in rules.variants():
        flows[name] += _flows(rules, variant)
    known = {attribute for pairs in flows.values() for pair in pairs for _, attribute in pair} - {EXISTS}
    owned = {(rule.into, attribute) for rule in rules.projections.values() for attribute in written(rule)}
    for name, rule in rules.projections.items():
        if isinstance(rule.copy_, Copy) and rule.copy_.attributes == "all":
            free = [attribute for attribute in (*sorted(known), REST) if (rule.into, attribute) not in owned]
            flows[name] += [((rule.source, attribute), (rule.into, attribute)) for attribute in free]
    return flows


def _flows(rules: Rules, rule: Projection) -> Iterator[tuple[Node, Node]]:
    """Yield pairs of what a rule reads and computes from it, as far as the rule names them."""
    variable = each_variable(rule)
    always = {EXISTS, *_common(rules, rule)}
    creates = rule.copy_ is not None or (
        rule.kind not in ("embed", "rank") and not rule.on_source and rules.entities[rule.into].derived
    )
    computed = _computed(rule)
    if rule.aggregate is not None or rule.index is not None:
        # bad input for one measure, or a missing value for one template, affects everything that the rule writes
        always |= set[str]().union(*computed.values())
    elif rule.copy_ is not None:
        always |= set[str]().union(*(computed[name] for name in rule.copy_.values))
    for attribute, names in [*computed.items(), *([(EXISTS, set())] if creates else [])]:
        for name in sorted(always | names):
            begin = root(name)
            if begin != variable:
                yield (rule.source, begin), (rule.into, attribute)
    if rule.embed is not None:  # another reference leads to another parent
        references = {root(name) for name in rule.embed.match} - _templates(rules.entities[rule.into].key.values())
        for attribute in computed:
            for name in sorted(references):
                yield (rule.into, name), (rule.into, attribute)


def _common(rules: Rules, rule: Projection) -> set[str]:
    """Yield the attributes that all results of a rule depend on."""
    source = rules.entities[rule.source]
    names = _patterns([source.match, rule.where]) | _templates(rule.bind.values())
    if rule.each is not None:
        _, form, _ = each_parts(rule.each)
        names.add(form["ancestors"] if isinstance(form, dict) else form)
    if rule.embed is not None:
        names |= _templates(rule.embed.match.values())
    for template in rules.entities[rule.into].key.values() if not rule.on_source else ():
        names |= set(Template.parse(template).names) - set(rule.bind)
    return names - set(_key_names(rules, rule))


def _key_names(rules: Rules, rule: Projection) -> set[str]:
    return _templates(rules.entities[rule.source].key.values())


def _computed(rule: Projection) -> dict[str, set[str]]:
    """Yield each attribute that a rule names and writes, with the source attributes that only it depends on."""
    if rule.copy_ is not None:
        copied = {} if rule.copy_.attributes == "all" else attribute_map(rule.copy_.attributes)
        found = {target: _names_of(source) for target, source in copied.items()}
        values = {name: {value} for name, value in rule.copy_.values.items() if isinstance(value, str)}
        return found | {name: _templates(values.get(name, ())) for name in rule.copy_.values}
    if rule.aggregate is not None:
        return {name: set(Measure.parse(name, form).names) for name, form in rule.aggregate.set.items()}
    if rule.rank is not None:
        return {RANK: set(Expression.parse(rule.rank.by).names)}
    if rule.top is not None:
        return {rule.top.as_: {rule.top.by, *source_names(rule.top.attributes)}}
    if rule.latest is not None:
        return {
            name: {rule.latest.by, *_names_of(text)} for name, text in attribute_map(rule.latest.attributes).items()
        }
    if rule.embed is not None and rule.embed.as_ is not None:
        return {rule.embed.as_: source_names(rule.embed.attributes)}
    if rule.embed is not None:
        return {target: _names_of(source) for target, source in attribute_map(rule.embed.attributes).items()}
    if rule.compute is not None:
        return {name: computed_names(form) for name, form in rule.compute.set.items()}
    every = cases(rule.index)
    wheres = _patterns([where for _, where, _ in every])
    return {
        name: wheres | _templates(templates[name] for _, _, templates in every if name in templates)
        for _, _, case in every
        for name in case
    }


def _names_of(source: str) -> set[str]:
    return set(attribute_source(source).names)


def _templates(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in Template.parse(text).names}


def _patterns(documents: Iterable[dict[str, object] | None]) -> set[str]:
    return {name for document in documents if document is not None for name in Pattern.parse(document).names}
