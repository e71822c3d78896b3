"""The tables of a deployment, to look at: their names from options or from the functions' own environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from projections.engine.store import Store
from projections.errors import UsageError
from projections.language.program import LEDGER_SCHEMA, Program

__all__ = ["live_store", "table_names"]

LEDGER = "ledger"


def table_names(
    program: Program, tables: Sequence[str], ledger: str | None, environ: Mapping[str, str]
) -> dict[str, str]:
    """The real name of each logical table and of the ledger.

    `tables` are the options: `NAME` where the rules have one table, else `LOGICAL=NAME` each. What they leave out comes
    from TABLE_NAME or TABLES, and LEDGER_TABLE_NAME. Raises UsageError, saying which is missing.
    """
    names = _from_environment(program, environ)
    logical = list(program.tables)
    for given in tables:
        name, equals, real = given.partition("=")
        if not equals and len(logical) == 1:
            names[logical[0]] = given
        elif equals and name in logical and real:
            names[name] = real
        else:
            forms = "NAME" if len(logical) == 1 else " or ".join(f"{one}=NAME" for one in logical)
            raise UsageError(f"--table {given}: write --table {forms}")
    missing = [name for name in logical if name not in names]
    if missing:
        how = "--table NAME, or TABLE_NAME" if len(logical) == 1 else f"--table {missing[0]}=NAME, or TABLES"
        raise UsageError(f"which table is {', '.join(missing)}? Give {how} in the environment")
    names[LEDGER] = ledger or environ.get("LEDGER_TABLE_NAME", "")
    if not names[LEDGER]:
        raise UsageError("which table is the ledger? Give --ledger NAME, or LEDGER_TABLE_NAME in the environment")
    return names


def _from_environment(program: Program, environ: Mapping[str, str]) -> dict[str, str]:
    if several := environ.get("TABLES"):
        try:
            found = json.loads(several)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise UsageError(f'TABLES is {several[:60]!r}; it has to be JSON, as {{"orders": "prod-orders"}}')
        return {str(name): str(real) for name, real in found.items() if name in program.tables}
    single = environ.get("TABLE_NAME")
    return {next(iter(program.tables)): single} if single and len(program.tables) == 1 else {}


def live_store(program: Program, names: Mapping[str, str], endpoint_url: str | None) -> Store:
    """A store on these tables, at AWS or at an endpoint."""
    from projections.stores.aws import client
    from projections.stores.dynamodb import DynamoDBStore

    schemas = {**program.tables, LEDGER: LEDGER_SCHEMA}
    return DynamoDBStore(client("dynamodb", endpoint_url), names, schemas)
