"""`projections compile`."""

from __future__ import annotations

import click

from projections.cli.options import as_json, document_of, find_rules, rules_argument
from projections.terminal import json_text, print_text

__all__ = ["command"]


@click.command("compile")
@rules_argument
@as_json
@click.option("-o", "--output", type=click.Path(dir_okay=False, writable=True), help="Write to this file.")
def command(file: str | None, rules: str | None, as_json: bool, output: str | None) -> None:
    """Print the canonical JSON of a rule file, as the deployed functions read it.

    Loading it requires neither pydantic nor a YAML parser. `sam build` puts it into the functions' package.

    \b
    Example:
      projections compile rules.yaml -o rules.json
    """
    from pathlib import Path

    text = json_text(document_of(find_rules(file, rules)))
    if output:
        Path(output).write_text(text + "\n", encoding="utf-8")
    else:
        print_text(text)
