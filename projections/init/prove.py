"""Make a proposal that the loader and `check` accept: rejected rules become comments, with the reason."""

from __future__ import annotations

from dataclasses import replace

from projections.init.inference.proposal import Entity, Proposal, Rule, Unknown
from projections.init.rule_file import rule_file
from projections.language.findings import Finding
from projections.language.review import reviewed

__all__ = ["proven"]

_FALLBACK = "Item"


def proven(proposal: Proposal) -> Proposal:
    """Return the proposal without rejected parts. It has at least one entity, which may be any item."""
    proposal = proposal if proposal.entities else replace(proposal, entities=[_any_item(proposal)])
    while True:
        findings = [one for one in reviewed(rule_file(proposal)).findings if one.severity in ("error", "warning")]
        changed = _without(proposal, findings)
        if changed is proposal:
            return _tried(proposal)
        proposal = changed


def _tried(proposal: Proposal) -> Proposal:
    """Return the proposal without possible rules that would be errors if they were not comments. Uncertain rules remain,
    with the reason.
    """
    rules = []
    for rule in proposal.rules:
        if not rule.doubt or rule.refused:
            rules.append(rule)
            continue
        others = [one for one in proposal.rules if not one.doubt and one is not rule]
        tried = replace(proposal, rules=[*others, replace(rule, doubt="")])
        error = next((one for one in reviewed(rule_file(tried)).findings if one.severity == "error"), None)
        if error is None:
            rules.append(rule)
        elif rule.contradiction is not None:
            rules.append(replace(rule, doubt=f"{rule.doubt}. {_rejection(error)}", refused=True))
    return replace(proposal, rules=rules)


def _rejection(finding: Finding) -> str:
    words = f"{finding.reason}. {finding.instead}".strip().rstrip(".")
    return f"`projections check` {'rejects it' if finding.severity == 'error' else 'warns of it'}: {words}"


def _without(proposal: Proposal, findings: list[Finding]) -> Proposal:
    """Return the proposal without the first rejected part, or the same proposal if nothing can be left out."""
    rules = {rule.name: rule for rule in proposal.rules if not rule.doubt}
    for finding in findings:
        if finding.rule in rules:
            return _doubted(proposal, rules[finding.rule], finding)
    for finding in findings:
        place = finding.path.split(".")
        entity = next((one for one in proposal.entities if place[:2] == ["entities", one.name]), None)
        if entity is None or finding.severity != "error":
            continue
        if "index_key" in place and entity.index_key:
            note = f"Index keys were left out: {finding.reason}."
            changed = replace(entity, index_key={}, notes=(*entity.notes, note))
            return replace(proposal, entities=[changed if one is entity else one for one in proposal.entities])
        return _left_out(proposal, entity, finding)
    return proposal


def _doubted(proposal: Proposal, rule: Rule, finding: Finding) -> Proposal:
    refused = replace(rule, doubt=_rejection(finding), refused=True)
    return replace(proposal, rules=[refused if one is rule else one for one in proposal.rules])


def _left_out(proposal: Proposal, entity: Entity, finding: Finding) -> Proposal:
    entities = [one for one in proposal.entities if one is not entity]
    key = {name: text.replace("{", "<").replace("}", ">") for name, text in entity.key.items()}
    unknown = Unknown(key, entity.items, f"as {entity.name}: {finding.reason}")
    names = {one.name for one in entities}
    rules = [rule for rule in proposal.rules if {rule.body["from"], rule.into} <= names]
    relations = [one for one in proposal.relations if one.child in names and one.parent in names]
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
