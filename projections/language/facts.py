"""Facts about rules together: who creates, reads and writes what; writers, cycles and chains; keys and conditions in words.

A fact about one rule is a property of its action (`kinds`), and the engine asks the compiled rules (`rules`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from projections.language.forms import Constant
from projections.language.kinds import EVERY as EVERY
from projections.language.kinds import AnyProjection, AnyRules, once, value_words
from projections.language.patterns import Pattern, describe
from projections.language.spelling import template_text
from projections.language.syntax import Location, Mistake, join_names, root, steps
from projections.language.templates import Template

# --- who creates and writes what ---


@once
def copies(rules: AnyRules) -> Mapping[str, str]:
    """Return the entities whose items copy rules create, each with the rule."""
    return {rule.into: name for name, rule in rules.projections.items() if rule.action.makes_items}


def creates(rules: AnyRules, rule: AnyProjection) -> bool:
    """Return whether a rule's writes create its target item, and delete it when nothing contributes any more."""
    if rule.action.makes_items:
        return True
    publishes = rule.action.recorded and rule.action.writes_items
    return publishes and rules.entities[rule.into].derived and rule.into not in copies(rules)


def creators(rules: AnyRules) -> dict[str, str]:
    """Return the entities that exist only because of rules, with the first rule that creates their items."""
    found: dict[str, str] = {}
    for name, rule in rules.projections.items():
        if creates(rules, rule):
            found.setdefault(rule.into, name)
    return found


def indexes_fed(rules: AnyRules, rule: AnyProjection) -> tuple[str, ...]:
    """Return the indexes whose key attributes a rule writes on its source items."""
    indexes = rules.table_of(rule.source).indexes if rule.action.makes_index_keys else {}
    return tuple(name for name, keys in indexes.items() if not keys.names.isdisjoint(rule.action.written))


def inputs(rules: AnyRules) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return for each rule the others that write, or create, what it reads, in the order of the file.

    Each has the attributes that it writes and the rule reads, none if it only creates the items.
    """
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, rule in rules.projections.items():
        read = set(reads(rules, rule))
        found[name] = {}
        for other, writer in rules.projections.items():
            everything = (writer.into, EVERY) in read
            attributes = tuple(one for one in writer.action.written if everything or (writer.into, one) in read)
            created = writer.into in rule.sources and creates(rules, writer)
            if other != name and (attributes or created):
                found[name][other] = attributes
    return found


def paths_read(rules: AnyRules, rule: AnyProjection) -> set[str]:
    """Return the names that a rule with one source reads of its items; with `EVERY` if it copies all attributes."""
    names = {name for part in rule.parts() for name in part.value.names}
    if rule.each is not None:
        names.add(rule.each.path)
    if rule.action.makes_key:
        names.update(set(rules.entities[rule.into].variables) - rule.bind.keys())
    if rule.action.copies_all:
        names.add(EVERY)
    return names


def reads(rules: AnyRules, rule: AnyProjection) -> Iterator[tuple[str, str]]:
    """Yield the entity and the name of each attribute that a rule reads on items; `EVERY` if it copies all."""
    for one in rule.variants:
        source = rules.entities[one.source]
        for name in {*source.conditions.names, *paths_read(rules, one)}.difference(source.variables):
            if one.each is None or root(name) != one.each.variable:
                yield one.source, root(name)
    for name in {*rule.action.matched}.difference(rules.entities[rule.into].variables):
        yield rule.into, root(name)


class Origin(NamedTuple):
    """The rule that writes an attribute, and how it makes the value, in the words of the rule file."""

    rule: str
    how: str


def origins(rules: AnyRules) -> dict[str, dict[str, Origin]]:
    """Return for each entity its derived attributes, with their origins."""
    found: dict[str, dict[str, Origin]] = {name: {} for name in rules.entities}
    for name, rule in rules.projections.items():
        for attribute, how in rule.action.origins(rule.sources):
            found[rule.into].setdefault(attribute, Origin(name, how))
        if creates(rules, rule):
            for attribute, value in rules.entities[rule.into].conditions.constants.items():
                if len(steps(attribute)) == 1:
                    found[rule.into].setdefault(root(attribute), Origin(name, value_words(Constant(value))))
    return found


# --- keys ---


def entity_key(rules: AnyRules, entity: str) -> str:
    """Return the key of an entity's items, such as `USER#{userId} · PROFILE`."""
    return " · ".join(map(template_text, rules.entities[entity].key.values()))


def key_text(rules: AnyRules, rule: AnyProjection) -> str:
    """Return the key of a rule's target as templates over its source, such as `POST#{postId} · METADATA`."""
    texts = [" · ".join(resolved_key(rules, one).values()) for one in rule.variants]
    return " or ".join(dict.fromkeys(texts))


def resolved_key(rules: AnyRules, rule: AnyProjection) -> dict[str, str]:
    """Return the key of a rule's target, attribute by attribute, as templates over its source.

    Templates that differ between its sources are joined by "or".
    """
    found: dict[str, str] = {}
    for attribute, template in rules.entities[rule.into].key.items():
        texts = [_bound(template, one.bind) for one in rule.variants]
        found[attribute] = " or ".join(dict.fromkeys(texts))
    return found


def _bound(template: Template, bind: Mapping[str, Template]) -> str:
    return "".join(
        part if isinstance(part, str) else template_text(bind[part.name]) if part.name in bind else str(part)
        for part in template.parts
    )


# --- in words ---


def conditions(pattern: Pattern | None) -> str | None:
    """Return a pattern in words, such as `hidden is false or hidden is absent`; None if there is no pattern."""
    return describe(pattern) if pattern is not None else None


def where_text(rule: AnyProjection) -> str | None:
    """Return the condition of a rule in words; those that differ between its sources each with the source."""
    texts = {one.source: conditions(one.where) for one in rule.variants}
    if len({*texts.values()}) == 1:
        return texts[rule.source]
    return "; ".join(f"{source}: {text or 'all items'}" for source, text in texts.items())


Node: TypeAlias = tuple[str, str]
"""(entity, attribute)."""

EXISTS = "(exists)"
"""Stands for the item itself."""
RANK = "(rank)"
"""Stands for the groups of a rank rule, which are in the ledger and on no item."""
REST = "(all else)"
"""Stands for all attributes that no rule names, where a copy has all."""


def ownership_mistakes(rules: AnyRules) -> Iterator[Mistake]:
    """Yield attributes with two writers, and entities with two copy rules: one mistake for each pair of writers."""
    owners: dict[Node, Location] = {}
    copies: dict[str, str] = {}
    for name, entity in rules.entities.items():
        owners.update({(name, attribute): ("entities", name) for attribute in entity.index_key})
    for name, rule in rules.projections.items():
        place: Location = ("projections", name)
        shared: dict[Location, list[str]] = {}
        for attribute in rule.action.written:
            owner = owners.setdefault((rule.into, attribute), place)
            if owner != place:
                shared.setdefault(owner, []).append(attribute)
        if rule.action.makes_items and copies.setdefault(rule.into, name) != name:
            other = copies[rule.into]
            message = f"{rule.into} is already created by rule {other}: an entity can have only one copy rule"
            yield Mistake((*place, "copy", "into"), message, others=(("projections", other),))
            shared.pop(("projections", other), None)
        for owner, attributes in shared.items():
            section, owning = owner
            writer = f"rule {owning}" if section == "projections" else f"the application (`index_key` of {owning})"
            names = [f"{rule.into}.{attribute}" for attribute in attributes]
            listed = f"{join_names(names)} {'is' if len(names) == 1 else 'are'}"
            message = f"{listed} already written by {writer}: an attribute can have only one writer"
            inner = rule.action.written[attributes[0]]
            yield Mistake((*place, *inner), message, at_key=True, others=(owner,))


# --- cycles ---


def cycle_mistakes(rules: AnyRules) -> Iterator[Mistake]:
    """Yield attributes that depend on themselves and would change forever: one mistake for each group of rules."""
    edges: dict[Node, dict[Node, str]] = {}  # to what is computed from a node, by which rule
    for name, pairs in _all_flows(rules).items():
        for read, write in pairs:
            edges.setdefault(read, {}).setdefault(write, name)
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
        advice = rules.projections[first].action.advice_on_cycle(start[1]) if len(steps) == 1 else ""
        yield Mistake(("projections", first), f"circular dependency: {way}{advice}", at_key=True, others=others)


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


def chains(rules: AnyRules) -> dict[str, tuple[str, ...]]:
    """Return for each rule the longest chain of rules that ends with it: each writes what the next one reads.

    Its length is the number of passes through the stream that the effect takes. The rules must be free of cycles.
    """
    ways = attribute_chains(rules)
    return {
        name: max((_longer(rules, ways.get(read, ()), name) for read, _ in pairs), key=len, default=(name,))
        for name, pairs in _all_flows(rules).items()
    }


def attribute_chains(rules: AnyRules) -> dict[Node, tuple[str, ...]]:
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


def _longer(rules: AnyRules, way: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return a chain with one more rule. Rules that write on their source items themselves do so in one write."""
    rule, last = rules.projections[name], rules.projections[way[-1]] if way else None
    together = last is not None and last.action.on_source and rule.action.on_source and last.source == rule.source
    return (*way[:-1], name) if together else (*way, name)


def _all_flows(rules: AnyRules) -> dict[str, list[tuple[Node, Node]]]:
    """Return for each rule pairs of what it reads and computes from it; a copy of all attributes has one for each."""
    flows: dict[str, list[tuple[Node, Node]]] = {name: [] for name in rules.projections}
    lasting = _lasting_variables(rules)
    for name, variant in rules.variants():
        flows[name] += _flows(rules, variant, lasting)
    known = {attribute for pairs in flows.values() for pair in pairs for _, attribute in pair} - {EXISTS}
    owned = {(rule.into, attribute) for rule in rules.projections.values() for attribute in rule.action.written}
    for name, rule in rules.projections.items():
        if rule.action.copies_all:
            free = [attribute for attribute in (*sorted(known), REST) if (rule.into, attribute) not in owned]
            flows[name] += [((rule.source, attribute), (rule.into, attribute)) for attribute in free]
    return flows


def _flows(rules: AnyRules, rule: AnyProjection, lasting: Mapping[str, set[str]]) -> Iterator[tuple[Node, Node]]:
    """Yield pairs of what a rule with one source reads and computes from it, as far as the rule names them."""
    action = rule.action
    written = tuple(action.written) if action.writes_items else (RANK,)
    always = {EXISTS, *_common(rules, rule) - lasting[rule.source]}
    own: dict[str, set[str]] = {attribute: set() for attribute in written}
    for part in rule.parts():
        for attribute in part.attributes:
            own[attribute] |= {*part.value.names}
        if part.decides:
            always |= {*part.value.names}
    for attribute in (*written, *([EXISTS] if creates(rules, rule) else [])):
        for name in sorted(always | own.get(attribute, set())):
            begin = root(name)
            if rule.each is None or begin != rule.each.variable:
                yield (rule.source, begin), (rule.into, attribute)
    references = {root(name) for name in action.matched} - lasting[rule.into]
    for attribute in written:  # another reference leads to another parent
        for name in sorted(references):
            yield (rule.into, name), (rule.into, attribute)


def _common(rules: AnyRules, rule: AnyProjection) -> set[str]:
    """Return the attributes that all results of a rule depend on."""
    source = rules.entities[rule.source]
    names = {name for part in rule.parts() if not part.attributes for name in part.value.names}
    names |= {*source.conditions.names}
    if rule.each is not None:
        names.add(rule.each.path)
    if rule.action.makes_key:
        names |= {*rules.entities[rule.into].variables} - rule.bind.keys()
    return names


def _lasting_variables(rules: AnyRules) -> dict[str, set[str]]:
    """Return by entity its key variables, without those that an attribute which a rule writes may contradict: an item on
    which both differ is bad input.
    """
    lasting = {name: {*entity.variables} for name, entity in rules.entities.items()}
    for _, variant in rules.variants():
        lasting[variant.into] -= {name for name in lasting[variant.into] if _contradicts(variant, name)}
    return lasting


def _contradicts(rule: AnyProjection, variable: str) -> bool:
    """Return whether a rule with one source may write another value than that of its target's key variable of this name."""
    action = rule.action
    if variable not in action.written and not action.copies_all:
        return False
    template = (rule.bind if action.makes_key else action.matched).get(variable)
    bound = variable if action.makes_key and template is None else None
    if template is not None and template.single is not None and template.fields[0].plain:
        bound = template.single
    carried = action.carried.get(variable)
    path = variable if variable not in action.written else carried.path if carried is not None else None
    return path is None or path != bound
