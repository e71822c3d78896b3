"""Infer a proposal from a sample, and make it one that the loader and `check` accept: rejected rules become comments."""

from __future__ import annotations

from dataclasses import replace

from projections.init.data_model import free_name
from projections.init.inferred_entities import understand
from projections.init.inferred_indexes import index_rules
from projections.init.inferred_relations import related_rules
from projections.init.proposal import Entity, Proposal, Rule, Sample, Table, Unknown
from projections.init.rows import common_separator, pascal, rows_of, set_kinds
from projections.init.rule_file import rule_file
from projections.language.findings.kinds import Finding
from projections.language.review import review_text
from projections.language.values import valued


def infer(table: Table, sample: Sample, separator: str | None = None) -> Proposal:
    """Return the rules that fit the items of a sample and their keys. Equal samples give equal proposals.

    Without `separator`, it is inferred as well.
    """
    # Deployed rules write these attributes: guards, and the mark of an item that a rule created.
    guarded = sorted({name for item in sample.items for name in item if name.startswith("~")})
    items = [{name: value for name, value in item.items() if name not in guarded} for item in sample.items]
    sample = replace(sample, items=[valued(item) for item in items])
    separator = separator or common_separator(sample.items, table)
    rows = rows_of(sample.items, table, separator)
    groups, unknown = understand(rows, table, separator, set_kinds(rows))
    groups.sort(key=lambda group: (len(group.entity.variables), -len(group.rows)))
    rules: dict[str, Rule] = {}
    every = [*related_rules(groups, table, sample), *index_rules(groups, table, separator)]
    for rule in sorted(every, key=lambda rule: bool(rule.doubt)):
        name = rule.name + "".join(map(pascal, rule.attributes)) * (rule.name in rules)
        name = free_name(name, rules)
        rules[name] = replace(rule, name=name)
    return Proposal(
        table,
        separator,
        [group.entity for group in groups],
        list(rules.values()),
        unknown,
        len(sample.items),
        sample.complete,
        sum(len(group.rows) for group in groups),
        tuple(name.removeprefix("~") for name in guarded if name != "~"),
    )


def without_rejected_parts(proposal: Proposal) -> Proposal:
    """Return the proposal without rejected parts. It has at least one entity, which may be any item.

    Rules that `projections check` finds wrong become comments with the reason. Possible rules that would be errors if they
    were not comments go.
    """
    while (rejected := _rejected_entity(proposal)) is not None:
        proposal = _leave_out(proposal, *rejected)
    if not proposal.entities:
        proposal = replace(proposal, entities=[_any_item(proposal.table)])
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


def _rejected_entity(proposal: Proposal) -> tuple[Entity, str] | None:
    """Return the first entity that `projections check` finds wrong, and why."""
    for finding in review_text(rule_file(replace(proposal, rules=[]))).findings:
        for entity in proposal.entities:
            if finding.severity == "error" and finding.path.split(".")[:2] == ["entities", entity.name]:
                return entity, finding.reason
    return None


def _leave_out(proposal: Proposal, entity: Entity, reason: str) -> Proposal:
    key = {name: text.replace("{", "<").replace("}", ">") for name, text in entity.key.items()}
    return replace(
        proposal,
        entities=[each for each in proposal.entities if each is not entity],
        rules=[rule for rule in proposal.rules if entity.name not in (rule.body["from"], rule.into)],
        unknown=[*proposal.unknown, Unknown(key, entity.items, f"as {entity.name}: {reason}")],
        recognised=proposal.recognised - entity.items,
    )


def _any_item(table: Table) -> Entity:
    """Return an entity that any item of the table belongs to."""
    names = [name if name.isidentifier() else f"key{number}" for number, name in enumerate(table.key_names)]
    variables = zip(names, table.key, strict=True)
    key = {attribute: "{" + name + "*" * (kind == "S") + "}" for name, (attribute, kind) in variables}
    note = "Any item: no kinds of items could be distinguished. Replace it with entities of your own."
    return Entity("Item", key, tuple(names), (), 0, notes=(note,))
