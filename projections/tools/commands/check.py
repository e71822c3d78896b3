"""`projections check`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from projections.errors import Problem, RulesError
from projections.tools.commands.options import as_json, document_of, find_rules, rules_argument

__all__ = ["command"]


@click.command("check")
@rules_argument
@click.option(
    "--template",
    "template",
    metavar="FILE",
    help="A SAM or CloudFormation template: say where it does not agree with the rules.",
)
@as_json
def command(file: str | None, rules: str | None, template: str | None, as_json: bool) -> int:
    """Say whether a rule file makes sense, and what each rule does.

    Prints every mistake with its line and column and exits with 1, or each rule with its source, the key of its
    target and what it writes there.

    With --template, says instead where a template does not agree with the rules: keys, indexes, stream, TTL, filters,
    environment, permissions. Notes say what cannot be judged from it; only other findings make the exit code 1.
    """
    from projections.tools.render import json_text

    path = find_rules(file, rules)
    try:
        document = document_of(path)
    except RulesError as error:
        if as_json:
            click.echo(json_text({"problems": [_problem(problem) for problem in error.problems], "rules": []}))
        else:
            _print_problems(error.problems)
        return 1
    if template is not None:
        return _compare(path, document, template, as_json)
    rows = _rows(document)
    if as_json:
        click.echo(json_text({"problems": [], "rules": rows}))
    else:
        _print_rules(path, document, rows)
    return 0


def _compare(path: Path, document: Mapping[str, Any], template: str, as_json: bool) -> int:
    from dataclasses import asdict

    from projections.language.program import Program
    from projections.tools.deployment.agreement import disagreements
    from projections.tools.deployment.cloudformation import read_template
    from projections.tools.deployment.needs import Deployment
    from projections.tools.render import json_text

    found = disagreements(read_template(template), Deployment(str(path), Program.from_document(document)))
    wrong = [finding for finding in found if finding.severity != "note"]
    if as_json:
        click.echo(json_text({"template": template, "findings": [asdict(finding) for finding in found]}))
    else:
        for finding in found:
            click.echo(str(finding))
        noun = "finding" if len(wrong) == 1 else "findings"
        verdict = f"{len(wrong)} {noun}." if wrong else f"✓ {template} agrees with {_near(path)}."
        click.echo(verdict)
    return 1 if wrong else 0


def _problem(problem: Problem) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in ("file", "line", "column", "path", "message")}


def _rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    from projections.tools.lineage import key_text, origins, target_of

    written = origins(document)
    return [
        {
            "rule": name,
            "kind": rule["kind"],
            "from": rule["from"],
            "into": target_of(rule),
            "key": key_text(document, name),
            "writes": {a: o.how for a, o in written[target_of(rule)].items() if o.rule == name},
            "mode": rule["mode"],
        }
        for name, rule in document["projections"].items()
    ]


def _print_problems(problems: tuple[Problem, ...]) -> None:
    from rich.markup import escape

    from projections.tools.render import console

    out = console()
    for problem in problems:
        place = escape(f"{problem.file}:{problem.line}:{problem.column}:")
        out.print(f"[bold]{place}[/] [cyan]{escape(problem.path)}[/]: {escape(problem.message)}", soft_wrap=True)
    noun = "mistake" if len(problems) == 1 else "mistakes"
    print(f"{len(problems)} {noun}.", file=sys.stderr)


def _print_rules(path: Path, document: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape

    from projections.tools.lineage import conditions
    from projections.tools.render import console, print_grid

    out = console()
    for row in rows:
        where = document["projections"][row["rule"]]["where"]
        only = f" where {escape(conditions(where))}" if where else ""
        mode = f" [yellow]({row['mode']})[/]" if row["mode"] != "live" else ""
        target = "on the same item" if row["kind"] == "index" else f"→ {row['into']}"
        out.print(
            f"[bold cyan]{escape(row['rule'])}[/]{mode}  {row['kind']} of {row['from']}{only} {target}"
            f"  [dim]{escape(row['key'])}[/]",
            soft_wrap=True,
        )
        print_grid(out, [[(attribute, ""), (how, "dim")] for attribute, how in row["writes"].items()])
    noun = "rule" if len(rows) == 1 else "rules"
    out.print(f"[green]✓[/] {escape(_near(path))}: {len(rows)} {noun}, no mistakes.", soft_wrap=True)


def _near(path: Path) -> str:
    """A path as seen from here, if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else str(path)
