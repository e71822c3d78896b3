"""Tables of a CloudFormation or SAM template."""

from __future__ import annotations

from projections.deploy.cloudformation import TABLE, VARIABLES, Document, Naming, Resolution, Resource, judged, value_at
from projections.errors import UsageError
from projections.init.models.aws import table_of
from projections.init.models.model import Model, Unread, proposal_of
from projections.init.models.parts import Part, WrongPart
from projections.init.table import Table

__all__ = ["read"]

_SIMPLE = "AWS::Serverless::SimpleTable"
_LEDGER = "LEDGER_TABLE_NAME"
_SIMPLE_TYPES = {"String": "S", "Number": "N", "Binary": "B"}


def read(document: Document) -> Model:
    """Return the tables of a template, with its parameters at their defaults. Raises UsageError if there is none."""
    resolution = Resolution(document)
    model = Model("CloudFormation template", document.file, [], existing=True)
    names = Naming(resolution)
    ledgers = [
        names.spelled(value_at(resource.properties, *VARIABLES, _LEDGER)) for resource in resolution.resources.values()
    ]
    for resource in resolution.of_type(*TABLE, _SIMPLE):
        part = Part(document.file, resource.properties, resource.path())
        if names.of(resource) in ledgers:
            model.unread.append(
                Unread(part.place, f"is the ledger of the rules ({_LEDGER}), not an application's table")
            )
            continue
        try:
            table = _simple(resource, part) if resource.type == _SIMPLE else _table(resource, part, model)
        except WrongPart as error:
            model.unread.append(Unread(error.place, error.reason))
            continue
        model.proposals.append(proposal_of(table, []))
    if not model.proposals:
        why = "; ".join(f"{one.place}: {one.reason}" for one in model.unread)
        why = why or f"it has no resource of type {', '.join(TABLE)} or {_SIMPLE}"
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
        if (one := part.get(name)) is not None and not judged(one.value):
            raise one.wrong("depends on values that are not in the template: give the parameters defaults")
    if attribute is not None and not judged(attribute):
        model.unread.append(Unread(part.need("TimeToLiveSpecification").place, f"{attribute} is not in the template"))
        attribute = None
    return table_of(_name(resource), part, attribute, view)


def _simple(resource: Resource, part: Part) -> Table:
    key = part.get("PrimaryKey")
    if key is None:
        return Table(_name(resource), (("id", "S"),))
    return Table(
        _name(resource),
        ((key.need("Name").text(), _SIMPLE_TYPES[key.need("Type").one_of(*_SIMPLE_TYPES)]),),
    )


def _name(resource: Resource) -> str:
    name = resource.properties.get("TableName")
    return name if isinstance(name, str) and judged(name) else resource.id
