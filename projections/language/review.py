"""Static analysis of a rule file: its mistakes, or else its findings.

A comment accepts a finding, on the same line or on a line of its own above it:

    GSI1PK: BOARD # check: ignore hot-partition
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from projections.errors import RulesError
from projections.language.findings.families import rule_remarks
from projections.language.findings.kinds import CODES, MISTAKE, SEVERITIES, UNUSED_IGNORE, Finding, Remark
from projections.language.findings.queries import queries
from projections.language.findings.rule_facts import Facts
from projections.language.loader import problems, source_of, text_of, understand
from projections.language.models import Rules
from projections.language.source import Source
from projections.language.syntax import Mistake, dotted, suggest

_COMMENT = re.compile(r"(?:^|\s)#\s*check:\s*ignore\s+([\w-]+(?:\s*,\s*[\w-]+)*)")


class Review(NamedTuple):
    """The findings of a rule file, in its order, without those that comments accept. `rules` is None if it has mistakes."""

    rules: Rules | None
    findings: tuple[Finding, ...]


def review(path: str | Path, file: str | None = None) -> Review:
    """Return the findings of a rule file, which they call `file`. Mistakes are findings, too: none is raised."""
    try:
        return review_text(text_of(path), file or str(path), path)
    except RulesError as error:
        return Review(None, tuple(_mistaken(error)))


def review_text(text: str, file: str = "<rules>", path: str | Path | None = None) -> Review:
    """Return the findings of the text of a rule file, which they call `file`; `path` is where it is."""
    try:
        source = source_of(text, file, path)
        rules, mistakes = understand(source)
        if mistakes or rules is None:
            raise RulesError(problems(mistakes, source))
    except RulesError as error:
        return Review(None, tuple(_mistaken(error)))
    findings: list[Finding] = []
    facts = Facts(rules)
    held = (
        remark
        for remark in (*rule_remarks(facts), *queries(facts))
        if not (remark.unquoted and source.is_quoted(source.path_in_file(remark.path)))
    )
    placed = dict.fromkeys(_finding(remark, source) for remark in held)
    for part in {part_source.file: part_source for part_source in (source, *source.parts.values())}.values():
        findings += _judge(part.text, part.file, [finding for finding in placed if finding.file == part.file])
    order = sorted(
        findings,
        key=lambda finding: (
            finding.file,
            finding.line,
            finding.column,
            SEVERITIES.index(finding.severity),
            finding.code,
        ),
    )
    return Review(rules, tuple(order))


def _mistaken(error: RulesError) -> Iterator[Finding]:
    for problem in error.problems:
        first, _, rest = problem.path.partition(".")
        rule = rest.split(".")[0].split("[")[0] if first == "projections" and rest else None
        yield Finding(
            "error", MISTAKE.code, problem.file, problem.line, problem.column, problem.path, rule, problem.message, ""
        )


def _finding(remark: Remark, source: Source) -> Finding:
    located = source.locate(Mistake(remark.path, "", remark.offset, remark.at_key))
    return Finding(
        remark.severity,
        remark.kind.code,
        *source.place(located),
        dotted(located.path),
        remark.rule,
        remark.reason,
        remark.instead,
        remark.paste,
    )


# --- accepted findings ---


def _judge(text: str, file: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings that no comment accepts, and comments without effect. Errors cannot be accepted."""
    comments = _comments(text)
    used: set[tuple[int, str]] = set()
    for finding in findings:
        places = {place for place in comments.get(finding.line, ()) if place[2] == finding.code}
        if places and finding.severity != "error":
            used.update((line, code) for line, _, code in places)
        else:
            yield finding
    for line, column, code in dict.fromkeys(place for places in comments.values() for place in places):
        if (line, code) not in used:
            if code in CODES:
                reason, instead = f"there is no {code} finding here", "remove the comment"
            else:
                reason = f'unknown finding "{code}"{suggest(code, CODES)}'
                instead = "correct the code, which docs/findings.md explains, or remove the comment"
            yield Finding("note", UNUSED_IGNORE.code, file, line, column, "(comment)", None, reason, instead)


def _comments(text: str) -> dict[int, list[tuple[int, int, str]]]:
    """Return by line the (line, column, code) of each code in comments that apply to it."""
    codes: dict[int, list[tuple[int, int, str]]] = {}
    above: list[tuple[int, int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        named = _COMMENT.search(line)
        column = line.index("#", named.start()) + 1 if named else 0
        here = [(number, column, code.strip()) for code in named[1].split(",")] if named else []
        if line.lstrip().startswith("#"):
            above += here
        elif line.strip():
            if above or here:
                codes[number] = above + here
            above = []
    if above:
        codes[0] = above
    return codes
