"""`projections package`."""

from __future__ import annotations

import click

from projections.cli.options import as_json, find_rules, rules_argument
from projections.terminal import json_text, print_line, print_text

__all__ = ["command"]


@click.command("package")
@rules_argument
@click.option(
    "-o",
    "--output",
    default="functions.zip",
    show_default=True,
    metavar="FILE",
    help="The archive. An existing file is overwritten.",
)
@as_json
def command(file: str | None, rules: str | None, output: str, as_json: bool) -> int:
    """Build the functions' package as an archive, for deployments without SAM.

    It has the library, the entry points, the compiled rules and the locked dependencies. The command requires make, and
    installs the dependencies with pip for Lambda's platform. Environment variables change the package as they do with
    `sam build`: LAMBDA_PYTHON, TRACING, BUNDLE_BOTO3. Archives of the same rules by the same version of this program have
    the same bytes.

    \b
    Example:
      projections package rules.yaml -o functions.zip
    """
    from projections.deploy.archive import write_archive

    size, remarks = write_archive(find_rules(file, rules), output)
    if as_json:
        print_text(json_text({"file": output, "bytes": size, "notes": remarks.splitlines()}))
        return 0
    for line in remarks.splitlines():
        print_line(f"note: {line}", err=True)
    print_line(f"Wrote {output}: {size / 1e6:.1f} MB.")
    return 0
