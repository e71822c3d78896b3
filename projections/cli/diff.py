"""`projections diff`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from projections.cli.options import as_json, find_rules
from projections.errors import UsageError
from projections.language.measures import FUNCTIONS, Measure
from projections.printable import printable
from projections.terminal import markup, print_json, print_line, print_text

if TYPE_CHECKING:
    from projections.inspect.diff.changed_rules import Part
    from projections.inspect.diff.difference import Difference, OwnerChange, RuleDifference


@click.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new", required=False, metavar="[NEW]")
@click.option("--markdown", is_flag=True, help="Print Markdown, for a comment on a pull request.")
@as_json
def command(old: str, new: str | None, markdown: bool, as_json: bool) -> int:
    """Show what a change of rules requires: what is filled and deleted, and what to deploy.

    OLD and NEW are rule files, the output of `check --json`, or the rules.json of a deployed package. NEW defaults to the
    rule file here. Also prints which targets change, and which attributes get another owner. Exits with 1 if anything needs
    to be done.

    \b
    Example:
      git show main:rules.yaml > /tmp/old.yaml && projections diff /tmp/old.yaml rules.yaml
    """
    from projections.inspect.diff.difference import difference

    before, after = _path(old), _path(new) if new else find_rules()
    differences = difference(_document(before), _document(after))
    if as_json:
        print_json(as_data(differences))
    elif markdown:
        print_text(as_markdown(differences, before.name, after.name))
    else:
        print_difference(differences, str(before), str(after))
    return 1 if differences.findings else 0


def _path(name: str) -> Path:
    """Return the path of a rule file: any file that can be read, including a pipe, or a bundled one."""
    path = Path(name)
    return path if path.exists() and not path.is_dir() else find_rules(name)


def _document(path: Path) -> dict[str, Any]:
    """Return the canonical rules of a file, even if this version cannot execute them. Raises RulesError or UsageError."""
    from projections.language.files import text_of_file
    from projections.language.kinds import FORMAT
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
    return loads(text, str(path)).document()


_SIGNS = {"new": "+", "changed": "~", "removed": "-", "retired": "-"}
_STYLES = {"new": "green", "changed": "yellow", "removed": "bold red", "retired": "red"}
_TICK = "\x01"
"""Replaces a backtick within code. Printable text does not have it."""
_LONGEST = 100
"""Maximum characters of a value."""


class Line(NamedTuple):
    """One line. Text between backticks, from `_code`, is in the notation of rule files."""

    kind: Literal["title", "heading", "rule", "item", "text"]
    text: str
    status: str = ""


def _lines(difference: Difference, old: str, new: str, brief: bool = False, steps: bool = True) -> Iterator[Line]:
    yield Line("title", f"{old} → {new}")
    yield Line("text", _summary(difference))
    for rule in difference.rules:
        yield from _rule(difference, rule)
    if brief:
        return
    if shared := list(dict.fromkeys(_part(p) for rule in difference.rules for p in rule.change.parts if p.shared)):
        yield Line("heading", "Entities and tables")
        yield from (Line("item", text) for text in shared)
    if difference.owners:
        yield Line("heading", "Who writes what")
        for owner in difference.owners:
            attribute = _code(f"{owner.entity}.{owner.attribute}")
            change = f"{attribute}: {_owner(owner, owner.before)} → {_owner(owner, owner.after)}"
            yield Line("item", f"{change}; {owner.note}" if owner.note else change)
    if difference.deployment or difference.impossible:
        yield Line("heading", "Changes of the template")
        yield from (Line("item", reason) for reason in (*difference.impossible, *difference.deployment))
    if difference.findings and steps:
        yield Line("heading", "What to do")
        yield from (Line("item", f"{number}. {step}") for number, step in enumerate(difference.steps(), 1))


def _owner(owner: OwnerChange, rule: str | None) -> str:
    return _code(rule) if rule else "no rule" if owner.made else "the application"


def _summary(difference: Difference) -> str:
    counts = dict.fromkeys(_SIGNS, 0)
    for rule in difference.rules:
        counts[rule.change.status] += 1
    parts = [f"{number} {status}" for status, number in counts.items() if number]
    parts.append(f"{difference.unchanged} unchanged")
    text = f"Rules: {', '.join(parts)}."
    return text if difference.findings else f"{text} Nothing to do."


def _rule(difference: Difference, rule: RuleDifference) -> Iterator[Line]:
    change = rule.change
    target = change.target_after or change.target_before
    status = f"{change.status} ({change.fate})" if change.fate else change.status
    yield Line(
        "rule", f"{_code(change.rule)} {status}: {change.kind} of {change.source} → {_code(target)}", change.status
    )
    if change.moved:
        yield Line("item", f"target: {_code(change.target_before)} → {_code(change.target_after)}")
    yield from (Line("item", _part(part)) for part in change.parts if not part.shared)
    if names := ", ".join(_code(part.name) for part in change.parts if part.shared):
        yield Line("item", f"through {names}")
    for gone, fresh, surely in difference.renamed:
        if change.rule in (gone, fresh):
            other = fresh if change.rule == gone else gone
            yield Line("item", f"{'is' if surely else 'may be'} {_code(other)} with another name")
    for items in rule.deletions:
        yield Line("item", f"deletes: {items}")
    if rule.fill:
        yield Line("item", f"is filled from the items that exist: {'; '.join(rule.fill)}")
    if rule.advice:
        yield Line("item", rule.advice)


def _part(part: Part) -> str:
    if part.before is None:
        return f"{part.name} added: {_code(_short(part.after))}"
    if part.after is None:
        return f"{part.name} removed, was: {_code(_short(part.before))}"
    return f"{part.name}: {_code(_short(part.before))} → {_code(_short(part.after))}"


def _code(text: object) -> str:
    return f"`{printable(str(text)).replace('`', _TICK)}`"


def _spans(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a line, and whether each is code."""
    for number, part in enumerate(text.split("`")):
        yield printable(part.replace(_TICK, "`")), number % 2 == 1


def _short(value: Any) -> str:
    text = (
        value
        if isinstance(value, str)
        else _measure(value) or _single(value) or json.dumps(_plain(value), ensure_ascii=False)
    )
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _single(value: Any) -> str | None:
    """Return the only case of a computed attribute in the notation of rules, or None for other values."""
    match value:
        case [{"value": str(text), **rest}] if not rest:
            return text
    return None


def _measure(value: Any) -> str | None:
    """Return a measure in the notation of rules, `max(stars)`, or None for other values."""
    from projections.language.kinds.aggregate import measure_words

    if not isinstance(value, Mapping) or value.keys().isdisjoint(FUNCTIONS):
        return None
    return measure_words(Measure.parse(value))


def _plain(value: Any) -> Any:
    """Return a value without absent parts."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def print_difference(difference: Difference, old: str, new: str, *, brief: bool = False, steps: bool = True) -> None:
    """Print a difference; if `brief`, only that of the rules; without `steps`, not what to do."""
    for line in _lines(difference, old, new, brief, steps):
        bold = line.kind in ("title", "heading")
        text = markup("    " if line.kind == "item" else "")
        if line.kind == "rule":
            text = markup("[{}]{} [/]", _STYLES[line.status], _SIGNS[line.status])
        for part, code in _spans(line.text):
            text += markup("[cyan]{}[/]", part) if code else markup("[bold]{}[/]", part) if bold else part
        if line.kind in ("rule", "heading"):
            print_line()
        print_line(text)


def as_markdown(difference: Difference, old: str, new: str) -> str:
    """Return a difference as Markdown."""
    lines: list[str] = []
    for line in _lines(difference, old, new):
        text = "".join(_code_span(part) if code else _escape(part) for part, code in _spans(line.text))
        match line.kind:
            case "title":
                lines += [f"### Rules: {text}", ""]
            case "heading":
                lines += ["", f"#### {text}", ""]
            case "rule":
                lines += ["", f"**{_SIGNS[line.status]}** {text}", ""]
            case "item":
                lines.append(text if text[:1].isdigit() else f"- {text}")
            case _:
                lines += ["", text]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines) + "\n")


def _code_span(text: str) -> str:
    """Return a code span. Its fence is longer than any run of backticks in it."""
    safe = printable(text)
    fence = "`" * max([1, *(len(run) + 1 for run in re.findall("`+", safe))])
    padded = f" {safe} " if safe.startswith("`") or safe.endswith("`") or not safe.strip() else safe
    return fence + padded + fence


def _escape(text: str) -> str:
    """Return a text without HTML, links and pictures of Markdown."""
    return re.sub(r"[<&\[\]]", lambda match: f"&#{ord(match[0])};", text)


def as_data(difference: Difference) -> dict[str, Any]:
    """Return a difference as JSON."""
    return {
        "needsDoing": difference.findings,
        "rules": [_rule_data(rule) for rule in difference.rules],
        "renamed": [{"from": gone, "to": fresh, "sure": surely} for gone, fresh, surely in difference.renamed],
        "owners": [
            {
                "entity": owner.entity,
                "attribute": owner.attribute,
                "before": owner.before,
                "after": owner.after,
                "madeByRules": owner.made,
                "note": owner.note,
            }
            for owner in difference.owners
        ],
        "template": list(difference.deployment),
        "impossible": list(difference.impossible),
        "newIndexes": [{"table": table, "index": index} for table, index in difference.indexes],
        "steps": list(difference.steps()),
        "unchanged": difference.unchanged,
    }


def _rule_data(rule: RuleDifference) -> dict[str, Any]:
    change = rule.change
    targets = {
        when: None if target is None else {"entity": target.entity, "key": target.key}
        for when, target in (("before", change.target_before), ("after", change.target_after))
    }
    return {
        "rule": change.rule,
        "status": change.status,
        "retired": change.fate,
        "kind": change.kind,
        "target": targets,
        "parts": [{"part": part.name, "before": part.before, "after": part.after} for part in change.parts],
        "deletions": list(rule.deletions),
        "fill": list(rule.fill),
        "advice": rule.advice,
    }
