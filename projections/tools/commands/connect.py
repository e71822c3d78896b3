"""Commands on live tables: which ones, where, and whether they fit the rules."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from projections.errors import UsageError
from projections.tools.commands.options import document_of, find_rules, rules_option

if TYPE_CHECKING:
    from projections.language.program import Program
    from projections.stores.dynamodb import DynamoDBStore

__all__ = ["Live", "connect", "live_options"]

F = TypeVar("F", bound=Callable[..., Any])

MAIN = "main"


@dataclass(frozen=True, slots=True)
class Live:
    """What a command works on. `names` are the real names of tables by their logical ones, the ledger's included."""

    document: Mapping[str, Any]
    program: Program
    store: DynamoDBStore
    client: Any
    names: Mapping[str, str]


def live_options(function: F) -> F:
    """--rules, --table, --ledger, --endpoint-url and --region."""
    for option in (
        click.option("--region", metavar="NAME", help="The AWS Region. [default: as AWS's own tools]"),
        click.option("--endpoint-url", metavar="URL", help="Another DynamoDB endpoint. [default: $AWS_ENDPOINT_URL]"),
        click.option("--ledger", metavar="NAME", help="The ledger table. [default: $LEDGER_TABLE_NAME]"),
        click.option(
            "--table",
            "tables",
            multiple=True,
            metavar="[LOGICAL=]NAME",
            help="The application's table; one for each of `tables:`. [default: $TABLE_NAME, $TABLES]",
        ),
        rules_option,
    ):
        function = option(function)
    return function


def connect(
    rules: str | None,
    tables: Sequence[str],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    *,
    threads: int = 10,
) -> Live:
    """The tables these options name. Raises UsageError where one is missing or does not fit the rules."""
    from projections.language.program import LEDGER_SCHEMA, Program
    from projections.stores.aws import client
    from projections.stores.dynamodb import DynamoDBStore

    document = document_of(find_rules(rules))
    program = Program.from_document(document)
    names = _names(tables, list(program.tables))
    ledger = ledger or os.environ.get("LEDGER_TABLE_NAME")
    if not ledger:
        raise UsageError("which ledger table? Name it with --ledger NAME or LEDGER_TABLE_NAME; `sam deploy` prints it")
    names["ledger"] = ledger
    dynamodb = client(endpoint_url=endpoint_url, region=region, max_pool_connections=threads)
    schemas = {**program.tables, "ledger": LEDGER_SCHEMA}
    for logical, name in names.items():
        _check(dynamodb, name, schemas[logical])
    return Live(document, program, DynamoDBStore(dynamodb, names, schemas), dynamodb, names)


def _names(given: Sequence[str], logical: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if not given:
        if several := os.environ.get("TABLES"):
            try:
                given = [f"{name}={real}" for name, real in json.loads(several).items()]
            except (ValueError, AttributeError):
                raise UsageError("TABLES is no JSON object of logical to real names") from None
        elif single := os.environ.get("TABLE_NAME"):
            given = [single]
    for text in given:
        name, equals, real = text.partition("=")
        if not equals:
            if list(logical) != [MAIN] and len(logical) != 1:
                raise UsageError(f"--table {text}: which of {', '.join(logical)}? Write --table LOGICAL={text}")
            name, real = logical[0], text
        if name not in logical:
            raise UsageError(f"--table {text}: the rules have no table {name!r}; they have {', '.join(logical)}")
        found[name] = real
    missing = [name for name in logical if name not in found]
    if missing:
        what = "--table NAME or TABLE_NAME" if list(logical) == [MAIN] else f"--table {missing[0]}=NAME or TABLES"
        raise UsageError(f"which table? Name it with {what}")
    return found


def _check(dynamodb: Any, name: str, schema: Any) -> None:
    """Raises UsageError if there is no such table, or its key is not that of the rules."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        table = dynamodb.describe_table(TableName=name)["Table"]
    except (ClientError, BotoCoreError) as error:
        raise UsageError(f"table {name}: {error}") from None
    types = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
    has = [(one["AttributeName"], types[one["AttributeName"]]) for one in table["KeySchema"]]
    wanted = [schema.partition] if schema.sort is None else [schema.partition, schema.sort]
    if has != wanted:
        raise UsageError(
            f"table {name} has the key {_key(has)}, the rules say {_key(wanted)}. Name the right table, or correct the rules"
        )


def _key(attributes: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in attributes)
