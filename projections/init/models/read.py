"""Read a data model from a file, whose format follows from its content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from projections.deploy.cloudformation import template_of
from projections.errors import RulesError, UsageError
from projections.init.inference.words import pascal
from projections.init.models import cloudformation, electrodb, terraform, toolbox, workbench
from projections.init.models.model import Model, Unread, entity_name, table_names
from projections.init.models.parts import Part, parsed
from projections.init.models.queries import keep_answered
from projections.init.prove import proven
from projections.local.json_text import text_of

__all__ = ["FORMATS", "read_model"]

FORMATS = (
    "a NoSQL Workbench data model",
    "a CloudFormation or SAM template",
    "a Terraform plan or state (`terraform show -json`)",
    "ElectroDB schemas as JSON",
    "DTOs of DynamoDB-Toolbox (`EntityDTO`, `TableDTO`)",
)


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
            raise UsageError(f"{error}. Pass {_formats()}") from None
    document = parsed(text, file)
    if isinstance(document.value, dict):
        if workbench.is_workbench(document.value):
            return workbench.read(document)
        if terraform.is_terraform(document.value):
            return terraform.read(document)
        if isinstance(document.value.get("Resources"), dict):
            return cloudformation.read(template_of(text, file))
    for is_one, read in _SCHEMAS:
        parts = _all_of(document, is_one)
        if parts:
            return read(parts)
    raise UsageError(f"{file}: unknown format. Pass {_formats()}")


_SCHEMAS: tuple[tuple[Callable[[Any], bool], Callable[[Sequence[Part]], Model]], ...] = (
    (electrodb.is_schema, electrodb.read),
    (toolbox.is_dto, toolbox.read),
)


def _all_of(document: Part, is_one: Callable[[Any], bool]) -> list[Part]:
    """Return the schemas in a document that is one, or a list or mapping of several; none if it is not."""
    if is_one(document.value):
        return [document]
    parts: list[Part] = []
    if isinstance(document.value, list):
        parts = document.elements()
    elif isinstance(document.value, dict):
        parts = [part for _, part in document.members()]
    return parts if parts and all(is_one(part.value) for part in parts) else []


def _formats() -> str:
    return "; ".join((*FORMATS[:-1], f"or {FORMATS[-1]}"))


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
