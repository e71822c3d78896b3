"""`projections check`."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import as_json, find_rules, program_of
from projections.errors import UsageError
from projections.terminal import count, markup, print_grid, print_json, print_line, print_markup

if TYPE_CHECKING:
    from projections.language.findings.kinds import Finding
    from projections.language.models import Rules


COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}


@click.command("check")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--template", metavar="FILE", help="Compare this SAM or CloudFormation template with the rules instead.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of rule files, for editors.")
@as_json
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note"]),
    default="warning",
    show_default=True,
    help="Lowest severity that makes the exit code 1.",
)
def command(files: tuple[str, ...], template: str | None, schema: bool, as_json: bool, fail_on: str) -> int:
    """Validate and lint rule files, or compare a template with one.

    Prints each rule with its source, the key of its target, what it writes, and the kind and cost of the write. Then prints
    the findings: errors (the rules cannot be used, or a rule can never work), warnings (the rules will probably fail for
    some items, or under load) and notes (often intended, but worth knowing). docs/findings.md explains each code.

    Exits with 1 if there are errors or warnings; --fail-on changes that. To accept a warning or note, add a comment on the
    same line or on the line above it:

    \b
      GSI1PK: BOARD  # check: ignore hot-partition

    With --template, compares keys, indexes, stream, TTL, filters, environment and permissions of a template with the rules.
    Notes list the parts that cannot be checked.

    `document` of --json has the canonical rules, as the deployed functions read them; null if the file has mistakes.

    An editor with the YAML language server needs the schema, named in the first line of a rule file:

    \b
      # yaml-language-server: $schema=rules.schema.json

    \b
    Examples:
      projections check rules.yaml
      projections check rules.yaml --template template.yaml
      projections check --schema > rules.schema.json
    """
    if schema:
        from projections.language.schema import json_schema

        print_json(json_schema())
        return 0
    paths = [find_rules(file) for file in dict.fromkeys(files)] or [find_rules()]
    if len(paths) > 1 and (template is not None or as_json):
        raise UsageError(f"{' and '.join(map(str, paths))}: --template and --json take one rule file")
    if template is not None:
        return _compare(paths[0], template, as_json, fail_on)
    return max(_check(path, as_json, fail_on) for path in paths)


def _check(path: Path, as_json: bool, fail_on: str) -> int:
    from projections.language.review import review

    reviewed = review(path, _near(path))
    if any(finding.paste for finding in reviewed.findings):
        from projections.testing.counterexamples import check_additions

        reviewed = check_additions(reviewed)
    rows = _rows(reviewed.rules) if reviewed.rules is not None else []
    if as_json:
        findings = [asdict(finding) for finding in reviewed.findings]
        document = reviewed.rules.document() if reviewed.rules is not None else None
        print_json({"findings": findings, "rules": rows, "document": document})
    else:
        _print(rows, reviewed.findings, _near(path))
    return int(any(_as_bad(finding.severity, fail_on) for finding in reviewed.findings))


def _compare(path: Path, template: str, as_json: bool, fail_on: str) -> int:
    from projections.deploy.agreement import disagreements
    from projections.deploy.cloudformation import read_template
    from projections.deploy.needs import Deployment

    findings = disagreements(read_template(template), Deployment(str(path), program_of(str(path))))
    if as_json:
        print_json({"template": template, "findings": [asdict(finding) for finding in findings]})
    else:
        wrong = sum(finding.severity != "note" for finding in findings)
        again = _again(Path(template), path) if wrong else ""
        before = ""
        for finding in findings:
            # The filters of a table, which take many lines, are the correction of each entity that they lack.
            instead = "" if again else "as above" if finding.instead == before else finding.instead
            print_line(str(replace(finding, instead=instead)))
            before = finding.instead
        print_line(f"{count(wrong, 'finding')}." if wrong else f"✓ {template} agrees with {_near(path)}.")
        if again:
            print_line(f"{template} was not edited since it was generated. Generate it again: {again}")
    return int(any(_as_bad(finding.severity, fail_on) for finding in findings))


def _again(template: Path, rules: Path) -> str:
    """Return the command that generates a template again. Empty if it was edited since, or not generated."""
    from projections.deploy.checksum import is_as_written

    text = template.read_text(encoding="utf-8")
    header = re.search("^# Written by `projections template .*?((?: --[a-z-]+)*)`", text, re.MULTILINE)
    if header is None or not is_as_written(text):
        return ""
    return f"projections template {shlex.quote(_near(rules))}{header[1]} -o {shlex.quote(str(template))}"


def _as_bad(severity: str, limit: str) -> bool:
    from projections.language.findings.kinds import SEVERITIES

    severities: list[str] = [*SEVERITIES]
    return severities.index(severity) <= severities.index(limit)


def _rows(rules: Rules) -> list[dict[str, Any]]:
    from projections.inspect.write_paths import path_of
    from projections.language.facts import chains, entity_key, inputs, key_text, origins, where_text
    from projections.language.findings.rule_facts import Facts

    facts = Facts(rules)
    complete, keys = facts.complete, facts.target_keys
    written, passes, before = origins(complete), chains(rules), inputs(complete)
    return [
        {
            "rule": name,
            "kind": rule.kind,
            "from": [*rule.sources] if len(rule.sources) > 1 else rule.source,
            "into": rule.into,
            "where": where_text(rule),
            "sourceKey": " or ".join(dict.fromkeys(entity_key(complete, source) for source in rule.sources)),
            "key": key_text(complete, rule),
            "writes": {a: o.how for a, o in written[rule.into].items() if o.rule == name},
            "hold": rule.hold,
            "description": rule.description,
            "owner": rule.owner,
            "tags": rule.tags,
            "within": rule.within,
            "path": path_of(complete, name)._asdict(),
            "fromAttributes": [
                *dict.fromkeys(a for each in rule.sources if (key := keys.get((name, each))) for a in key.attributes)
            ],
            "after": list(before[name]),
            "passes": len(passes[name]),
        }
        for name, rule in complete.projections.items()
    ]


# --- for people ---


def _print(rows: list[dict[str, Any]], findings: tuple[Finding, ...], file: str) -> None:
    names = {row["rule"] for row in rows}
    for row in rows:
        _print_rule(row, [finding for finding in findings if finding.rule == row["rule"]])
    _print_findings([finding for finding in findings if finding.rule not in names])
    _print_summary(file, rows, findings)


def _print_rule(row: Mapping[str, Any], findings: list[Finding]) -> None:
    from projections.language.kinds import WritePath
    from projections.language.models import ACTIONS

    only = f" where {row['where']}" if row["where"] else ""
    sources = row["from"] if isinstance(row["from"], str) else " and ".join(row["from"])
    hold = markup(" [yellow](held)[/]") if row["hold"] else ""
    target = "on the same item" if ACTIONS[row["kind"]].on_source else f"→ {row['into']}"
    print_markup(
        "[bold cyan]{}[/]{}  {} of {}{} {}  [dim]{}[/]",
        row["rule"],
        hold,
        row["kind"],
        sources,
        only,
        target,
        row["key"],
    )
    facts = [f"owner: {row['owner']}"] if row["owner"] else []
    facts += [f"tags: {', '.join(row['tags'])}"] if row["tags"] else []
    facts += [f"within: {row['within']} s"] if row["within"] else []
    for text in filter(None, (row["description"], "; ".join(facts))):
        print_markup("  [dim]{}[/]", text)
    print_grid([[(attribute, ""), (how, "dim")] for attribute, how in row["writes"].items()], after="")
    if row["fromAttributes"]:
        names = ", ".join(f"{{{name}}}" for name in row["fromAttributes"])
        print_markup("  [dim]key: {} of the attributes of {}.[/]", names, sources)
    taken = WritePath(**row["path"])
    name = f"{taken.name}: " if taken.name != row["kind"] else ""
    print_markup("  [dim]path: {}. {}.[/]", name + taken.how, taken.units)
    if row["after"]:
        passes = f"{row['passes']} passes through the stream" if row["passes"] > 1 else "in the same write"
        print_markup("  [dim]after {}: {}.[/]", ", ".join(row["after"]), passes)
    _print_findings(findings, "  ")
    if not findings:
        print_line()


def _print_findings(findings: list[Finding], indent: str = "") -> None:
    for finding in findings:
        colour = COLOURS[finding.severity]
        place = f"{finding.file}:{finding.line}:{finding.column}:"
        code = markup(" [dim]{}[/]", f"[{finding.code}]") if finding.code != "mistake" else ""
        print_markup(
            "{}[bold]{}[/] [cyan]{}[/]: [{}]{}[/]{}: {}",
            indent,
            place,
            finding.path,
            colour,
            finding.severity,
            code,
            finding.reason,
        )
        if finding.instead:
            print_markup("{}  [green]→[/] {}", indent, finding.instead + ":" * bool(finding.paste))
        for line in finding.paste.splitlines():
            print_markup("{}      [cyan]{}[/]", indent, line)
    if findings:
        print_line()


def _print_summary(file: str, rows: list[dict[str, Any]], findings: tuple[Finding, ...]) -> None:
    counts = Counter(finding.severity for finding in findings)
    parts = [count(counts["error"], "error")] if counts["error"] else ["no errors"]
    parts += [count(counts[severity], severity) for severity in ("warning", "note") if counts[severity]]
    colour, mark = ("red", "✗") if counts["error"] else ("yellow", "!") if counts["warning"] else ("green", "✓")
    rules = f"{count(len(rows), 'rule')}, " if rows or not counts["error"] else ""
    print_markup("[{}]{}[/] {}: {}{}.", colour, mark, file, rules, ", ".join(parts))


def _near(path: Path) -> str:
    """Return a path relative to the working directory, if it is in it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else str(path)
