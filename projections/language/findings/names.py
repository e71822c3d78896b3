"""Unknown names: attributes that an item made by rules cannot have, guards, and names that are spelt in two ways."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import chain

from projections.language.facts import Node, copies
from projections.language.findings.kinds import NEVER_RECOGNISED, OTHER_SPELLING, READS_GUARD, UNKNOWN_ATTRIBUTE, Remark
from projections.language.findings.reads import Read, reads
from projections.language.findings.rule_facts import Facts
from projections.language.patterns.tree import Condition, Either, Exists
from projections.language.syntax import root, steps, suggest


def names(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about names that rules read and write."""
    yield from _never_recognised(facts)
    found = list(reads(facts.rules))
    unknown = [read for read in found if _is_unknown(facts, read)]
    of_others = {(read.place, read.root) for read in found if read not in unknown}
    unknown = [read for read in unknown if not read.optional or (read.place, read.root) not in of_others]
    for read in _once(unknown):
        yield _unknown(facts, read)
    for read in _once([read for read in found if read.root.startswith(facts.rules.guard_prefix)]):
        yield _guard(facts, read)
    known = [read for read in found if read not in unknown]
    yield from _other_case(facts, known)
    yield from _slips(facts, known)


def known_attributes(facts: Facts, entity: str) -> frozenset[str] | None:
    """Return all attributes that items of an entity can have; None if the application writes them or all are copied."""
    if not facts.made_by_rules(entity) or (written := _written_by_rules(facts, entity)) is None:
        return None
    form = facts.rules.entities[entity]
    return written.union(facts.table(entity).attribute_types, form.index_key, map(root, form.conditions.constants))


def _written_by_rules(facts: Facts, entity: str) -> frozenset[str] | None:
    actions = [rule.action for _, rule in facts.into(entity)]
    written = frozenset(name for action in actions for name in action.written)
    return None if any(action.copies_all for action in actions) else written


def _is_unknown(facts: Facts, read: Read) -> bool:
    known = known_attributes(facts, read.entity)
    if known is None or read.root in known or read.name in facts.variables(read.entity):
        return False
    return not read.root.startswith(facts.rules.guard_prefix)


def _guard(facts: Facts, read: Read) -> Remark:
    rule, prefix = read.root.removeprefix(facts.rules.guard_prefix), facts.rules.guard_prefix
    names_of_guards = f"names that begin with {prefix} are those of guards"
    reason = f"{read.root} is the guard of rule {rule}" if rule in facts.projections else names_of_guards
    reason += ": a guard changes at every write of its rule, also if the values stay the same"
    todo = "read an attribute that the rule sets, or change `guard_prefix`"
    return Remark(READS_GUARD, read.place, reason, todo, read.offset, read.at_key)


def _unknown(facts: Facts, read: Read) -> Remark:
    entity, copy = read.entity, copies(facts.rules).get(read.entity)
    near = suggest(read.root, [*sorted(_written_by_rules(facts, entity) or ()), *facts.variables(entity)])
    ways = [f"correct the name{near}"] if near else []
    ways.append(
        f"add it to the attributes that {copy} copies" if copy is not None else "let a rule write it, or remove it"
    )
    reason = f"{entity} items have no attribute {read.root}: only rules write them, and no rule writes {read.root}"
    if read.place[-1] == "into":
        into = facts.projections[read.rule].into
        reason = f"the key of {into} needs {{{read.root}}}, and {reason}"
        ways.insert(0, f'set it with bind: {{{read.root}: "…"}}')
    return Remark(UNKNOWN_ATTRIBUTE, read.place, reason, ", or ".join(ways), read.offset, read.at_key)


def _once(found: list[Read]) -> Collection[Read]:
    """Return the first of several reads of one name by one rule."""
    firsts: dict[tuple[str, str, str], Read] = {}
    for read in found:
        firsts.setdefault((read.rule, read.entity, read.root), read)
    return firsts.values()


def _never_recognised(facts: Facts) -> Iterator[Remark]:
    """Yield a remark for each `match` that requires an attribute that nothing writes on items that rules create."""
    for name, entity in facts.rules.entities.items():
        written_here = _written_by_rules(facts, name)
        if not facts.made_by_rules(name) or entity.match is None or written_here is None:
            continue
        constants = {path for path in entity.match.constants if len(steps(path)) == 1}  # rules set no part of a map
        for condition in entity.match.conditions:
            lacking = _lacking(condition, {*constants, *facts.variables(name)}, written_here)
            if lacking:
                yield Remark(
                    NEVER_RECOGNISED,
                    ("entities", name, "match", "$or" if isinstance(condition, Either) else condition.name),
                    f"only rules write {name} items, and no rule writes {' or '.join(dict.fromkeys(lacking))}, so items "
                    f"that rules create do not match {name}",
                    f"{'give it' if lacking == [root(lacking[0])] else 'match an attribute with'} a single value, so that "
                    "rules set it on the items that they create, or remove it",
                    at_key=True,
                )


def _lacking(condition: Condition, known: Collection[str], written: Collection[str]) -> list[str]:
    """Return the names that nothing writes and that a condition requires: if it has branches, each of them."""
    if isinstance(condition, Either):
        branches = [
            [name for each in branch for name in _lacking(each, known, written)] for branch in condition.branches
        ]
        return list(chain.from_iterable(branches)) if all(branches) else []
    absent = Exists(False) in condition.alternatives
    return [] if absent or condition.name in known or root(condition.name) in written else [condition.name]


# --- spelling ---


def _other_case(facts: Facts, found: list[Read]) -> Iterator[Remark]:
    """Yield remarks for names that differ from another name of the same item only in case."""
    attributes: dict[tuple[str, str], dict[str, str]] = {}
    for name, rule in facts.projections.items():
        for attribute in rule.action.written:
            spellings = attributes.setdefault((rule.into, attribute.lower()), {})
            spellings.setdefault(attribute, f"which rule {name} writes")
    seen: set[tuple[str, str]] = set()
    for read in found:
        spellings = attributes.setdefault((read.entity, read.root.lower()), {})
        bound = read.place[-1] == "into"
        near = {**_bindable(facts, read), **spellings} if bound else spellings
        others = [other for other in near if other != read.root]
        if read.root not in near and others and (read.entity, read.root) not in seen:
            seen.add((read.entity, read.root))
            yield _misspelt(read, others[0], near[others[0]], bound)
        if read.name not in facts.variables(read.entity):
            spellings.setdefault(read.root, f"which rule {read.rule} reads")


def _bindable(facts: Facts, read: Read) -> dict[str, str]:
    """Return the names that bind a variable of the target's key before attributes do."""
    each = next(rule.each for name, rule in facts.variants if (name, rule.source) == (read.rule, read.entity))
    found = dict.fromkeys(facts.variables(read.entity), f"a variable of the key of {read.entity}")
    if each is not None:
        found[each.variable] = "the variable of `each`"
    return {name: what for name, what in found.items() if name.lower() == read.root.lower()}


def _misspelt(read: Read, other: str, what: str, bound: bool) -> Remark:
    if bound:
        reason = (
            f"{{{read.root}}} is the attribute {read.root} of {read.entity}, which differs in case from {other}, {what}"
        )
        instead = f'if that is the right value, write bind: {{{read.root}: "{{{other}}}"}}'
    else:
        reason = f"{read.root} of {read.entity} differs in case from {other}, {what}"
        instead = f"if both are the same attribute, write {other}"
    return Remark(OTHER_SPELLING, read.place, reason, instead, read.offset, read.at_key)


def _slips(facts: Facts, found: list[Read]) -> Iterator[Remark]:
    """Yield remarks for names that differ from another name of the same item by a `$`, or by a slip of the keyboard."""
    names: dict[str, dict[str, set[str]]] = {}
    for entity, declared in facts.rules.entities.items():
        others = (*facts.variables(entity), *declared.required, *declared.index_key)
        names[entity] = {name: {"entities"} for name in others}
    for name, rule in facts.projections.items():
        for attribute in rule.action.written:
            names[rule.into].setdefault(attribute, set()).add(name)
    for read in found:
        names[read.entity].setdefault(read.root, set()).add(read.rule)
    seen: set[Node] = set()
    for read in found:
        here = names[read.entity]
        if (read.entity, read.root) in seen or len(here[read.root]) > 1 or "entities" in here[read.root]:
            continue
        bound = str(read.place[-1]) if "bind" in read.place[2:] else ""
        order = [*here]
        likely = [*order[: order.index(read.root)], *(name for name in order if len(here[name]) > 1)]
        other = next((name for name in (bound, *likely) if _is_slip(read.root, name)), None)
        if other is None:
            other = next((name for name in likely if _is_other_style(facts, read, name)), None)
        if other is None and _VARIABLE.fullmatch(read.root):
            other = read.root[1:]
        if other is not None:
            seen.add((read.entity, read.root))
            reason = f"{read.root} and {other} are different attributes of {read.entity}, with nearly the same name"
            instead = f"if both are the same attribute, write {other}"
            yield Remark(OTHER_SPELLING, read.place, reason, instead, read.offset, read.at_key)


_VARIABLE = re.compile(r"\$(?!type$|id$|ref$|schema$|values$)[^\W\d]\w*")
"""A name with the `$` of variables in other languages; some formats have attributes such as `$type`."""


def _is_other_style(facts: Facts, read: Read, other: str) -> bool:
    """Return whether two names have the same letters, as `user_id`, `userId` and `userID`.

    Not if the rule sets one from the other. Of names that differ in case only, those of attributes, and of variables
    that are bound, are compared in `_other_case`.
    """
    if read.root == other or _letters(read.root) != _letters(other) or other in read.place:
        return False
    same = read.root.lower() == other.lower()
    return not same or (other in facts.variables(read.entity) and read.place[-1] != "into")


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _is_slip(name: str, other: str) -> bool:
    """Return whether two names differ by one letter inside them, or by two that have changed places."""
    if name == other or min(len(name), len(other)) < 5 or abs(len(name) - len(other)) > 1 or name[0] != other[0]:
        return False
    start = next((at for at, (one, two) in enumerate(zip(name, other, strict=False)) if one != two), None)
    if start is None:
        return False  # one is the beginning of the other, as `tag` of `tags`
    first, second = name[start:], other[start:]
    if len(first) != len(second):
        longer, shorter = (first, second) if len(first) > len(second) else (second, first)
        return longer[1:] == shorter and longer[0].islower() and len(name) > 5
    if first[:2] == second[1::-1]:
        return first[2:] == second[2:]
    letters = first[0].islower() and second[0].islower() and len(first) > 1
    return letters and first[1:] == second[1:] and len(name) > 6
