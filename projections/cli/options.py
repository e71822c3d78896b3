"""Options that several commands have, and files that commands write again and again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from projections.errors import UsageError
from projections.language.files import SHIPPED, bundled_path
from projections.terminal import count, interactive, print_line, print_text

if TYPE_CHECKING:
    from projections.language.program import Program


F = TypeVar("F", bound=Callable[..., Any])


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

output_option = click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="Write to this file."
)
"""--output FILE, for `write_output`."""


def write_output(output: str, text: str) -> None:
    """Write a text to a file. Raises UsageError."""
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: cannot be written: {error.strerror}") from None


def note_written(output: str, what: str = "") -> None:
    """Report on standard error that the file of -o was written, and what it has."""
    print_line(f"Wrote {output}{what and ': '}{what}.", err=True)


# Rules


rules_option = click.option(
    "--rules",
    metavar="FILE",
    help="Rule file, or the name of a bundled one, such as social. [default: $RULES, or ./rules.yaml]",
)

rules_argument = click.argument("rules", required=False, metavar="[FILE]")
"""The rule file as the argument of a command that has no other one, and reads no tables; the others have --rules."""


def find_rules(name: str | None = None) -> Path:
    """Return the path of the rule file. Raises UsageError if there is none."""
    from projections.language.syntax import suggest

    name = name or os.environ.get("RULES", "")
    names = sorted(path.stem for path in SHIPPED.glob("*.yaml"))
    known = ", ".join(names)
    if not name:
        here = [path for path in map(Path, ("rules.yaml", "rules.yml", "rules.json")) if path.is_file()]
        if not here:
            raise UsageError(
                f"no rule file: there is no rules.yaml here. Pass FILE, or --rules FILE to commands that have it, or a "
                f"bundled name: {known}"
            )
        return here[0]
    path = Path(name)
    if path.is_file():
        return path
    shipped = bundled_path(name)
    if shipped is not None:
        return shipped
    if path.is_dir():
        raise UsageError(f"{name}: this is a directory. Name the rule file in it")
    if path.suffix or path.name != name:
        there = [file.name for file in path.parent.glob("*") if file.suffix in (".yaml", ".yml", ".json")]
        raise UsageError(f"{name}: no such file{suggest(path.name, there)}")
    hint = suggest(name, names) or f". Bundled rule files: {known}"
    raise UsageError(f"{name}: no such file, and no bundled rule file has this name{hint}")


def document_of(path: Path) -> dict[str, Any]:
    """Return the canonical rules of a file. Raises RulesError with every mistake in it."""
    from projections.language.loader import load

    return load(path).document()


def program_of(name: str | None) -> Program:
    """Return the compiled rules of the file that `find_rules` finds."""
    from projections.language.program import Program

    return Program.from_document(document_of(find_rules(name)))


def parameters_from(query: str, words: Iterable[str]) -> dict[str, str]:
    """Return the parameters of a query from words as `userId=5`. Raises UsageError."""
    parameters: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"query {query}: expected PARAMETER=VALUE, found {word!r}")
        if name in parameters:
            raise UsageError(f"query {query}: {name} is given twice")
        parameters[name] = value
    return parameters


select_option = click.option(
    "--select",
    multiple=True,
    metavar="RULES",
    help="Only these rules: `name`, `tag:x` or `owner:x`. Separate several by commas, or repeat the option.",
)
"""--select RULES, for `selected_rules` and `RuleSet.only`."""


def selected_rules(program: Program, select: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the rules that --select selects; none without the option. Raises UsageError."""
    if not select:
        return ()
    from projections.language.ruleset import selected

    return selected(program.model, select)


def note_missing(program: Program, names: Iterable[str]) -> None:
    """Print a note for each selected rule that needs one that is not selected."""
    from projections.language.ruleset import missing

    for sentence in missing(program.model, names):
        print_line(f"note: {sentence}.", err=True)


# Options that a command takes as one argument


def as_argument(kind: type, name: str, *options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options and passes their values as one argument, an instance of a dataclass."""

    def decorate(function: F) -> F:
        @wraps(function)
        def command(**arguments: Any) -> Any:
            values = {field.name: arguments.pop(field.name) for field in fields(kind) if field.name in arguments}
            return function(**arguments, **{name: kind(**values)})

        wrapped: Any = command
        for option in reversed(options):
            wrapped = option(wrapped)
        return cast(F, wrapped)

    return decorate


@dataclass(frozen=True, slots=True)
class Tables:
    """The rules, tables and endpoint that the options name, and the stack that has the others."""

    rules: str | None = None
    tables: tuple[str, ...] = ()
    endpoint_url: str | None = None
    region: str | None = None
    ledger: str | None = None
    stack: str | None = None


def endpoint_options(function: F) -> F:
    """--endpoint-url and --region."""
    region = click.option("--region", metavar="NAME", help="AWS Region. [default: from the AWS configuration]")
    return click.option(
        "--endpoint-url", metavar="URL", help="DynamoDB endpoint, for emulators. [default: $AWS_ENDPOINT_URL]"
    )(region(function))


_TABLE = click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="[LOGICAL=]NAME",
    help="Application table; repeat it for each of `tables:`. [default: $TABLE_NAME, $TABLES]",
)
_LEDGER = click.option("--ledger", metavar="NAME", help="Ledger table. [default: $LEDGER_TABLE_NAME]")
_TABLES = (rules_option, _TABLE, _LEDGER, endpoint_options)
_STACK = click.option(
    "--stack",
    metavar="NAME",
    envvar="STACK_NAME",
    help="Use the rules and resources of this deployed stack. Other options replace single resources. "
    "[default: $STACK_NAME]",
)

table_options = as_argument(Tables, "options", *_TABLES)
"""--rules, --table, --ledger, --endpoint-url and --region, as the argument `options`."""

STACK_TABLES = (*_TABLES, _STACK)

stack_options = as_argument(Tables, "options", *STACK_TABLES)
"""The same with --stack."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The queues and the bucket that the options name."""

    quarantine: str | None
    queue: str | None
    dead_letters: str | None
    bucket: str | None


source_options = as_argument(
    Sources,
    "sources",
    click.option(
        "--quarantine", metavar="URL", help="Quarantine queue. [default: from --stack, or $QUARANTINE_QUEUE_URL]"
    ),
    click.option("--queue", metavar="URL", help="Task queue. [default: from --stack, or $TASK_QUEUE_URL]"),
    click.option("--dead-letters", metavar="URL", help="Dead-letter queue of the task queue. [default: from --stack]"),
    click.option("--bucket", metavar="NAME", help="Bucket of discarded batches. [default: from --stack]"),
)
"""--quarantine, --queue, --dead-letters and --bucket, as the argument `sources`."""

DISCARDED = "aws/lambda/"
"""The prefix of the keys under which Lambda stores discarded batches."""


MOST_LINES = 80
"""Lines of the difference of a file that are printed."""


force_option = click.option("--force", is_flag=True, help="Overwrite the file of -o even if it was edited.")
"""--force, for `put_out`."""


def put_out(text: str, output: str | None, what: str = "", *, force: bool) -> bool:
    """Print a text that has a checksum, or write it to the file of -o and report what it has. Return True.

    If the file has no checksum or was edited since it was written, show the difference and ask; return False if the user
    declines. Raises UsageError without a terminal, and if the file cannot be written.
    """
    if output is None:
        print_text(text)
        return True
    if not force and not _replaceable(Path(output), text):
        return False
    write_output(output, text)
    note_written(output, what)
    return True


def _replaceable(path: Path, text: str) -> bool:
    from difflib import unified_diff

    from projections.deploy.checksum import is_as_written, is_generated

    if not path.is_file():
        return True  # there is none, or it is a device or a pipe
    try:
        there = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        there = ""
    if is_as_written(there) or there == text:
        return True
    state = "was edited since it was written" if is_generated(there) else "was not written by this command"
    lines = list(unified_diff(there.splitlines(True), text.splitlines(True), str(path), f"{path} (new)"))
    print_text("".join(lines[:MOST_LINES]))
    if len(lines) > MOST_LINES:
        print_line(f"… and {count(len(lines) - MOST_LINES, 'more line', 'more lines')}")
    reason = f"{path} {state}. Overwriting it discards the lines that begin with -"
    if not interactive():
        raise UsageError(
            f"{reason}. There is no terminal to ask, so nothing was written. Write to another file and merge the two, or "
            "pass --force to overwrite it"
        )
    return click.confirm(f"{reason}. Overwrite it?", default=False)
