"""docs/errors.md: exit codes, errors of the Python API, and every reason in the code, with cause and way out.

The texts are those of the code: `reasons.yaml` repeats them as keys, and the page cannot be written unless both agree.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click
from guide import ROOT
from ruamel.yaml import YAML

import projections
from projections.cli.main import BUG, COMMANDS, WRONG, cli
from projections.engine.processor import OUTDATED
from projections.errors import ProjectionsError

__all__ = ["errors_page", "exceptions", "reasons_in_code"]

RAISED = ("BadInput", "DamagedGroup", "Occupied")
"""Errors that make a rejection: their messages are its reason."""

CONSTANTS = {"engine/limits.py": "_LIMITS", "operations/tasks.py": "_NO_TASK"}
"""Messages that are not where the error is raised."""

FUNCTIONS = {
    "aws/wiring.py": "_unusable", "engine/rejections.py": "internal_reason", "language/digits.py": "_too_long",
}  # fmt: skip
"""Functions that return a reason."""

INTRODUCTION = """\
# Errors

<!-- Written by tests/docs/reference.py from the code, its docstrings and tests/docs/reasons.yaml. -->

Messages name the place, the value and what to do. This page is for searching: it lists exit codes, errors that Python
functions raise, and every reason for which a record is rejected. In messages, `…` stands for names and values.

- [Exit codes](#exit-codes) · [Errors in Python](#errors-in-python) · [Reasons](#reasons)
- Elsewhere: [findings of `check`](findings.md) · [alarms](operations.md#alarms) · [mistakes in rules](rules.md#mistakes)

## Exit codes

| code | meaning |
| --- | --- |
| 0 | success: no action is needed |
| 1 | the command found something; see the table below |
| {wrong} | wrong usage, an invalid file, or a failed request. One message on standard error names the reason |
| {bug} | an internal error. Please report it; `PROJECTIONS_DEBUG=1` prints the traceback |
| 130 | interrupted (Ctrl-C) |

These commands exit with 1. Commands with the option `-o` also exit with 1 if you decline to overwrite a file that was
edited. All others exit with 0 or with one of the other codes:

"""

PYTHON = r"""
## Errors in Python

All errors that this package raises on purpose are subclasses of `ProjectionsError`. Exceptions of boto3 are translated:
catch `Transient` to try again, and `StoreError` for all failures of DynamoDB and other services. `str(error)` is the
message.

```python
>>> import projections
>>> try:
...     projections.loads("table: {key: [PK, SK]}\nprojections: {likes: {from: Like}}", file="rules.yaml")
... except projections.RulesError as error:
...     print(error.problems[0])
rules.yaml:1:1: (top): needs `entities`

```

"""

REASONS = """
## Reasons

A rule that cannot use a record *rejects* it: the other rules apply, and the record goes to the quarantine with its reason
([QuarantineAlarm](operations.md#quarantinealarm)). If an item has a mistake, the rule contributes nothing for it until it is
corrected. A [`compute`](rules.md#compute) rule rejects nothing: attributes that need the value are absent, and
`projections explain` shows the reason.

`projections redrive --list` shows the messages; [handle them](how-to/handle-a-bad-record.md). In the log of the functions,
lines begin with `rejected:`, or with `to be retried:` if the batch is delivered again (see
[IteratorAgeAlarm](operations.md#iteratoragealarm)).

"""


OTHERS = """\
### Settings of the functions

With a wrong setting, a function fails when it starts, and its log has one of these messages. The template sets all of them.
"""

AGAIN = """
### Batches that are delivered again

Log lines `to be retried: …` have these reasons, or the error of DynamoDB after four attempts. Lambda delivers the batch
again, and nothing counts twice. One line is not a problem: another process or a fast writer changed the same items. If they
continue, see [IteratorAgeAlarm](operations.md#iteratoragealarm).
"""


def text_of(node: ast.expr) -> str:
    """Return the text that an expression makes, with `…` for each value."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    return ""


@cache
def reasons_in_code() -> Mapping[str, frozenset[str]]:
    """Return the module of each reason in the code, as a path below `projections/`; of several, all."""
    found: dict[str, set[str]] = {}
    for package in ("language", "engine", "operations", "aws"):
        for path in sorted((ROOT / "projections" / package).rglob("*.py")):
            module = path.relative_to(ROOT / "projections").as_posix()
            for text in _reasons(module, ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(text, set()).add(module)
    return {text: frozenset(modules) for text, modules in found.items()}


def _reasons(module: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RAISED and node.args:
            if text := text_of(node.args[0]):
                yield text
        elif isinstance(node, ast.FunctionDef) and node.name == FUNCTIONS.get(module):
            yield from (
                text
                for one in ast.walk(node)
                if isinstance(one, ast.Return) and one.value
                if (text := text_of(one.value)) and text != "None"
            )
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == CONSTANTS.get(module):
            parts = (
                [node.value]
                if isinstance(node.value, ast.Constant)
                else [one.elts[1] for one in getattr(node.value, "elts", [])]
            )
            yield from (re.sub(r"\{\w+\}", "…", text_of(one)) for one in parts)


@cache
def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = YAML(typ="safe").load((Path(__file__).parent / "reasons.yaml").read_text())
    return found


def exceptions() -> list[type[ProjectionsError]]:
    """Return the public errors, each after the one that it is derived from."""
    found = [one for name in projections.__all__ if isinstance(one := getattr(projections, name), type)]
    errors = [one for one in found if issubclass(one, ProjectionsError)]
    return sorted(errors, key=lambda one: [base.__name__ for base in reversed(one.__mro__)])


WAYS_OUT = {
    "ProjectionsError": "Catch it to report any error of this package.",
    "RulesError": "`problems` has every mistake with its place. Correct the rule file; `projections check` prints the same.",
    "UsageError": "Correct the argument that the message names.",
    "StoreError": "If it is neither of the two below, a request is invalid: please report it with its message.",
    "Transient": "Call again after a pause. The operations of this package can be repeated: nothing counts twice.",
    "Misconfigured": "Retrying does not help. Correct the name of the table, the Region, the credentials or the permission.",
}
"""What to do about each public error."""


def errors_page() -> str:
    """Return docs/errors.md."""
    lines = ["| command | exits with 1 if |", "| --- | --- |", *_exits()]
    text = INTRODUCTION.format(wrong=WRONG, bug=BUG) + "\n".join(lines) + "\n" + PYTHON
    lines = ["| error | is a | raised | what to do |", "| --- | --- | --- | --- |"]
    for one in exceptions():
        first = " ".join(inspect.cleandoc(one.__doc__ or "").split("\n\n")[0].split())
        lines.append(f"| `{one.__name__}` | `{one.__bases__[0].__name__}` | {first} | {WAYS_OUT[one.__name__]} |")
    text += "\n".join(lines) + "\n" + REASONS
    return text + "\n\n".join([*(_group(group) for group in groups()), _others()]) + "\n"


def _others() -> str:
    """Return the messages of settings and of batches that are delivered again, which contain what to do."""
    settings = sorted(texts("Misconfigured", ["aws/wiring.py"]))
    again = [OUTDATED, *sorted(texts("Transient", ["engine"]) | texts("OutOfTime", ["engine"]))]
    lines = [OTHERS, *(f"- {_code(text)}" for text in settings), AGAIN, *(f"- {_code(text)}" for text in again)]
    return "\n".join(lines)


def texts(error: str, modules: list[str]) -> set[str]:
    """Return the messages with which code raises an error."""
    found = set()
    for path in sorted((ROOT / "projections").rglob("*.py")):
        if path.relative_to(ROOT / "projections").as_posix().startswith(tuple(modules)):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id == error
                    and node.args
                ):
                    found.add(text_of(node.args[0]))
    return found - {""}


def _group(group: Mapping[str, Any]) -> str:
    lines = [f"### {group['title']}", "", group["about"], "", "| reason | cause | what to do |", "| --- | --- | --- |"]
    for reason, (cause, do) in group["reasons"].items():
        if reason not in reasons_in_code():
            raise SystemExit(f"reasons.yaml has {reason!r}, which is not in the code")
        lines.append(f"| {_code(reason)} | {cause} | {do} |")
    return "\n".join(lines)


def _code(text: str) -> str:
    """Return a reason as text of a cell: without code marks, since reasons have their own."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _exits() -> Iterator[str]:
    context = cli.make_context("projections", [], resilient_parsing=True)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert isinstance(command, click.Command)
        text = " ".join(inspect.cleandoc(command.help or "").split())
        if found := re.search(r"(?:(With \S+), e|E)xits with 1 if ([^.]*)\.", text):
            when = f"{found[1].lower()}: " if found[1] else ""
            yield f"| [{name}](cli.md#{name}) | {when}{found[2].replace('there are any', 'a query has no request')} |"
