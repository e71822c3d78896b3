"""Infer a proposal from a sample, and make it one that the loader and `check` accept: rejected rules become comments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from projections.init.inferred_aggregates import measure_candidates
from projections.init.inferred_entities import understand
from projections.init.inferred_indexes import index_rules
from projections.init.inferred_relations import copy_rules, derived_rules, embed_candidates, links
from projections.init.proposal import Entity, Proposal, Rule, Sample, Table, Unknown
from projections.init.rows import common_separator, pascal, rows_of, set_kinds, type_attribute
from projections.init.rule_file import rule_file
from projections.language.findings.kinds import Finding
from projections.language.review import review_text
from projections.language.values import Value, valued


def infer(table: Table, sample: Sample, separator: str | None = None) -> Proposal:
    """Return the rules that fit the items of a sample and their keys. Equal samples give equal proposals.

    Without `separator`, it is inferred as well.
    """
    guarded = sorted({name for item in sample.items for name, value in item.items() if _is_guard(name, value)})
    items = [{name: value for name, value in item.items() if name not in guarded} for item in sample.items]
    sample = replace(sample, items=[valued(item) for item in items])
    separator = separator or common_separator(sample.items, table)
    rows = rows_of(sample.items, table, separator)
    kind = type_attribute(rows)
    set_kinds(rows, kind)
    groups, unknown = understand(rows, table, separator, kind)
    groups.sort(key=lambda group: (len(group.entity.variables), -len(group.rows)))
    found_links = links(groups, sample.complete)
    copies = copy_rules(found_links, table)
    copied = {frozenset((link.relation.child, link.relation.parent)) for link, _ in copies}
    others = [link for link in found_links if frozenset((link.relation.child, link.relation.parent)) not in copied]
    taken = {
        (rule.body["copy"]["into"], name) for _, rule in copies for name in rule.body["copy"]["attributes"]
    }  # an attribute of a target has one writer
    candidates = [*measure_candidates(others, table, sample), *embed_candidates(others, table, sample.complete)]
    rules = [*derived_rules(candidates, others, table, taken)]
    rules += index_rules(groups, table, separator)
    rules += [rule for _, rule in copies]
    return Proposal(
        table,
        separator,
        [group.entity for group in groups],
        [link.relation for link in found_links],
        _with_distinct_names(rules),
        unknown,
        len(sample.items),
        sample.complete,
        sum(len(group.rows) for group in groups),
        tuple(name.removeprefix("~") for name in guarded if name != "~"),
    )


def _is_guard(name: str, value: Value) -> bool:
    """Return whether a deployed rule has written an attribute: a guard, or the mark of an item that it created."""
    if name == "~":
        return "S" in value
    held = value.get("M")
    return name.startswith("~") and isinstance(held, Mapping) and {"d", "at", "s"} <= held.keys()


def _with_distinct_names(every: Iterable[Rule]) -> list[Rule]:
    """Return the rules with different names: one whose name is taken gets the names of its attributes, too."""
    rules: dict[str, Rule] = {}
    for rule in sorted(every, key=lambda rule: bool(rule.doubt)):
        name = rule.name
        if name in rules:
            name += "".join(map(pascal, rule.attributes))
        while name in rules:
            name += "Again"
        rules[name] = replace(rule, name=name)
    return list(rules.values())


_FALLBACK = "Item"


def without_rejected_parts(proposal: Proposal) -> Proposal:
    """Return the proposal without rejected parts. It has at least one entity, which may be any item.

    Rules that `projections check` finds wrong become comments with the reason. Possible rules that would be errors if they
    were not comments go.
    """
    proposal = proposal if proposal.entities else replace(proposal, entities=[_any_item(proposal)])
    while True:
        bare = replace(proposal, rules=[])
        changed = _without(proposal, review_text(rule_file(bare)).findings)
        if changed is proposal:
            break
        proposal = changed
    active: list[Rule] = []
    kept = []
    for rule in proposal.rules:
        tried = replace(proposal, rules=[*active, replace(rule, doubt="")])
        finding = next((each for each in review_text(rule_file(tried)).findings if _rejects(each, rule)), None)
        if finding is not None and rule.state == "possible":
            continue
        if finding is not None:
            doubt = f"{rule.doubt}. {_rejection(finding)}" if rule.doubt else _rejection(finding)
            rule = replace(rule, doubt=doubt, refused=True)
        if not rule.doubt:
            active.append(rule)
        kept.append(rule)
    return replace(proposal, rules=kept)


def _rejects(finding: Finding, rule: Rule) -> bool:
    """Return whether a finding on a rule file, which had none on rules without this rule, is about the rule."""
    return finding.severity == "error" or (finding.severity == "warning" and bool(finding.rule) and not rule.doubt)


def _rejection(finding: Finding) -> str:
    words = f"{finding.reason}. {finding.instead}".strip().rstrip(".")
    return f"`projections check` {'rejects it' if finding.severity == 'error' else 'warns of it'}: {words}"


def _without(proposal: Proposal, findings: Sequence[Finding]) -> Proposal:
    """Return the proposal without the first rejected entity, or the same proposal if there is none."""
    for finding in findings:
        place = finding.path.split(".")
        entity = next((each for each in proposal.entities if place[:2] == ["entities", each.name]), None)
        if entity is None or finding.severity != "error":
            continue
        if "index_key" in place and entity.index_key:
            note = f"Index keys were left out: {finding.reason}."
            changed = replace(entity, index_key={}, notes=(*entity.notes, note))
            return replace(proposal, entities=[changed if each is entity else each for each in proposal.entities])
        return _leave_out(proposal, entity, finding)
    return proposal


def _leave_out(proposal: Proposal, entity: Entity, finding: Finding) -> Proposal:
    entities = [each for each in proposal.entities if each is not entity]
    key = {name: text.replace("{", "<").replace("}", ">") for name, text in entity.key.items()}
    unknown = Unknown(key, entity.items, f"as {entity.name}: {finding.reason}")
    names = {each.name for each in entities}
    rules = [rule for rule in proposal.rules if {rule.body["from"], rule.into} <= names]
    relations = [relation for relation in proposal.relations if relation.child in names and relation.parent in names]
    return replace(
        proposal,
        entities=entities or [_any_item(proposal)],
        relations=relations,
        rules=rules,
        unknown=[*proposal.unknown, unknown],
        recognised=proposal.recognised - entity.items,
    )


def _any_item(proposal: Proposal) -> Entity:
    """Return an entity that any item of the table belongs to."""
    key = {}
    variables = []
    for number, (name, kind) in enumerate(proposal.table.key):
        variable = name if name.isidentifier() else ("partition", "sort")[number]
        key[name] = "{" + variable + ("*" if kind == "S" else "") + "}"
        variables.append(variable)
    note = "Any item: no kinds of items could be distinguished. Replace it with entities of your own."
    return Entity(_FALLBACK, key, tuple(variables), (), 0, notes=(note,))
