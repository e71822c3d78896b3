"""A data model as the text of a rule file, with the parts that were not read as comments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from projections.init.models.model import Model
from projections.init.rule_file import rule_file
from projections.language.yaml_text import flow, name

__all__ = ["model_file"]


def model_file(model: Model) -> str:
    """Return the rule file of a model."""
    return "\n".join([rule_file(*model.proposals, head=list(_head(model))), *_queries(model)])


def _queries(model: Model) -> Iterator[str]:
    if model.queries:
        yield "# The queries that the model implies. `projections check` plans them."
        yield "queries:"
    for query in model.queries:
        form: dict[str, object] = {"find": query.find[0] if len(query.find) == 1 else query.find, "by": query.by}
        if query.present:
            form["where"] = {attribute: [{"exists": True}] for attribute in query.present}
        if query.index:
            form["using"] = query.index
        yield f"  {name(query.name)}: {flow(form)}"
    if model.queries:
        yield ""


def _head(model: Model) -> Iterator[str]:
    yield (
        f"Made by `projections init --from {Path(model.file).name}` ({model.form}). Check the entities, and add rules."
    )
    if model.unread:
        yield "Not read:"
    for one in model.unread:
        yield f"- {one.place}: {one.reason}."
