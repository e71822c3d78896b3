"""What the CDK constructs in Python and TypeScript share: the template that they include."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from projections.deploy.needs import Deployment
from projections.deploy.plain import NOTES, cloudformation_template, with_values
from projections.language.loader import load
from projections.language.program import Program

__all__ = ["TYPESCRIPT", "cdk_template"]

TYPESCRIPT = Path(__file__).with_name("projections.ts")
"""The construct in TypeScript."""


def cdk_template(
    rules: str | Path, given: Mapping[str, str | None], *, existing: bool
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Return the template with these values of parameters (see `with_values`), and the suffix of each table's parameters.

    Raises RulesError, and UsageError for values that the template rejects.
    """
    deployment = Deployment(str(rules), Program.from_document(load(rules).canonical()), existing)
    template = with_values(cloudformation_template(deployment), given)
    return template, template.pop("Metadata")[NOTES]["Tables"]
