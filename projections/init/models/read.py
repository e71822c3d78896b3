"""Read a data model from a file, whose format follows from its content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from projections.deploy.cloudformation import template_of
from projections.errors import RulesError, UsageError
from projections.init.inference.words import pascal
from projections.init.models import cloudformation, electrodb, workbench
from projections.init.models.model import Model, Unread, entity_name, table_names
from projections.init.models.parts import parsed
from projections.init.models.queries import keep_answered
from projections.init.prove import proven
from projections.local.json_text import text_of

__all__ = ["FORMATS", "read_model"]

FORMATS = "a NoSQL Workbench data model, a CloudFormation or SAM template, or ElectroDB schemas as JSON"


def read_model(path: Path) -> Model:
    """Return the model in a file, without what rule files reject. Raises UsageError or TemplateError."""
    file = str(path)
    model = _accepted(_read(text_of(file), file))
    keep_answered(model)
    return model


def _read(text: str, file: str) -> Model:
    if not text.lstrip().startswith(("{", "[")):
        try:
            return cloudformation.read(template_of(text, file))
        except RulesError as error:
            raise UsageError(f"{error}. Pass {FORMATS}") from None
    document = parsed(text, file)
    if isinstance(document.value, dict):
        if workbench.is_workbench(document.value):
            return workbench.read(document)
        if isinstance(document.value.get("Resources"), dict):
            return cloudformation.read(template_of(text, file))
    parts = [document]
    if isinstance(document.value, list):
        parts = document.elements()
    elif isinstance(document.value, dict) and not electrodb.is_schema(document.value):
        parts = [part for _, part in document.members()]
    if parts and all(electrodb.is_schema(part.value) for part in parts):
        return electrodb.read(parts)
    raise UsageError(f"{file}: unknown format. Pass {FORMATS}")


def _accepted(model: Model) -> Model:
    """Return the model with names and entities that rule files accept; what they reject is listed as unread."""
    model.tables = [one.table.name for one in model.proposals]
    if len(model.proposals) > 1:
        names = table_names(model.tables)
        model.proposals = [
            replace(one, table=replace(one.table, name=name)) for one, name in zip(model.proposals, names, strict=True)
        ]
    accepted = []
    taken = [entity.name for one in model.proposals for entity in one.entities]
    for proposal in model.proposals:
        declared = {entity.name for entity in proposal.entities if not entity.items}
        found = proven(proposal)
        kept = []
        for unknown in found.unknown:
            name, _, reason = unknown.why.removeprefix("as ").partition(": ")
            if name in declared:
                model.unread.append(Unread(f"entity {name}", f"it is left out: {reason}"))
            else:
                kept.append(unknown)
        known = {entity.name for entity in proposal.entities}
        entities = []
        for entity in found.entities:
            if len(model.proposals) > 1 and entity.name not in known:  # stands for any item of the table
                entity = replace(entity, name=entity_name(f"{pascal(proposal.table.name)}Item", taken))
                taken.append(entity.name)
            entities.append(entity)
        accepted.append(replace(found, unknown=kept, entities=entities))
    model.proposals = accepted
    return model
