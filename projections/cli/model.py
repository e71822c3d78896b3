"""`projections model`."""

from __future__ import annotations

import click

from projections.cli.generated import force_option, write_generated
from projections.cli.options import as_json, find_rules, note_written, output_option, program_of, rules_argument
from projections.terminal import console, count, json_text, print_text, styled

__all__ = ["command"]


@click.command("model")
@rules_argument
@as_json
@output_option
@force_option
def command(file: str | None, rules: str | None, as_json: bool, output: str | None, force: bool) -> int:
    """Write a rule file as a data model of NoSQL Workbench.

    The model has the tables, indexes and attributes, and a facet for each entity: its key templates, and sample items with
    the values that the rules derive. Also lists the parts of the rules that a model cannot contain.
    `projections init --from` reads models.

    If FILE of -o was edited since this command wrote it, the command shows the difference and asks before it overwrites the
    file. Without a terminal it writes nothing; --force overwrites.

    \b
    Example:
      projections model rules.yaml -o model.json
    """
    from dataclasses import asdict
    from datetime import UTC, datetime

    from projections.deploy.checksum import signed
    from projections.init.models.export import workbench_model

    path, program = find_rules(file, rules), program_of(file, rules)
    exported = workbench_model(path.stem, program, datetime.now(UTC))
    text = signed(json_text(exported.document) + "\n")
    if output and not write_generated(output, text, force=force):
        return 1
    if as_json:
        print_text(json_text({"model": exported.document, "leftOut": [asdict(one) for one in exported.left_out]}))
        return 0
    if output:
        tables, facets = len(exported.document["DataModel"]), len(program.entities)
        note_written(
            output,
            f"{count(tables, 'table')}, {count(facets, 'facet')}, {count(exported.items, 'sample item')}",
        )
    else:
        print_text(text, end="")
    out = console(stderr=True)
    if exported.left_out:
        out.print(styled("[yellow]Not in the model[/]:"))
    for one in exported.left_out:
        out.print(styled("  {}: {}.", one.place, one.reason))
    return 0
