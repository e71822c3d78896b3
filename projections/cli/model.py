"""`projections model`."""

from __future__ import annotations

import click

from projections.cli.options import as_json, find_rules, output_option, program_of, rules_argument, write_output
from projections.terminal import console, count, json_text, print_line, print_text, styled

__all__ = ["command"]


@click.command("model")
@rules_argument
@as_json
@output_option
def command(file: str | None, rules: str | None, as_json: bool, output: str | None) -> None:
    """Write a rule file as a data model of NoSQL Workbench.

    The model has the tables, indexes and attributes, and a facet for each entity: its key templates, and sample items with
    the values that the rules derive. Also lists the parts of the rules that a model cannot contain.
    `projections init --from` reads models.

    \b
    Example:
      projections model rules.yaml -o model.json
    """
    from dataclasses import asdict
    from datetime import UTC, datetime

    from projections.init.models.export import workbench_model

    path, program = find_rules(file, rules), program_of(file, rules)
    exported = workbench_model(path.stem, program, datetime.now(UTC))
    text = json_text(exported.document)
    if output:
        write_output(output, text + "\n")
    if as_json:
        print_text(json_text({"model": exported.document, "left_out": [asdict(one) for one in exported.left_out]}))
        return
    if output:
        print_line(
            f"Wrote {output}: {count(len(exported.document['DataModel']), 'table')}, "
            f"{count(len(program.entities), 'facet')}, {count(exported.items, 'sample item')}."
        )
    else:
        print_text(text)
    out = console(stderr=True)
    if exported.left_out:
        out.print(styled("[yellow]Not in the model[/]:"))
    for one in exported.left_out:
        out.print(styled("  {}: {}.", one.place, one.reason))
