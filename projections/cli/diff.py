"""`projections diff`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from projections.cli.options import as_json, find_rules, rules_option
from projections.errors import UsageError
from projections.terminal import console, json_text, print_text

__all__ = ["command"]


@click.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new", required=False, metavar="[NEW]")
@rules_option
@click.option("--markdown", is_flag=True, help="Print Markdown, for a comment on a pull request.")
@as_json
def command(old: str, new: str | None, rules: str | None, markdown: bool, as_json: bool) -> int:
    """Show what a change of rules requires: backfills, deletions, cost and redeployment.

    OLD and NEW are rule files, the output of `check --json`, or the rules.json of a deployed package. NEW defaults to
    --rules. Also prints which targets change, and which attributes get another owner. Exits with 1 if anything needs to be
    done.

    \b
    Example:
      git show main:rules.yaml > /tmp/old.yaml && projections diff /tmp/old.yaml rules.yaml
    """
    from projections.cli.printing.diff import as_data, as_markdown, print_difference
    from projections.inspect.diff.difference import difference

    if new and rules:
        raise UsageError(f"two new rule files: {new} and {rules}. Pass only one")
    before, after = _path(old), _path(new) if new else find_rules(rules)
    found = difference(_document(before), _document(after))
    if as_json:
        print_text(json_text(as_data(found)))
    elif markdown:
        print_text(as_markdown(found, before.name, after.name))
    else:
        print_difference(console(), found, str(before), str(after))
    return 1 if found.findings else 0


def _path(name: str) -> Path:
    """Return the path of a rule file: any file that can be read, including a pipe, or a bundled one."""
    path = Path(name)
    return path if path.exists() and not path.is_dir() else find_rules(name)


def _document(path: Path) -> dict[str, Any]:
    """Return the canonical rules of a file, even if this version cannot execute them. Raises RulesError or UsageError."""
    from projections.language.canonical import FORMAT
    from projections.language.files import text_of_file
    from projections.language.loader import loads
    from projections.language.program import Program

    try:
        text = text_of_file(path)
    except UnicodeDecodeError:
        raise UsageError(f"{path}: cannot be read: it is not UTF-8") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if '"format"' in text:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict) and isinstance(document.get("document"), dict):
            document = document["document"]
        if isinstance(document, dict) and "format" in document and "guard_prefix" in document:
            if document["format"] != FORMAT:
                raise UsageError(
                    f"{path}: compiled by another version (format {document['format']}; this version reads {FORMAT})"
                )
            try:
                Program.from_document(document)
            except Exception as error:
                raise UsageError(f"{path}: invalid canonical rules: {error!r}") from None
            return document
    return loads(text, str(path), executable=False).canonical()
