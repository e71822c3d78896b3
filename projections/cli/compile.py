"""`projections compile`."""

from __future__ import annotations

import click

from projections.cli.options import as_json, document_of, find_rules, output_option, rules_argument, write_output
from projections.terminal import json_text, print_text

__all__ = ["command"]


@click.command("compile")
@rules_argument
@as_json
@output_option
def command(file: str | None, rules: str | None, as_json: bool, output: str | None) -> None:
    """Print the canonical JSON of a rule file, as the deployed functions read it.

    Loading it requires neither pydantic nor a YAML parser. `sam build` puts it into the functions' package.

    \b
    Example:
      projections compile rules.yaml -o rules.json
    """
    text = json_text(document_of(find_rules(file, rules)))
    if output:
        write_output(output, text + "\n")
    else:
        print_text(text)
