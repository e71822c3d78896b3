"""`projections client`."""

from __future__ import annotations

import click

from projections.cli.options import as_json, find_rules, output_option, rules_argument, write_output
from projections.terminal import count, json_text, print_line, print_text

__all__ = ["command"]


@click.command("client")
@rules_argument
@as_json
@click.option("--async", "waits", is_flag=True, help="Write coroutines, for aioboto3.")
@output_option
def command(file: str | None, rules: str | None, as_json: bool, waits: bool, output: str | None) -> int:
    """Write a Python module with a typed function for each query of a rule file.

    The module uses boto3 only. It also builds the keys and items of each entity, and the request of each write pattern.
    Queries that no request answers are left out and reported; the exit code is then 1.

    \b
    Examples:
      projections client rules.yaml -o access.py
      projections client rules.yaml --async -o access.py
    """
    from projections.api import load
    from projections.inspect.client import client_of

    path = find_rules(file, rules)
    client = client_of(load(path), path.name, waits=waits)
    if output is not None:
        write_output(output, client.text)
        print_line(f"{output}: {count(len(client.functions), 'function')} of {path.name}", err=True)
    if as_json:
        document = {"functions": dict(client.functions), "missing": dict(client.missing)}
        print_text(json_text(document if output else {**document, "module": client.text}))
    elif output is None:
        print_text(client.text)
    for name, reason in client.missing.items():
        print_line(f"query {name}: no function, {reason}", err=True)
    return 1 if client.missing else 0
