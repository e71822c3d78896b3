"""`projections schema`."""

from __future__ import annotations

import click

from projections.cli.options import as_json, rules_option
from projections.terminal import json_text, print_text

__all__ = ["command"]


@click.command("schema")
@as_json
@rules_option
def command(as_json: bool, rules: str | None) -> None:
    """Print the JSON Schema of rule files, for editors.

    Save it, and name it in the first line of a rule file:

    \b
      # yaml-language-server: $schema=rules.schema.json

    \b
    Example:
      projections schema > rules.schema.json
    """
    from projections.language.schema import json_schema

    print_text(json_text(json_schema()))
