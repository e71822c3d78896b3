"""`projections init`."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import as_json, endpoint_options
from projections.errors import UsageError
from projections.terminal import count, markup, print_json, print_line, print_markup

if TYPE_CHECKING:
    from projections.init.data_model import Model
    from projections.init.project import File
    from projections.init.proposal import Proposal, Sample


@click.command("init")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--table", metavar="NAME", help="Infer rules from a sample of this table, which is only read.")
@click.option(
    "--from",
    "source",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Begin with the tables and entities of a data model.",
)
@click.option(
    "--sample-size", type=click.IntRange(1), default=10000, show_default=True, metavar="N", help="Maximum items read."
)
@click.option(
    "--max-reads",
    type=click.FloatRange(1),
    default=100.0,
    show_default=True,
    metavar="N",
    help="Maximum read units per second.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@endpoint_options
@as_json
def command(
    directory: Path,
    table: str | None,
    source: Path | None,
    sample_size: int,
    max_reads: float,
    force: bool,
    endpoint_url: str | None,
    region: str | None,
    as_json: bool,
) -> None:
    """Create a project: rules, events, tests and a SAM template.

    Without --table and --from, the rules are a small example to replace with your own. With --table, the rules are a
    proposal, inferred from a sample of that table: its entities, and rules with `hold: true` for counters and repeated
    attributes that the application seems to maintain itself. Rules that most items agree with are comments; items that
    contradict them are listed. The table is only read (DescribeTable, DescribeTimeToLive, Scan). The files
    have no values from the table, except words in keys and in conditions such as a status.

    With --from, the rule file has the tables, indexes and entities of a NoSQL Workbench data model, a CloudFormation or SAM
    template, or ElectroDB schemas as JSON. Parts that cannot be read are listed, in the output and in rules.yaml.

    \b
    Examples:
      projections init shop
      projections init shop --table app --sample-size 50000
      projections init shop --from model.json
    """
    from projections.init.project import PROPOSED, project_with_example, refuse_existing, write

    project = directory.resolve().name
    if table is not None and source is not None:
        raise UsageError("--table and --from cannot be combined. Pass one of them")
    if table is not None or source is not None:
        refuse_existing(directory, PROPOSED, force=force)  # before reading, which costs
    if source is not None:
        files, report = _from_model(project, source, as_json)
    elif table is not None:
        files, report = _propose(project, table, sample_size, max_reads, endpoint_url, region, as_json)
    else:
        files, report = project_with_example(project), {}
    write(directory, files, force=force)
    if as_json:
        print_json({"directory": str(directory), **report, "files": sorted(files)})
    else:
        _print_end(directory, files)


def _propose(
    project: str, table: str, size: int, rate: float, endpoint_url: str | None, region: str | None, quiet: bool
) -> tuple[dict[str, File], dict[str, Any]]:
    from botocore.exceptions import BotoCoreError

    from projections.aws.clients import client
    from projections.init.infer import infer, without_rejected_parts
    from projections.init.project import project_of_table
    from projections.init.table_sample import describe, estimated_units, read_sample

    try:
        dynamodb = client(endpoint_url=endpoint_url, region=region)
    except BotoCoreError as error:
        raise UsageError(f"table {table}: {error} Pass --region or --endpoint-url") from None
    about = describe(dynamodb, table)
    expected = estimated_units(about, size)
    if not quiet:
        most = f"up to {size:,} of about {about.items:,} items" if about.items > size else f"up to {size:,} items"
        if 0 < about.items <= size:
            most = f"about {count(about.items, 'item')}"
        print_line(f"Reading {most} of {table}: about {expected:,} read units, at most {rate:g} per second.", err=True)
    sample = read_sample(dynamodb, table, size, rate, time.sleep)
    proposal = without_rejected_parts(infer(about, sample))
    files = project_of_table(project, proposal, {table: about.stream_arn})
    if not quiet:
        _print_proposal(proposal, sample)
    return files, {
        **{name: getattr(proposal, name) for name in ("sampled", "complete", "recognised", "separator", "deployed")},
        "table": proposal.table.name,
        "readUnits": {"expected": expected, "consumed": sample.units, "requests": sample.requests},
        "entities": [asdict(entity) for entity in proposal.entities],
        "rules": [{**asdict(rule), "kind": rule.kind, "state": rule.state} for rule in proposal.rules],
        "unknown": [asdict(unknown) for unknown in proposal.unknown],
    }


def _from_model(project: str, source: Path, quiet: bool) -> tuple[dict[str, File], dict[str, Any]]:
    from projections.init.model_reading import read_model
    from projections.init.project import project_of_model

    model = read_model(source)
    if not quiet:
        _print_model(model)
    return project_of_model(project, model), {
        "from": model.file,
        "format": model.form,
        "tables": model.tables,
        "entities": [asdict(entity) for proposal in model.proposals for entity in proposal.entities],
        "unread": [asdict(unread) for unread in model.unread],
    }


def _print_model(model: Model) -> None:
    print_markup("Read {} ({}).", model.file, model.form)
    print_line()
    for proposal, called in zip(model.proposals, model.tables, strict=True):
        key = ", ".join(name for name, _ in proposal.table.key)
        indexes = count(len(proposal.table.indexes), "index", "indexes")
        print_markup("[bold]{}[/]  {}  [dim]{}[/]", called, key, indexes)
        _print_entities(proposal)
    if model.unread:
        print_line()
        print_markup("[yellow]Not read[/]:")
    for unread in model.unread:
        print_markup("  {}: {}.", unread.place, unread.reason)
    print_line()


def _print_proposal(proposal: Proposal, sample: Sample) -> None:
    whole = "all" if proposal.complete else "a sample"
    print_line(
        f"Read {count(proposal.sampled, 'item')} ({whole}): {sample.units:g} read units in "
        f"{count(sample.requests, 'request')}. Nothing was written to the table."
    )
    print_line()
    if not proposal.recognised:
        print_markup("[yellow]No structure was recognised[/]: rules.yaml has one entity for any item, and no rules.")
    _print_entities(proposal)
    if proposal.deployed:
        print_markup("[yellow]Maintained by deployed rules already[/]: see {}", ", ".join(proposal.deployed))
    print_line()
    marks = {
        "held": markup("[green]held[/]     "),
        "possible": markup("[yellow]possible[/] "),
        "uncertain": markup("[yellow]uncertain[/]"),
    }
    for rule in sorted(proposal.rules, key=lambda rule: rule.state == "uncertain"):
        print_markup("{}  [bold]{}[/]  {}", marks[rule.state], rule.name, rule.evidence)
        if (contradiction := rule.contradiction) is not None:
            for phrase in contradiction.differences:
                print_markup("    [dim]-[/] {}", phrase)
            print_markup("    {}.", contradiction.effect)
            if rule.refused:
                print_markup("    {}.", rule.doubt[rule.doubt.index("`projections check`") :])
    if proposal.rules:
        print_line("Rules that are not `held` are comments in rules.yaml: to try one, remove its # signs.")
        print_line(
            f"`projections verify --table {proposal.table.name}` there lists all values that rules would change."
        )
        print_line()


def _print_entities(proposal: Proposal) -> None:
    for entity in proposal.entities:
        key = " · ".join(entity.key.values())
        match = f" where {entity.match[0]} is {entity.match[1]}" if entity.match else ""
        print_markup(
            "[bold cyan]{}[/]  {}  [dim]{}[/]",
            entity.name,
            key + match,
            count(entity.items, "item") if entity.items else "",
        )
    for unknown in proposal.unknown:
        key = " · ".join(unknown.key.values())
        print_markup("[yellow]?[/]  {}  [dim]{}: {}[/]", key, count(unknown.items, "item"), unknown.why)


def _print_end(directory: Path, files: dict[str, File]) -> None:
    names = sorted(files, key=lambda name: ("/" in name, name))
    print_line(f"Wrote {len(names)} files to {directory}: {', '.join(names)}.")
    install = "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"
    print_line(f"Next: cd {shlex.quote(str(directory))} && {install} && make test")
