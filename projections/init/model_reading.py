"""Read a data model from a file, whose format follows from its content, and write it as a rule file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from projections.deploy.cloudformation import (
    TABLE,
    VARIABLES,
    Document,
    Resolution,
    Resource,
    is_plain,
    template_of,
    value_at,
)
from projections.errors import RulesError, UsageError
from projections.init import electrodb, workbench
from projections.init.data_model import (
    Model,
    Part,
    WrongPart,
    entity_name,
    parse_json,
    proposal_of,
    table_names,
    table_of,
)
from projections.init.infer import without_rejected_parts
from projections.init.proposal import Table
from projections.init.rows import pascal
from projections.init.rule_file import rule_file
from projections.local.event_files import text_of

FORMATS = "a NoSQL Workbench data model, a CloudFormation or SAM template, or ElectroDB schemas as JSON"


def read_model(path: Path) -> Model:
    """Return the model in a file, without what rule files reject. Raises UsageError or RulesError."""
    file = str(path)
    return _accept_names(_model_of(text_of(file), file))


def _model_of(text: str, file: str) -> Model:
    if not text.lstrip().startswith(("{", "[")):
        try:
            return _template(template_of(text, file))
        except RulesError as error:
            raise UsageError(f"{error}. Pass {FORMATS}") from None
    document = parse_json(text, file)
    if isinstance(document.value, dict):
        if "DataModel" in document.value:
            return workbench.read_workbench(document)
        if isinstance(document.value.get("Resources"), dict):
            return _template(template_of(text, file))
    parts = [document]
    if isinstance(document.value, list):
        parts = document.elements()
    elif isinstance(document.value, dict) and not electrodb.is_schema(document.value):
        parts = [part for _, part in document.members()]
    if parts and all(electrodb.is_schema(part.value) for part in parts):
        return electrodb.read_schemas(parts)
    raise UsageError(f"{file}: unknown format. Pass {FORMATS}")


def _accept_names(model: Model) -> Model:
    """Return the model with names and entities that rule files accept; what they reject is listed as unread."""
    model.tables = [proposal.table.name for proposal in model.proposals]
    if len(model.proposals) > 1:
        names = table_names(model.tables)
        model.proposals = [
            replace(each, table=replace(each.table, name=name))
            for each, name in zip(model.proposals, names, strict=True)
        ]
    accepted = []
    taken = [entity.name for proposal in model.proposals for entity in proposal.entities]
    for proposal in model.proposals:
        declared = {entity.name for entity in proposal.entities if not entity.items}
        proven_proposal = without_rejected_parts(proposal)
        kept = []
        for unknown in proven_proposal.unknown:
            name, _, reason = unknown.why.removeprefix("as ").partition(": ")
            if name in declared:
                model.leave_out(f"entity {name}", f"it is left out: {reason}")
            else:
                kept.append(unknown)
        known = {entity.name for entity in proposal.entities}
        entities = []
        for entity in proven_proposal.entities:
            if len(model.proposals) > 1 and entity.name not in known:  # stands for any item of the table
                entity = replace(entity, name=entity_name(f"{pascal(proposal.table.name)}Item", taken))
                taken.append(entity.name)
            entities.append(entity)
        accepted.append(replace(proven_proposal, unknown=kept, entities=entities))
    model.proposals = accepted
    return model


def model_file(model: Model) -> str:
    """Return the rule file of a model, with the parts that were not read as comments."""
    return rule_file(*model.proposals, head=list(_head(model)))


def _head(model: Model) -> Iterator[str]:
    yield (
        f"Made by `projections init --from {Path(model.file).name}` ({model.form}). Check the entities, and add rules."
    )
    if model.unread:
        yield "Not read:"
    for unread in model.unread:
        yield f"- {unread.place}: {unread.reason}."


# CloudFormation and SAM

_LEDGER = "LEDGER_TABLE_NAME"


def _template(document: Document) -> Model:
    """Return the tables of a template, with its parameters at their defaults. Raises UsageError if there is none."""
    resolution = Resolution(document)
    model = Model("CloudFormation template", document.file, [], existing=True)
    ledgers = [value_at(resource.properties, *VARIABLES, _LEDGER) for resource in resolution.resources.values()]
    for resource in resolution.of_type(*TABLE):
        part = Part(document.file, resource.properties, resource.path())
        if resolution.name(resource.id) in ledgers:
            model.leave_out(part.place, f"is the ledger of the rules ({_LEDGER}), not an application's table")
            continue
        try:
            table = _table(resource, part, model)
        except WrongPart as error:
            model.leave_out(error.place, error.reason)
            continue
        model.proposals.append(proposal_of(table, []))
    if not model.proposals:
        why = "; ".join(f"{unread.place}: {unread.reason}" for unread in model.unread)
        why = why or f"it has no resource of type {' or '.join(TABLE)}"
        raise UsageError(f"{document.file}: no table could be read from this template: {why}")
    return model


def _table(resource: Resource, part: Part, model: Model) -> Table:
    ttl = part.get("TimeToLiveSpecification")
    attribute = None
    if ttl is not None and str(ttl.need("Enabled").value).lower() == "true":
        attribute = ttl.need("AttributeName").text()
    stream = part.get("StreamSpecification")
    view = stream.need("StreamViewType").text() if stream is not None else None
    for name in ("KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        if (keys := part.get(name)) is not None and not is_plain(keys.value):
            raise keys.wrong("depends on values that are not in the template: give the parameters defaults")
    if attribute is not None and not is_plain(attribute):
        model.leave_out(part.need("TimeToLiveSpecification").place, f"{attribute} is not in the template")
        attribute = None
    return table_of(_name(resource), part, attribute, view)


def _name(resource: Resource) -> str:
    name = resource.properties.get("TableName")
    return name if isinstance(name, str) and is_plain(name) else resource.id
