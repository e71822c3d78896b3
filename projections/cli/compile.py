"""`projections compile`."""

from __future__ import annotations

import click

from projections.cli.generated import force_option, json_with, write_generated
from projections.cli.options import as_json, document_of, find_rules, note_written, output_option, rules_argument
from projections.terminal import json_text, print_text

__all__ = ["command"]


@click.command("compile")
@rules_argument
@as_json
@output_option
@force_option
def command(file: str | None, rules: str | None, as_json: bool, output: str | None, force: bool) -> int:
    """Print the canonical JSON of a rule file, as the deployed functions read it.

    Loading it requires neither pydantic nor a YAML parser. `sam build` puts it into the functions' package.

    If FILE of -o was not written by this command, such as a rule file, the command shows the difference and asks before it
    overwrites the file. Without a terminal it writes nothing; --force overwrites.

    \b
    Example:
      projections compile rules.yaml -o rules.json
    """
    path = find_rules(file, rules)
    text = json_text(document_of(path))
    if output is not None:
        if not write_generated(output, text + "\n", force=force, own=json_with("format", "projections")):
            return 1
        note_written(output, f"the canonical rules of {path.name}")
        return 0
    print_text(text)
    return 0
