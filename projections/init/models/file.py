"""A data model as the text of a rule file, with the parts that were not read as comments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from projections.init.models.model import Model
from projections.init.rule_file import rule_file

__all__ = ["model_file"]


def model_file(model: Model) -> str:
    """Return the rule file of a model."""
    return rule_file(*model.proposals, head=list(_head(model)))


def _head(model: Model) -> Iterator[str]:
    yield (
        f"Made by `projections init --from {Path(model.file).name}` ({model.form}). Check the entities, and add rules."
    )
    if model.unread:
        yield "Not read:"
    for one in model.unread:
        yield f"- {one.place}: {one.reason}."
