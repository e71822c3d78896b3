"""`projections client`."""

from __future__ import annotations

from pathlib import Path

import click

from projections.cli.options import as_json, find_rules, force_option, output_option, put_out, rules_argument
from projections.terminal import count, print_json, print_line


@click.command("client")
@rules_argument
@as_json
@click.option(
    "--language", type=click.Choice(["python", "typescript"]), help="Of the module.  [default: by FILE of -o]"
)
@click.option("--async", "waits", is_flag=True, help="Write coroutines in Python, for aioboto3.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if FILE of -o is not what would be written.")
@output_option
@force_option
def command(
    rules: str | None, as_json: bool, language: str | None, waits: bool, check: bool, output: str | None, force: bool
) -> int:
    """Write a module with a typed function for each query of a rule file, in Python or TypeScript.

    The module uses only boto3, or @aws-sdk/lib-dynamodb. It also reads ranks, and builds keys, items and the request of
    each write pattern. Queries that no request answers are left out and reported. Exits with 1 if there are any.

    If FILE of -o was edited since this command wrote it, the command shows the difference and asks before it overwrites the
    file. Without a terminal it writes nothing; --force overwrites.

    \b
    Examples:
      projections client rules.yaml -o access.py
      projections client rules.yaml -o access.ts
      projections client rules.yaml --async -o access.py
      projections client rules.yaml -o access.ts --check
    """
    from projections.api import load
    from projections.deploy.checksum import with_checksum
    from projections.inspect.client import client_of

    in_typescript = language == "typescript" or (language is None and (output or "").endswith(".ts"))
    if in_typescript and waits:
        raise click.UsageError("--async is for Python: functions in TypeScript always return promises")
    path = find_rules(rules)
    client = client_of(load(path), path.name, "typescript" if in_typescript else "aioboto3" if waits else "python")
    text = with_checksum(client.text, "// {}" if in_typescript else "# {}")
    if check:
        if output is None:
            raise click.UsageError("--check compares the file of -o: pass -o FILE")
        same = Path(output).is_file() and Path(output).read_text(encoding="utf-8") == text
        print_line(f"{output}: {'up to date' if same else 'not what the rules give; run the command without --check'}")
        return 0 if same else 1
    what = f"{count(len(client.functions), 'function')} of {path.name}"
    if (output is not None or not as_json) and not put_out(text, output, what, force=force):
        return 1
    if as_json:
        document = {"functions": dict(client.functions), "missing": dict(client.missing)}
        print_json(document if output else {**document, "module": text})
    for name, reason in client.missing.items():
        print_line(f"query {name}: no function, {reason}", err=True)
    for name, reason in client.renamed.items():
        function = client.functions[name]
        print_line(f"{name}: the function is {function}, because {reason}. Rename {name} to avoid it", err=True)
    return 1 if client.missing else 0
