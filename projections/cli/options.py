"""What commands have in common: where the rules come from, and --json."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from projections.errors import UsageError

if TYPE_CHECKING:
    from projections.language.models import Rules

__all__ = ["as_json", "document_of", "find_rules", "rules_argument", "rules_option"]

F = TypeVar("F", bound=Callable[..., Any])

SHIPPED = Path(__file__).parents[1] / "rules"


def as_json(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def rules_option(function: F) -> F:
    return click.option(
        "--rules",
        "rules",
        metavar="FILE",
        help="Rule file, or the name of a bundled one, such as social. [default: $RULES, or ./rules.yaml]",
    )(function)


def rules_argument(function: F) -> F:
    """The rule file as an argument, beside --rules."""
    return click.argument("file", required=False, metavar="[FILE]")(rules_option(function))


def find_rules(*given: str | None) -> Path:
    """The rule file that is meant. Raises UsageError if there is none, or two are named."""
    named = [name for name in given if name]
    if len(set(named)) > 1:
        raise UsageError(f"two rule files: {' and '.join(named)}; name one")
    name = named[0] if named else os.environ.get("RULES", "")
    if not name:
        here = [path for path in map(Path, ("rules.yaml", "rules.yml", "rules.json")) if path.is_file()]
        if not here:
            raise UsageError(f"which rules? Name a file with --rules FILE, or one that ships: {', '.join(_shipped())}")
        return here[0]
    path = Path(name)
    if path.is_file():
        return path
    shipped = SHIPPED / f"{name}.yaml"
    if path.name == name and shipped.is_file():
        return shipped
    if path.is_dir():
        raise UsageError(f"{name}: a directory; name the rule file in it")
    raise UsageError(f"{name}: no such file, and none of the rules that ship ({', '.join(_shipped())})")


def document_of(path: Path) -> dict[str, Any]:
    """The canonical rules of a file. Raises RulesError with every mistake in it."""
    return loaded(path).canonical()


def loaded(path: Path) -> Rules:
    from projections.language.loader import load

    return load(path)


def _shipped() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def live_options(function: F) -> F:
    """--rules, --table, --ledger, --endpoint-url and --region."""
    for option in (
        click.option("--region", metavar="NAME", help="AWS Region. [default: of the AWS configuration]"),
        click.option(
            "--endpoint-url", metavar="URL", help="DynamoDB endpoint, for emulators. [default: $AWS_ENDPOINT_URL]"
        ),
        click.option("--ledger", metavar="NAME", help="Ledger table. [default: $LEDGER_TABLE_NAME]"),
        click.option(
            "--table",
            "tables",
            multiple=True,
            metavar="[LOGICAL=]NAME",
            help="Application table; repeat it for each of `tables:`. [default: $TABLE_NAME, $TABLES]",
        ),
        rules_option,
    ):
        function = option(function)
    return function
